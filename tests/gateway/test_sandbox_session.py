"""A sandbox with its egress: the order of things, what is recorded, and that it can be cancelled anywhere."""

import gc
import math
import os
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import trio
from trio.lowlevel import Task

from drivers.base import Capabilities, Driver, SandboxLost, Stdio
from drivers.bubblewrap import BubblewrapDriver
from drivers.noop import NoopDriver
from drivers.spec import NetworkSpec, SandboxSpec
from gateway.command import run_to_end
from gateway.egress.limits import Limits
from gateway.errors import ConfigError, RunFailed, primary_error
from gateway.event_log import EventLog, read_events
from gateway.events import RunStarted
from gateway.run import conduct_run
from gateway.sandbox_session import RunContext, SandboxPlan, SandboxSession, open_sandbox
from gateway.store import RunDirectory, RunStore
from policy.rules import RuleSource, RuleText
from tests.gateway.fake_driver import FakeDriver
from tests.support.iterion import PYTHON, TERMINAL_EVENTS, echo_process, processes_with
from tests.support.leaks import Snapshot, wait_for_leaks

LIMITS = Limits(drain_timeout_s=1.0)
MESSAGES = 5


def network(**changes: Any) -> NetworkSpec:
    source = RuleSource(origin="user", file="policy.yaml", line=1)
    rules = tuple(RuleText(text, source) for text in ("a.test", "127.0.0.1"))
    return NetworkSpec(**{"mode": "allowlist", "rules": rules, "hosts": {"a.test": ("127.0.0.1",)}, **changes})


def plan_for(driver: Driver, **changes: Any) -> SandboxPlan:
    spec = SandboxSpec(**{"mode": "auto", "host_state": "none", "network": network(), **changes})
    return SandboxPlan(spec=spec, driver=driver, mode="auto", source="test", host_state_source="default")


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[RunDirectory]:
    with RunStore(tmp_path / "store").create() as made:
        yield made


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@asynccontextmanager
async def context_for(directory: RunDirectory, workspace: Path) -> AsyncIterator[RunContext]:
    events = EventLog(directory.events, directory.run_id)
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(events.run)
            yield make_context(directory, workspace, events)
            nursery.cancel_scope.cancel()
    finally:
        events.close()


def make_context(directory: RunDirectory, workspace: Path, events: EventLog) -> RunContext:
    return RunContext(
        run_id=directory.run_id,
        run_name="n",
        workspace=workspace,
        scratch=directory.scratch,
        hidden=(directory.path.parent,),
        events=events,
        notify=lambda line: None,
        limits=LIMITS,
    )


def types(directory: RunDirectory) -> list[str]:
    return [event["type"] for event in read_events(directory.events)]


async def succeed(environment: Mapping[str, str]) -> int:
    await trio.lowlevel.checkpoint()
    return 0


async def hang(environment: Mapping[str, str]) -> int:
    await trio.sleep(math.inf)
    return 0


# The order of things


async def test_a_sandbox_is_ready_when_it_is_verified_and_post_create_has_run(
    directory: RunDirectory, workspace: Path
) -> None:
    driver = FakeDriver(program=succeed)
    async with context_for(directory, workspace) as context:
        async with open_sandbox(plan_for(driver, post_create="make ready"), context) as session:
            assert driver.commands == [("sh", "-c", "make ready")]
            assert list(driver.files) == ["/tmp/.iterion/ssh_connect.py"]
            host, port = session.sandbox.proxy_endpoint
            assert session.environment["HTTPS_PROXY"].endswith(f"@{host}:{port}")
            assert "sandbox_removed" not in types(directory)
        assert len(context.egress_stats) == 1
    assert types(directory) == [
        "policy_findings",
        "sandbox_started",
        "sandbox_host_state_mounted",
        "sandbox_egress_verified",
        "sandbox_removed",
    ]


async def test_a_way_round_the_proxy_stops_the_run_before_its_first_command(
    directory: RunDirectory, workspace: Path
) -> None:
    driver = FakeDriver(program=succeed, leaks=True)
    async with context_for(directory, workspace) as context:
        with pytest.RaisesGroup(pytest.RaisesExc(RunFailed, match="egress is not enforced"), flatten_subgroups=True):
            async with open_sandbox(plan_for(driver, post_create="make ready"), context):
                raise AssertionError("it must not be opened")
    assert driver.commands == []
    assert read_events(directory.events)[-2]["data"]["enforced"] is False


async def test_a_failed_post_create_is_the_run_s_failure(directory: RunDirectory, workspace: Path) -> None:
    async def fail(environment: Mapping[str, str]) -> int:
        await trio.lowlevel.checkpoint()
        return 5

    async with context_for(directory, workspace) as context:
        with pytest.RaisesGroup(pytest.RaisesExc(RunFailed, match="exit code 5"), flatten_subgroups=True):
            async with open_sandbox(plan_for(FakeDriver(program=fail), post_create="x"), context):
                raise AssertionError("it must not be opened")
    assert types(directory)[-1] == "sandbox_removed"


async def test_a_post_create_that_does_not_end(
    directory: RunDirectory, workspace: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with context_for(directory, workspace) as context:
        with pytest.RaisesGroup(pytest.RaisesExc(RunFailed, match="1800 s"), flatten_subgroups=True):
            async with open_sandbox(plan_for(FakeDriver(program=hang), post_create="x"), context):
                raise AssertionError("it must not be opened")


@pytest.mark.parametrize("when", ["idle", "running", "starting"])
async def test_the_loss_of_the_sandbox_is_recorded_once_and_ends_the_block(
    directory: RunDirectory, workspace: Path, when: str
) -> None:
    driver = FakeDriver(program=hang)
    async with context_for(directory, workspace) as context:

        async def lose_it() -> None:
            async with open_sandbox(plan_for(driver), context) as session:
                lost = driver.sandboxes[0].lost
                if when == "running":
                    async with session.exec(["x"]) as process:
                        lost.set()
                        await process.wait()
                if when == "starting":
                    lost.set()
                    async with session.exec(["x"]):
                        raise AssertionError("it must not be started")
                lost.set()
                await trio.sleep_forever()

        with pytest.raises(BaseExceptionGroup) as caught:
            await lose_it()
    assert isinstance(primary_error(caught.value), SandboxLost)
    assert types(directory).count("sandbox_lost") == 1
    assert types(directory)[-1] == "sandbox_removed"


async def test_a_policy_needs_a_driver_that_enforces_it(directory: RunDirectory, workspace: Path) -> None:
    async with context_for(directory, workspace) as context:
        with pytest.raises(RunFailed, match="noop driver cannot enforce"):
            async with open_sandbox(plan_for(NoopDriver({})), context):
                raise AssertionError("it must not be opened")
    assert types(directory) == []


async def test_inspection_is_refused(directory: RunDirectory, workspace: Path) -> None:
    driver = FakeDriver(program=succeed)
    async with context_for(directory, workspace) as context:
        with pytest.raises(ConfigError, match="inspect is not available"):
            async with open_sandbox(plan_for(driver, network=network(tls="inspect")), context):
                raise AssertionError("it must not be opened")
    assert driver.sandboxes == []


@pytest.mark.parametrize("isolates", [True, False])
async def test_advice_is_recorded_as_advice(directory: RunDirectory, workspace: Path, isolates: bool) -> None:
    driver = FakeDriver(program=succeed)
    driver.capabilities = Capabilities(
        isolates=isolates,
        enforces_egress=False,
        images=False,
        build=False,
        mounts=False,
        remote_user=False,
        post_create=True,
    )
    plan = plan_for(driver, network=network(enforcement="cooperative"))
    async with context_for(directory, workspace) as context, open_sandbox(plan, context) as session:
        assert session.environment["HTTPS_PROXY"]
        assert "GIT_SSH_COMMAND" not in session.environment
    assert driver.files == {}
    recorded = types(directory)
    assert "sandbox_egress_unenforced" in recorded
    assert ("sandbox_skipped" in recorded) is not isolates


async def test_an_open_network_has_no_proxy(directory: RunDirectory, workspace: Path) -> None:
    async with context_for(directory, workspace) as context:
        async with open_sandbox(plan_for(FakeDriver(program=succeed), network=NetworkSpec()), context) as session:
            assert session.environment == {}
        assert context.egress_stats == []
    assert types(directory) == ["sandbox_started", "sandbox_host_state_mounted", "sandbox_removed"]


# Cancelled anywhere


class CancelAtStep(trio.abc.Instrument):
    """Cancels ``scope`` before the step of any task that has this number; 0 never does."""

    def __init__(self, step: int) -> None:
        self.left = step
        self.steps = 0
        self.scope: trio.CancelScope | None = None

    def before_task_step(self, task: Task) -> None:
        if self.scope is not None:
            self.steps += 1
            self.left -= 1
            if self.left == 0:
                self.scope.cancel()


def run_cancelled_at(
    step: int, plan: SandboxPlan, folder: Path, use: Callable[[SandboxSession], Awaitable[int]]
) -> tuple[int, int | None]:
    """Conduct a whole run and cancel it at one step; returns the steps it took, and its code if it ended by itself.

    Afterwards its record must be whole, and nothing of it may be left.
    """
    workspace = folder / "workspace"
    workspace.mkdir(exist_ok=True)
    instrument = CancelAtStep(step)
    before = open_descriptors()
    with RunStore(folder / "store").create() as directory:

        async def body(events: EventLog) -> int:
            async with open_sandbox(plan, make_context(directory, workspace, events)) as session:
                return await use(session)

        async def main() -> int | None:
            started = RunStarted(name="n", flow=None, workspace="/", worktree=None, version="0")
            with trio.fail_after(20), trio.CancelScope() as scope:
                instrument.scope = scope
                return await conduct_run(directory, started, body, notify=lambda line: None)
            return None

        code = trio.run(main, instruments=[instrument])
        check_record(directory, finished=code is not None)
    assert open_descriptors() == before, f"descriptors are left, cancelled at step {step}"
    return instrument.steps, code


def open_descriptors() -> frozenset[str]:
    """Return what each open descriptor of this process leads to."""
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the one that the listing itself was read from
            found.add(f"{fd} {os.readlink(f'/proc/self/fd/{fd}')}")
    return frozenset(found)


def check_record(directory: RunDirectory, *, finished: bool) -> None:
    events = read_events(directory.events)
    kinds = [event["type"] for event in events]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert kinds[0] == "run_started"
    assert [kind for kind in kinds if kind in TERMINAL_EVENTS] == kinds[-1:]
    assert kinds[-1] == ("run_finished" if finished else "run_cancelled")
    assert directory.record.status == ("done" if finished else "cancelled")
    assert kinds.count("sandbox_started") <= kinds.count("sandbox_removed") <= 1
    opened = sorted(event["data"]["connection"] for event in events if event["type"] == "network_allowed")
    closed = sorted(event["data"]["connection"] for event in events if event["type"] == "network_closed")
    assert opened == closed
    assert not directory.scratch.exists()


def converse(port: int) -> Callable[[Mapping[str, str]], Awaitable[int]]:
    """Make a program that talks through a tunnel, and asks for a host that is blocked."""

    async def ask(environment: Mapping[str, str], target: str) -> trio.SocketStream:
        proxy = urlsplit(environment["HTTPS_PROXY"])
        assert proxy.hostname is not None
        assert proxy.port is not None
        stream = await trio.open_tcp_stream(proxy.hostname, proxy.port)
        token = b64encode(f"{proxy.username}:{proxy.password}".encode()).decode()
        lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}", f"Proxy-Authorization: Basic {token}", "", ""]
        await stream.send_all("\r\n".join(lines).encode())
        return stream

    async def program(environment: Mapping[str, str]) -> int:
        async with await ask(environment, f"blocked.test:{port}") as stream:
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 403")
        async with await ask(environment, f"a.test:{port}") as stream:
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 200")
            for _ in range(MESSAGES):
                await stream.send_all(b"plain words")
                await stream.receive_some()
            await stream.send_eof()
            assert await stream.receive_some() == b""
        return 0

    return program


async def use_fake(session: SandboxSession) -> int:
    status = await run_to_end(session.exec(["x"]), stdin=None, on_stdout=lambda data: None, on_stderr=lambda data: None)
    return status.returncode


@pytest.mark.usefixtures("no_leaks")
def test_a_run_can_be_cancelled_at_every_step(tmp_path: Path) -> None:
    with echo_process() as port:
        plan = plan_for(FakeDriver(program=converse(port)))
        run_cancelled_at(0, plan, tmp_path, use_fake)  # loads what is loaded late
        taken, code = run_cancelled_at(0, plan, tmp_path, use_fake)
        assert code == 0
        step = 0
        while step <= taken:  # how many steps a run takes differs by a few each time
            step += 1
            taken, code = run_cancelled_at(step, plan, tmp_path, use_fake)
        assert code == 0
    gc.collect()


TALK = """
import os, socket, sys
from base64 import b64encode
from urllib.parse import urlsplit
proxy = urlsplit(os.environ["HTTPS_PROXY"])
token = b64encode(f"{proxy.username}:{proxy.password}".encode()).decode()
def ask(target):
    s = socket.create_connection((proxy.hostname, proxy.port))
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}", f"Proxy-Authorization: Basic {token}", "", ""]
    s.sendall("\\r\\n".join(lines).encode())
    return s, s.recv(1000)
assert b" 403 " in ask(f"blocked.test:{sys.argv[1]}")[1]
s, answer = ask(f"a.test:{sys.argv[1]}")
assert b" 200 " in answer
for _ in range(5):
    s.sendall(b"plain words")
    s.recv(100)
s.shutdown(socket.SHUT_WR)
assert s.recv(1) == b""
"""


@pytest.mark.real
@pytest.mark.parametrize("forty", range(40))
def test_a_run_in_a_real_sandbox_can_be_cancelled_anywhere(tmp_path: Path, forty: int) -> None:
    mark = f"cancelled-{os.getpid()}-{forty}"
    with echo_process() as port:

        async def use(session: SandboxSession) -> int:
            command = [PYTHON, "-I", "-S", "-c", TALK, str(port), mark]
            async with session.exec(command, stdout=Stdio.DEVNULL, stderr=Stdio.DEVNULL) as process:
                return (await process.wait()).returncode

        plan = plan_for(BubblewrapDriver())
        total, code = run_cancelled_at(0, plan, tmp_path, use)
        assert code == 0
        before = Snapshot.take()
        step = 1 + total * forty // 40
        run_cancelled_at(step, plan, tmp_path, use)
        assert not processes_with(mark), f"cancelled at step {step} of {total}"
        assert not wait_for_leaks(before)
