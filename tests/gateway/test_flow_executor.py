"""Where the commands of nodes run, what is kept of their output, and how their failures look."""

from collections.abc import Mapping
from pathlib import Path

import pytest
import trio

from drivers.base import DriverError, RunInfo
from drivers.noop import NoopDriver
from drivers.spec import NetworkSpec, SandboxSpec
from gateway import flow_executor
from gateway.errors import RunFailed
from gateway.event_log import EventLog
from gateway.flow_executor import MAX_STDOUT_BYTES, FlowExecutor, NodePlan
from gateway.sandbox_session import RunContext, SandboxPlan
from gateway.workflow.engine import ToolResult
from gateway.workflow.model import SourcePos, ToolNode
from gateway.workflow.resolution import Placement
from tests.gateway.fake_driver import FakeDriver

NODE = ToolNode(name="a", position=SourcePos(file="f.bot", line=1, column=1), command="x")


async def succeed(environment: Mapping[str, str]) -> int:
    await trio.lowlevel.checkpoint()
    return 0


def context_in(folder: Path) -> RunContext:
    for name in ("workspace", "scratch"):
        (folder / name).mkdir()
    return RunContext(
        run_id="r1",
        run_name="n",
        workspace=folder / "workspace",
        scratch=folder / "scratch",
        hidden=(),
        events=EventLog(folder / "events.jsonl", "r1"),
        notify=lambda line: None,
    )


async def run_on_host(
    folder: Path, *argv: str, stdin: bytes | None = None, lines: list[tuple[str, str]] | None = None
) -> ToolResult:
    """Run one command of node ``a`` on the host."""
    context = context_in(folder)
    info = RunInfo(run_id="r1", run_name="n", workspace=context.workspace, scratch=context.scratch, network="host")
    shown = [] if lines is None else lines
    try:
        with trio.fail_after(30):
            async with NoopDriver({"PATH": "/usr/bin:/bin"}).start(SandboxSpec(mode="none"), info) as host:
                executor = FlowExecutor(
                    context,
                    {"a": NodePlan(placement=Placement.HOST)},
                    session=None,
                    host=host,
                    show=lambda node_id, line: shown.append((node_id, line)),
                )
                return await executor.run_tool("a", argv, stdin=stdin, env={"OWN": "1"}, node=NODE)
    finally:
        context.events.close()


@pytest.mark.real
async def test_output_is_kept_and_shown_line_by_line(tmp_path: Path) -> None:
    lines: list[tuple[str, str]] = []
    result = await run_on_host(
        tmp_path, "sh", "-c", "cat; printf last; echo oops >&2; exit 3", stdin=b"in\n", lines=lines
    )
    assert (result.exit_code, result.stdout, result.stderr_tail) == (3, b"in\nlast", "oops\n")
    assert not result.truncated
    assert sorted(lines) == [("a", "in"), ("a", "last"), ("a", "oops")]


@pytest.mark.real
async def test_a_command_knows_its_run_node_and_project(tmp_path: Path) -> None:
    result = await run_on_host(tmp_path, "sh", "-c", "echo $ITERION_RUN_ID $ITERION_NODE_ID $PROJECT_DIR $OWN; pwd")
    workspace = str(tmp_path / "workspace")
    assert result.stdout.decode().split() == ["r1", "a", workspace, "1", workspace]


@pytest.mark.real
async def test_endless_output_is_cut_and_read_to_its_end(tmp_path: Path) -> None:
    size = MAX_STDOUT_BYTES + 1
    result = await run_on_host(
        tmp_path, "sh", "-c", f"head -c {size} /dev/zero; head -c 100000 /dev/zero >&2; echo end >&2"
    )
    assert result.truncated
    assert len(result.stdout) == MAX_STDOUT_BYTES
    assert len(result.stderr_tail) == flow_executor.STDERR_TAIL_BYTES
    assert result.stderr_tail.endswith("end\n")


@pytest.mark.real
async def test_output_of_exactly_the_limit_is_whole(tmp_path: Path) -> None:
    result = await run_on_host(tmp_path, "head", "-c", str(MAX_STDOUT_BYTES), "/dev/zero")
    assert len(result.stdout) == MAX_STDOUT_BYTES
    assert not result.truncated


class Refusing(FakeDriver):
    """Cannot start anything."""

    def check(self, spec: SandboxSpec) -> None:
        raise DriverError("no such thing here")


@pytest.mark.parametrize(
    ("driver", "kind", "said"),
    [
        (Refusing(program=succeed), DriverError, "no such thing here"),
        (FakeDriver(program=succeed, leaks=True), RunFailed, "egress is not enforced"),
    ],
)
async def test_a_sandbox_of_its_own_that_fails_is_one_error_and_no_group(
    tmp_path: Path, driver: FakeDriver, kind: type[Exception], said: str
) -> None:
    context = context_in(tmp_path)
    spec = SandboxSpec(mode="auto", host_state="none", network=NetworkSpec(mode="allowlist"))
    plan = SandboxPlan(spec=spec, driver=driver, mode="auto", source="test", host_state_source="default")
    executor = FlowExecutor(
        context,
        {"a": NodePlan(placement=Placement.OWN, plan=plan)},
        session=None,
        host=None,
        show=lambda node_id, line: None,
    )
    with pytest.raises(kind, match=said):
        await executor.run_tool("a", ("x",), stdin=None, env={}, node=NODE)
    context.events.close()


async def test_a_node_without_a_place_fails(tmp_path: Path) -> None:
    context = context_in(tmp_path)
    executor = FlowExecutor(
        context,
        {"a": NodePlan(placement=Placement.RUN)},
        session=None,
        host=None,
        show=lambda node_id, line: None,
    )
    with pytest.raises(RunFailed, match="node 'a' has no place to run"):
        await executor.run_tool("a", ("x",), stdin=None, env={}, node=NODE)
    context.events.close()
