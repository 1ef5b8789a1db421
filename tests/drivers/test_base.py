"""The contract of drivers, held to the same tests by every one of them."""

import hashlib
import os
import signal
import socket
import sys
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from drivers.base import Driver, DriverError, ExitStatus, Sandbox, SandboxLost, Stdio, TerminalSize
from drivers.bubblewrap import BubblewrapDriver
from drivers.noop import NoopDriver
from drivers.spec import SandboxSpec
from tests.drivers.helpers import PATH, processes_with, run, run_info, wait_until_gone, wait_until_there

pytestmark = pytest.mark.real


@pytest.fixture(params=["noop", "bubblewrap"])
def driver(request: pytest.FixtureRequest, tmp_path: Path) -> Driver:
    home = tmp_path / "home"
    home.mkdir()
    environ = {"PATH": PATH, "HOME": str(home)}
    return NoopDriver(environ) if request.param == "noop" else BubblewrapDriver(environ)


@pytest.fixture
async def sandbox(driver: Driver, tmp_path: Path) -> AsyncIterator[Sandbox]:
    async with driver.start(SandboxSpec(env={"FROM_SPEC": "spec"}), run_info(tmp_path)) as started:
        yield started


@pytest.fixture
def mark() -> str:
    """A text that no other process has on its command line."""
    return f"mark-{uuid.uuid4().hex}"


async def exec_true(sandbox: Sandbox) -> int:
    async with sandbox.exec(["true"], env={}) as process:
        return (await process.wait()).returncode


def test_a_driver_that_runs_here_says_so(driver: Driver) -> None:
    assert driver.availability() is None


def test_exit_status_is_reported_like_a_shell_does() -> None:
    assert ExitStatus(code=3).returncode == 3
    assert ExitStatus(signal=9).returncode == 137


async def test_outputs_and_exit_code(sandbox: Sandbox) -> None:
    result = await run(sandbox, "echo out; echo err >&2; exit 7")
    assert (result.status, result.out, result.err) == (ExitStatus(code=7), "out\n", "err\n")


async def test_death_by_signal(sandbox: Sandbox) -> None:
    assert (await run(sandbox, "kill -TERM $$")).status == ExitStatus(signal=signal.SIGTERM)


async def test_starts_in_the_workspace_and_elsewhere(sandbox: Sandbox) -> None:
    await sandbox.write_file("sub/file", b"")
    assert (await run(sandbox, "pwd")).out == f"{sandbox.workspace}\n"
    assert (await run(sandbox, "pwd", cwd="sub")).out == f"{sandbox.workspace}/sub\n"
    assert (await run(sandbox, "pwd", cwd="/usr")).out == "/usr\n"


async def test_a_working_directory_that_is_not_there(sandbox: Sandbox) -> None:
    result = await run(sandbox, ["true"], cwd="/nowhere")
    assert result.status == ExitStatus(code=126)
    assert "working directory /nowhere" in result.err


async def test_variables_of_spec_and_caller(sandbox: Sandbox) -> None:
    result = await run(sandbox, 'echo "$FROM_SPEC $MINE"', env={"MINE": "a=b 'c'"})
    assert result.out == "spec a=b 'c'\n"
    assert (await run(sandbox, 'echo "$FROM_SPEC"', env={"FROM_SPEC": "caller"})).out == "caller\n"


async def test_commands_that_cannot_run(sandbox: Sandbox) -> None:
    missing = await run(sandbox, ["no-such-command"])
    assert (missing.status.returncode, missing.err) == (127, "iterion: cannot run no-such-command: command not found\n")
    assert (await run(sandbox, ["/no/such/file"])).status.returncode == 127
    await sandbox.write_file("not-executable", b"#!/bin/sh\n", 0o644)
    denied = await run(sandbox, ["./not-executable"])
    assert (denied.status.returncode, "Permission denied" in denied.err) == (126, True)
    await sandbox.write_file("nonsense", b"\1\2\3", 0o755)
    assert (await run(sandbox, ["./nonsense"])).status.returncode == 126


async def test_arguments_arrive_as_they_are(sandbox: Sandbox) -> None:
    arguments = ["", " ", "a b", "$HOME", "*", "'\"", "\n", "ä", "-n", "\udcff"]
    script = "import sys; sys.stdout.buffer.write('|'.join(sys.argv[1:]).encode(errors='surrogateescape'))"
    async with sandbox.exec(["python3", "-c", script, *arguments], env={}) as process:
        assert process.stdout is not None
        assert b"".join([bytes(d) async for d in process.stdout]) == "|".join(arguments).encode(
            errors="surrogateescape"
        )


async def test_more_arguments_than_fit_into_a_packet(sandbox: Sandbox) -> None:
    arguments = ["x" * 1000] * 500
    result = await run(sandbox, ["sh", "-c", "echo $#", "sh", *arguments], env={"LONG": "y" * 100_000})
    assert result.out == "500\n"


@pytest.mark.parametrize("argv", [[], [""], ["a\0b"]])
async def test_impossible_arguments_are_refused(sandbox: Sandbox, argv: list[str]) -> None:
    with pytest.raises(DriverError):
        async with sandbox.exec(argv, env={}):
            pass


@pytest.mark.parametrize("env", [{"A=B": "c"}, {"": "c"}, {"A": "b\0c"}])
async def test_H49_impossible_variables_are_refused(sandbox: Sandbox, env: dict[str, str]) -> None:
    with pytest.raises(DriverError):
        async with sandbox.exec(["true"], env=env):
            pass


async def test_commands_have_the_usual_signal_dispositions(sandbox: Sandbox) -> None:
    result = await run(sandbox, "grep -E '^Sig(Blk|Ign)' /proc/self/status")
    ours = ~(1 << 31 | 1 << 32)  # 32 and 33 belong to the C library; below make they are ignored, and nobody can tell
    assert [int(line.split()[1], 16) & ours for line in result.out.splitlines()] == [0, 0]


async def test_commands_get_no_descriptor_but_their_streams(sandbox: Sandbox) -> None:
    result = await run(
        sandbox, ["python3", "-c", "import os; print(sorted(map(int, os.listdir('/proc/self/fd')))[:-1])"]
    )
    assert result.out == "[0, 1, 2]\n"


async def test_input_half_close_and_answer_afterwards(sandbox: Sandbox) -> None:
    async with sandbox.exec(["sh", "-c", "cat; echo done"], env={}, stdin=Stdio.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        await process.stdin.send_all(b"hello ")
        assert await process.stdout.receive_some() == b"hello "
        await process.stdin.aclose()
        assert b"".join([bytes(data) async for data in process.stdout]) == b"done\n"
        assert await process.wait() == ExitStatus(code=0)


async def test_devnull_streams(sandbox: Sandbox) -> None:
    async with sandbox.exec(
        ["sh", "-c", "cat; echo lost; echo lost >&2"], env={}, stdout=Stdio.DEVNULL, stderr=Stdio.DEVNULL
    ) as process:
        assert (process.stdin, process.stdout, process.stderr) == (None, None, None)
        assert await process.wait() == ExitStatus(code=0)


async def test_inherited_streams(sandbox: Sandbox, capfd: pytest.CaptureFixture[str]) -> None:
    async with sandbox.exec(
        ["sh", "-c", "echo out; echo err >&2"], env={}, stdout=Stdio.INHERIT, stderr=Stdio.INHERIT
    ) as process:
        await process.wait()
    assert capfd.readouterr() == ("out\n", "err\n")


async def test_a_hundred_megabytes_arrive_whole(sandbox: Sandbox) -> None:
    script = "import sys; block = bytes(range(256)) * 4096\nfor _ in range(100): sys.stdout.buffer.write(block)"
    expected = hashlib.sha256(bytes(range(256)) * 4096 * 100).digest()
    seen = hashlib.sha256()
    async with sandbox.exec(["python3", "-c", script], env={}) as process:
        assert process.stdout is not None
        async for data in process.stdout:
            seen.update(data)
        assert await process.wait() == ExitStatus(code=0)
    assert seen.digest() == expected


async def test_a_slow_reader_holds_the_command_back(sandbox: Sandbox) -> None:
    script = "import os, sys\nfor n in range(1000):\n os.write(1, b'x' * 65536)\n os.write(2, b'.')"
    async with sandbox.exec(["python3", "-c", script], env={}) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        progress = 0
        while True:  # until it makes no more
            with trio.move_on_after(0.3) as scope:
                progress += len(await process.stderr.receive_some())
            if scope.cancelled_caught:
                break
        assert 0 < progress < 20
        total = 0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(drain, process.stderr)
            async for data in process.stdout:
                total += len(data)
        assert total == 65536 * 1000


async def drain(stream: trio.abc.ReceiveStream) -> None:
    async for _ in stream:
        pass


async def test_a_command_that_does_not_read_holds_the_writer_back(sandbox: Sandbox) -> None:
    async with sandbox.exec(["sleep", "100"], env={}, stdin=Stdio.PIPE) as process:
        assert process.stdin is not None
        with trio.move_on_after(0.3) as scope:
            await process.stdin.send_all(b"x" * 10_000_000)
        assert scope.cancelled_caught


async def test_writing_to_a_command_that_ended(sandbox: Sandbox) -> None:
    async with sandbox.exec(["true"], env={}, stdin=Stdio.PIPE) as process:
        await process.wait()
        assert process.stdin is not None
        with pytest.raises(trio.BrokenResourceError):
            await process.stdin.send_all(b"x" * 10_000_000)


async def test_fifty_commands_at_once(sandbox: Sandbox) -> None:
    outputs = {}

    async def one(number: int) -> None:
        outputs[number] = (await run(sandbox, f"sleep 0.1; echo {number}")).out

    async with trio.open_nursery() as nursery:
        for number in range(50):
            nursery.start_soon(one, number)
    assert outputs == {number: f"{number}\n" for number in range(50)}


async def test_signals_reach_the_command_alone(sandbox: Sandbox) -> None:
    script = "trap 'echo caught; exit 5' USR1; echo ready; while :; do sleep 0.01; done"
    async with sandbox.exec(["sh", "-c", script], env={}) as process:
        assert process.stdout is not None
        assert await process.stdout.receive_some() == b"ready\n"
        await process.send_signal(signal.SIGUSR1)
        assert await process.wait() == ExitStatus(code=5)
        await process.send_signal(signal.SIGUSR1)
        await process.kill()


FAMILY = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(1000)
    os._exit(0)
if os.fork() == 0:
    os.setpgid(0, 0)
    time.sleep(1000)
print("ready", flush=True)
time.sleep(1000)
"""
"""A command with a child in a session of its own, orphaned, and one in a process group of its own."""


async def test_H60_leaving_the_block_kills_the_whole_tree(sandbox: Sandbox, mark: str) -> None:
    async with sandbox.exec(["python3", "-c", FAMILY, mark], env={}) as process:
        assert process.stdout is not None
        assert await process.stdout.receive_some() == b"ready\n"
        await wait_until_there(mark, 3)
    assert processes_with(mark) == []


async def test_H60_cancelling_kills_the_whole_tree(sandbox: Sandbox, mark: str) -> None:
    with trio.move_on_after(5) as scope:
        async with sandbox.exec(["python3", "-c", FAMILY, mark], env={}) as process:
            assert process.stdout is not None
            await process.stdout.receive_some()
            scope.cancel()
            await process.wait()
    assert scope.cancelled_caught
    assert processes_with(mark) == []
    assert await exec_true(sandbox) == 0


async def test_kill_ends_a_command_and_its_tree(sandbox: Sandbox, mark: str) -> None:
    async with sandbox.exec(["python3", "-c", FAMILY, mark], env={}) as process:
        assert process.stdout is not None
        await process.stdout.receive_some()
        await process.kill()
        assert processes_with(mark) == []
        assert await process.wait() == ExitStatus(signal=signal.SIGKILL)


RESTLESS = """
import os, time
if os.fork():
    print("ready", flush=True)
    time.sleep(1000)
end = time.time() + 10
while time.time() < end:
    if os.fork():
        os._exit(0)
    os.setsid()
"""
"""A command with a descendant that is another process, and another session, all the time."""


async def test_a_tree_that_forks_all_the_time_is_killed(sandbox: Sandbox, mark: str) -> None:
    async with sandbox.exec(["python3", "-c", RESTLESS, mark], env={}) as process:
        assert process.stdout is not None
        await process.stdout.receive_some()
        await trio.sleep(0.05)
    for _ in range(20):
        assert processes_with(mark) == []
        await trio.sleep(0.01)


async def test_a_background_child_of_an_ended_command_stays(sandbox: Sandbox, mark: str) -> None:
    script = f"python3 -c 'import time; time.sleep(1000)' {mark} </dev/null >/dev/null 2>&1 & echo started"
    assert (await run(sandbox, script)).out == "started\n"
    await trio.sleep(0.1)
    assert len(processes_with(mark)) == 1


async def test_the_end_of_the_sandbox_ends_what_stayed(driver: Driver, tmp_path: Path, mark: str) -> None:
    async with driver.start(SandboxSpec(), run_info(tmp_path)) as sandbox:
        await run(sandbox, f"setsid python3 -c 'import time; time.sleep(1000)' {mark} </dev/null >/dev/null 2>&1 &")
        await wait_until_there(mark)
    await wait_until_gone(mark)


async def test_a_command_may_kill_its_keeper_but_does_not_escape(sandbox: Sandbox, mark: str) -> None:
    script = "import os, time; os.kill(os.getppid(), 9); print('x', flush=True); time.sleep(1000)"
    async with sandbox.exec(["python3", "-c", script, mark], env={}) as process:
        with trio.fail_after(5):
            assert await process.wait() == ExitStatus(signal=signal.SIGKILL)
    await wait_until_gone(mark)
    assert await exec_true(sandbox) == 0


async def test_a_terminal_of_its_own(sandbox: Sandbox) -> None:
    script = "test -t 0 && test -t 1 && test -t 2 && stty size && read line && echo got $line >/dev/tty"
    async with sandbox.exec(
        ["sh", "-c", script], env={}, terminal=True, terminal_size=TerminalSize(columns=91, rows=31)
    ) as process:
        assert process.stderr is None
        assert process.stdin is not None
        assert process.stdout is not None
        await process.stdin.send_all(b"words\n")
        output = b"".join([bytes(data) async for data in process.stdout])
        assert await process.wait() == ExitStatus(code=0)
    assert b"31 91" in output
    assert b"got words" in output


async def test_a_terminal_changes_its_size_and_interrupts(sandbox: Sandbox) -> None:
    script = "trap 'stty size' WINCH; trap 'echo int; exit 4' INT; echo ready; while :; do sleep 0.01; done"
    async with sandbox.exec(["sh", "-c", script], env={}, terminal=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        output = b""

        async def read_until(text: bytes) -> None:
            nonlocal output
            assert process.stdout is not None
            with trio.fail_after(10):
                while text not in output:
                    output += await process.stdout.receive_some()

        await read_until(b"ready")
        await process.resize(TerminalSize(columns=100, rows=40))
        await read_until(b"40 100")
        await process.stdin.send_all(b"\x03")
        await read_until(b"int")
        assert await process.wait() == ExitStatus(code=4)


async def test_write_file(sandbox: Sandbox) -> None:
    data = os.urandom(3_000_000)
    await sandbox.write_file("deep/er/file", data, 0o640)
    result = await run(sandbox, "stat -c %a deep/er/file; ls deep/er; sha256sum <deep/er/file")
    mode, name, digest = result.out.splitlines()
    assert (mode, name, digest.split()[0]) == ("640", "file", hashlib.sha256(data).hexdigest())
    await sandbox.write_file("deep/er/file", b"shorter")
    assert (await run(sandbox, "cat deep/er/file")).out == "shorter"
    await sandbox.write_file("empty", b"")
    assert (await run(sandbox, "stat -c %s empty")).out == "0\n"


@pytest.mark.parametrize("path", ["/proc/1/new", "a\0b", "/proc/self/status/x"])
async def test_write_file_says_why_it_cannot(sandbox: Sandbox, path: str) -> None:
    with pytest.raises(DriverError, match="cannot write"):
        await sandbox.write_file(path, b"x")


async def test_the_block_s_own_error_comes_out_as_it_is(driver: Driver, tmp_path: Path) -> None:
    async def fail() -> None:
        async with driver.start(SandboxSpec(), run_info(tmp_path)) as sandbox:
            assert await exec_true(sandbox) == 0
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await fail()


async def test_a_missing_workspace(driver: Driver, tmp_path: Path) -> None:
    info = run_info(tmp_path)
    info.workspace.rmdir()
    with pytest.raises(DriverError, match="not a directory"):
        async with driver.start(SandboxSpec(), info):
            pass


async def test_losing_the_sandbox(driver: Driver, tmp_path: Path, mark: str) -> None:
    async with driver.start(SandboxSpec(), run_info(tmp_path)) as sandbox, trio.open_nursery() as nursery:
        descriptions: list[str] = []

        async def supervise() -> None:
            descriptions.append(await sandbox.wait_lost())

        nursery.start_soon(supervise)
        async with sandbox.exec(["python3", "-c", FAMILY, mark], env={}) as process:
            (init,) = [pid for pid in processes_with("--control") if parent_of(pid) == os.getpid()]
            os.kill(init, signal.SIGKILL)
            with trio.fail_after(5), pytest.raises(SandboxLost, match="SIGKILL"):
                await process.wait()
            with pytest.raises(SandboxLost):
                await process.kill()
        with pytest.raises(SandboxLost):
            await exec_true(sandbox)
        with pytest.raises(SandboxLost):
            await sandbox.write_file("x", b"")
    assert "SIGKILL" in descriptions[0]
    await wait_until_gone(mark)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.parametrize("step", range(0, 120, 4))
async def test_cancelling_anywhere_leaves_nothing(driver: Driver, tmp_path: Path, mark: str, step: int) -> None:
    """The scheduler runs tasks in batches; after `step` of its own checkpoints a neighbour cancels everything."""
    began = trio.current_time()
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:

            async def cancel_later() -> None:
                if step < 40:
                    for _ in range(step):
                        await trio.lowlevel.checkpoint()
                else:
                    await trio.sleep((step - 40) / 1000)
                scope.cancel()

            nursery.start_soon(cancel_later)
            async with driver.start(SandboxSpec(), run_info(tmp_path)) as sandbox:
                await sandbox.write_file("file", b"data")
                while True:
                    async with sandbox.exec(["python3", "-c", FAMILY, mark], env={}) as process:
                        assert process.stdout is not None
                        await process.stdout.receive_some()
                        await trio.sleep(0.02)
    assert trio.current_time() - began < 10
    await wait_until_gone(mark)
    assert os.listdir(tmp_path / "scratch") == []


GATEWAY = """
import sys, trio
from pathlib import Path
from drivers.base import RunInfo
from drivers.registry import DRIVERS
from drivers.spec import SandboxSpec

async def main():
    folder = Path(sys.argv[2])
    info = RunInfo(run_id="r", run_name="r", workspace=folder / "workspace", scratch=folder / "scratch")
    driver = DRIVERS[sys.argv[1]]({"PATH": sys.argv[4], "HOME": str(folder / "home")})
    async with driver.start(SandboxSpec(), info) as sandbox:
        async with sandbox.exec(["python3", "-c", sys.argv[5], sys.argv[3]], env={}) as process:
            await process.stdout.receive_some()
            print("ready", flush=True)
            await trio.sleep_forever()

trio.run(main)
"""


async def test_H61_a_killed_gateway_leaves_no_process(driver: Driver, tmp_path: Path, mark: str) -> None:
    run_info(tmp_path)
    # -c would put the mark on the gateway's own command line too; that is fine: it is to be gone as well.
    gateway = await trio.lowlevel.open_process(
        [sys.executable, "-c", GATEWAY, driver.name, str(tmp_path), mark, PATH, FAMILY],
        stdout=(pair := socket.socketpair())[1],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    pair[1].close()
    with pair[0], trio.fail_after(20):
        pair[0].setblocking(False)
        await trio.lowlevel.wait_readable(pair[0])
        assert pair[0].recv(100).startswith(b"ready")
        await wait_until_there(mark, 4)
        gateway.kill()
        await gateway.wait()
    await wait_until_gone(mark)
