"""Where the commands of a workflow's nodes run: the run's sandbox, a node's own, or the host."""

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from drivers.base import Sandbox, Stdio
from gateway.command import LineSplitter, TailBuffer, run_to_end
from gateway.errors import RunFailed, primary_error
from gateway.sandbox_session import RunContext, SandboxPlan, SandboxSession, open_sandbox
from gateway.workflow.engine import ToolResult
from gateway.workflow.model import ToolNode
from gateway.workflow.resolution import Placement

__all__ = ["FlowExecutor", "NodePlan"]

MAX_STDOUT_BYTES: Final = 16 * 1024 * 1024
"What is kept of one command's output; more is read and thrown away."
STDERR_TAIL_BYTES: Final = 16 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """Where one node's command runs; ``plan`` is set exactly for a sandbox of its own."""

    placement: Placement
    plan: SandboxPlan | None = None


class _Capture:
    """One command's output: the beginning of stdout, the end of stderr, and both shown line by line."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self.stdout = bytearray()
        self.truncated = False
        self.stderr = TailBuffer(STDERR_TAIL_BYTES)
        self._lines = (LineSplitter(show), LineSplitter(show))

    def take_stdout(self, data: bytes) -> None:
        room = MAX_STDOUT_BYTES - len(self.stdout)
        self.stdout += data[:room]
        self.truncated = self.truncated or len(data) > room
        self._lines[0].feed(data)

    def take_stderr(self, data: bytes) -> None:
        self.stderr.feed(data)
        self._lines[1].feed(data)

    def finish(self) -> None:
        for lines in self._lines:
            lines.finish()


@asynccontextmanager
async def _one_error() -> AsyncIterator[None]:
    """Let the one error out that explains a group: the node's record has room for one."""
    try:
        yield
    except ExceptionGroup as group:
        raise primary_error(group) from group


class FlowExecutor:
    """Runs the commands of one workflow run (`gateway.workflow.engine.NodeExecutor`).

    Args:
        context: the run.
        nodes: where each node runs.
        session: the run's sandbox, or None when no node runs there.
        host: the host, or None when no node runs there.
        show: shows one line of a node's output: node, line.
    """

    def __init__(
        self,
        context: RunContext,
        nodes: Mapping[str, NodePlan],
        *,
        session: SandboxSession | None,
        host: Sandbox | None,
        show: Callable[[str, str], None],
    ) -> None:
        self._context = context
        self._nodes = nodes
        self._session = session
        self._host = host
        self._show = show

    async def run_tool(
        self,
        node_id: str,
        argv: tuple[str, ...],
        *,
        stdin: bytes | None,
        env: Mapping[str, str],
        node: ToolNode,
    ) -> ToolResult:
        """Run one command where its node belongs; see `NodeExecutor.run_tool`.

        Raises:
            DriverError, SandboxLost, RunFailed: the sandbox, not the command, failed.
        """
        del node  # everything it says about its place is in the plan
        began = time.monotonic()
        capture = _Capture(lambda line: self._show(node_id, line))
        async with _one_error(), AsyncExitStack() as stack:
            place = await self._place(node_id, stack)
            inside = place.sandbox if isinstance(place, SandboxSession) else place
            variables = {
                "PROJECT_DIR": inside.workspace,
                "ITERION_RUN_ID": self._context.run_id,
                "ITERION_NODE_ID": node_id,
                **env,
            }
            command = place.exec(argv, env=variables, stdin=Stdio.DEVNULL if stdin is None else Stdio.PIPE)
            status = await run_to_end(
                command, stdin=stdin, on_stdout=capture.take_stdout, on_stderr=capture.take_stderr
            )
        capture.finish()
        return ToolResult(
            exit_code=status.returncode,
            stdout=bytes(capture.stdout),
            truncated=capture.truncated,
            stderr_tail=capture.stderr.text,
            duration_s=time.monotonic() - began,
        )

    async def _place(self, node_id: str, stack: AsyncExitStack) -> SandboxSession | Sandbox:
        where = self._nodes[node_id]
        if where.plan is not None:
            return await stack.enter_async_context(open_sandbox(where.plan, self._context, node_id=node_id))
        place = self._session if where.placement is Placement.RUN else self._host
        if place is None:
            raise RunFailed(f"node {node_id!r} has no place to run")
        return place
