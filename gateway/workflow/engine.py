"""The node engine: runs a workflow from its entry to ``done``.

Theory of operation
-------------------
One task, the *driver* (`_Run.drive`), owns all state: it starts what the scheduler has ready, and takes in what the
nodes report, one report at a time. The only other tasks are the nodes themselves, children of one nursery, which run a
command and report; they touch nothing of the run. So there is no shared state between two awaits, and the order of
the reports is the only thing that timing decides.

A node that fails by itself (`NodeError`) is a report like any other: the scheduler says whether the run goes on. What
goes wrong around it (the sandbox is lost, a fault of this program) leaves through the nursery. Either way the other
nodes are cancelled, and their executor kills their commands before it returns.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import trio

from gateway.errors import ConfigError, Position
from gateway.events import Event, NodeFinished, NodeStarted
from gateway.workflow.departures import EdgeChooser
from gateway.workflow.evaluation import evaluate
from gateway.workflow.expressions import ExpressionError
from gateway.workflow.model import (
    Budget,
    ComputeNode,
    Flow,
    JsonValue,
    Node,
    NodeKind,
    RouterMode,
    RouterNode,
    SourcePos,
    ToolNode,
)
from gateway.workflow.node_errors import NodeError, WorkflowFailed
from gateway.workflow.scheduler import Branch, Scheduler
from gateway.workflow.templates import TemplateError
from gateway.workflow.tool_command import render_tool
from gateway.workflow.tool_output import read_output
from gateway.workflow.topology import Topology
from gateway.workflow.values import ValueProblem, schema_problems

__all__ = [
    "EngineLimits",
    "EventSink",
    "NodeExecutor",
    "ToolResult",
    "WorkflowOutcome",
    "check_supported",
    "run_workflow",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """What holds where a workflow's budget says nothing."""

    max_parallel_branches: int = 8
    max_node_starts: int = 10_000
    max_error_chars: int = 4_000
    """How much of a command's error output a message repeats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """How the command of a tool node ended."""

    exit_code: int
    "128 plus the number of the signal, if one ended it."
    stdout: bytes
    truncated: bool = False
    "Whether it printed more than was kept."
    stderr_tail: str = ""
    duration_s: float = 0.0


class NodeExecutor(Protocol):
    """Runs the commands of nodes, each in the sandbox that was resolved for it."""

    async def run_tool(
        self,
        node_id: str,
        argv: tuple[str, ...],
        *,
        stdin: bytes | None,
        env: Mapping[str, str],
        node: ToolNode,
    ) -> ToolResult:
        """Run one command to its end.

        Args:
            node_id: the node's name.
            argv: the command line.
            stdin: what it reads from standard input; None for nothing.
            env: variables to add to its environment.
            node: the node, whose ``sandbox:`` may send it elsewhere.

        Cancellation kills the command, inside its sandbox, before it goes on.
        """
        ...


class EventSink(Protocol):
    """Where events go; an EventLog is one."""

    def emit(self, event: Event, *, node_id: str | None = None) -> None:
        """Record one event."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowOutcome:
    """A run that reached ``done``: the last output of each node that ended well, and how many nodes were started."""

    outputs: Mapping[str, Mapping[str, JsonValue]]
    node_starts: int


def check_supported(flow: Flow) -> None:
    """Refuse a flow with anything that this version cannot run, before anything starts.

    Raises:
        ConfigError: naming the place, what it is, and what there is instead.
    """
    for node in flow.nodes.values():
        problem = None
        if node.kind not in (NodeKind.TOOL, NodeKind.COMPUTE, NodeKind.ROUTER):
            problem = f"{node.kind} {node.name!r}: {node.kind} nodes are not part of this version"
        elif isinstance(node, RouterNode) and node.mode is RouterMode.LLM:
            problem = f"router {node.name!r}: the mode 'llm' is not part of this version"
        if problem is not None:
            raise ConfigError(
                problem,
                position=_position(node.position),
                cure="this version runs tool and compute nodes, and routers that fan_out_all, condition or round_robin",
            )
    for attachment in flow.all_attachments.values():
        if attachment.required:
            raise ConfigError(
                f"attachment {attachment.name!r} is required, and attachments are not part of this version",
                position=_position(attachment.position),
                cure="give the run a path with a variable instead",
            )


def _position(position: SourcePos) -> Position:
    return Position(file=position.file, line=position.line, column=position.column)


async def run_workflow(
    flow: Flow,
    *,
    run_id: str,
    variables: Mapping[str, JsonValue],
    executor: NodeExecutor,
    events: EventSink,
    environ: Mapping[str, str],
    limits: EngineLimits | None = None,
) -> WorkflowOutcome:
    """Run a flow from its entry until its last branch reaches ``done``.

    Args:
        flow: a flow without errors.
        run_id: what ``{{run.id}}`` stands for.
        variables: the value of every variable.
        executor: runs the commands.
        events: gets node_started and node_finished.
        environ: what ``${NAME}`` in mappings stands for; ``PROJECT_DIR`` is the workspace.
        limits: what holds where the budget is silent.

    Raises:
        ConfigError: the flow needs what this version does not have; nothing was started.
        WorkflowFailed: a node failed (then it is a NodeError), ``fail`` was reached, or the budget is used up.
        ExceptionGroup: of whatever else the executor raised.

    Cancellation cancels every node; each is recorded as cancelled.
    """
    check_supported(flow)
    budget = flow.workflow.budget
    seconds = math.inf if budget is None or budget.max_duration_s is None else budget.max_duration_s
    run = _Run(flow, run_id, variables, executor, events, environ, limits or EngineLimits())
    with trio.move_on_after(seconds) as deadline:
        await run.drive()
    if run.failure is not None:
        raise run.failure
    if deadline.cancelled_caught and budget is not None:
        raise WorkflowFailed(f"the budget of max_duration {budget.max_duration} is used up", budget.position)
    return WorkflowOutcome(outputs=run.outputs, node_starts=run.node_starts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Report:
    """How one node ended: with an output, or with an error of its own."""

    branch: Branch
    output: Mapping[str, JsonValue] = field(default_factory=dict)
    error: NodeError | None = None


class _Run:
    """The state of one run; only `drive` and what it calls change it."""

    def __init__(
        self,
        flow: Flow,
        run_id: str,
        variables: Mapping[str, JsonValue],
        executor: NodeExecutor,
        events: EventSink,
        environ: Mapping[str, str],
        limits: EngineLimits,
    ) -> None:
        self.flow: Final = flow
        self.executor: Final = executor
        self.events: Final = events
        self.limits: Final = limits
        self.outputs: dict[str, Mapping[str, JsonValue]] = {}
        self.node_starts = 0
        self.failure: WorkflowFailed | None = None
        self._fixed = {"vars": variables, "artifacts": {}, "attachments": {}, "run": {"id": run_id}}
        topology = Topology.of(flow)
        awaits = {name: node.await_ for name, node in flow.nodes.items()}
        self._scheduler = Scheduler(topology, awaits, flow.workflow.entry or "")
        self._chooser = EdgeChooser(topology.leaving, environ)
        self._starts: Counter[str] = Counter()
        budget = flow.workflow.budget or Budget(position=flow.workflow.position)
        self._budget = budget
        self._max_running = budget.max_parallel_branches or limits.max_parallel_branches
        self._max_starts = budget.max_iterations or limits.max_node_starts

    async def drive(self) -> None:
        """Run until every branch has ended, or until `failure` is set."""
        running = 0
        # As many reports as nodes may be under way: reporting never blocks.
        send, receive = trio.open_memory_channel[_Report](self._max_running)
        async with trio.open_nursery() as nursery:
            while not self._scheduler.ended:
                while running < self._max_running and (branch := self._scheduler.take_ready()) is not None:
                    if not self._may_start(branch):
                        nursery.cancel_scope.cancel()
                        return
                    running += 1
                    self._record_start(branch)
                    nursery.start_soon(self._run_node, branch, self._scope(branch), send)
                report = await receive.receive()
                running -= 1
                if not self._take_in(report):
                    nursery.cancel_scope.cancel()
                    return
            nursery.cancel_scope.cancel()  # `fail` was reached while others run
        failed_at = self._scheduler.failed_at
        if failed_at is not None:
            self.failure = WorkflowFailed(f"{failed_at.source!r} led to 'fail'", failed_at.position)

    def _may_start(self, branch: Branch) -> bool:
        if self.node_starts >= self._max_starts:
            if self._budget.max_iterations is None:
                message, position = f"more than {self._max_starts} nodes were started", self.flow.workflow.position
            else:
                message = f"the budget of max_iterations {self._max_starts} is used up (before node {branch.node!r})"
                position = self._budget.position
            self.failure = WorkflowFailed(message, position)
            return False
        self.node_starts += 1
        self._starts[branch.node] += 1
        return True

    def _scope(self, branch: Branch) -> dict[str, Any]:
        """The namespaces as they are now, for a node that starts now."""
        return {
            **self._fixed,
            "outputs": dict(self.outputs),
            "loop": self._chooser.loops,
            "input": branch.input,
        }

    def _take_in(self, report: _Report) -> bool:
        """Take in how a node ended, and go on from there; False if the run has failed."""
        branch, error = report.branch, report.error
        if error is None:
            node = self.flow.nodes[branch.node]
            self.outputs[branch.node] = report.output
            try:
                context = {**self._fixed, "outputs": self.outputs}
                self._scheduler.leave(branch, self._chooser.choose(node, branch.input, context))
            except NodeError as caught:
                error = caught
        if error is not None and not self._scheduler.fail(branch):
            self.failure = error
            return False
        return True

    def _record_start(self, branch: Branch) -> None:
        # Here and not in the node's task, whose first step comes in any order. A task that was started takes that
        # step whatever happens, so each record of a start is followed by one of an end.
        started = NodeStarted(kind=self.flow.nodes[branch.node].kind.value, iteration=self._starts[branch.node])
        self.events.emit(started, node_id=branch.node)

    async def _run_node(
        self, branch: Branch, scope: Mapping[str, Any], reports: trio.MemorySendChannel[_Report]
    ) -> None:
        node = self.flow.nodes[branch.node]
        began = trio.current_time()
        status, exit_code, problem = "cancelled", None, None
        try:
            exit_code, output = await self._execute(node, scope)
            status = "ok"
            reports.send_nowait(_Report(branch=branch, output=output))
        except NodeError as error:
            status, exit_code, problem = "failed", error.command_exit_code, error.message
            reports.send_nowait(_Report(branch=branch, error=error))
        except Exception as error:
            status, problem = "failed", f"{type(error).__name__}: {error}"
            raise
        finally:
            finished = NodeFinished(
                status=status,
                exit_code=exit_code,
                duration_ms=int((trio.current_time() - began) * 1000),
                error=problem,
            )
            self.events.emit(finished, node_id=node.name)

    async def _execute(self, node: Node, scope: Mapping[str, Any]) -> tuple[int | None, Mapping[str, JsonValue]]:
        """Run one node; the exit code of its command, if it has one, and its output."""
        schema = self.flow.schemas.get(node.input) if node.input is not None else None
        for problem in schema_problems(schema, scope["input"], partial=True) if schema is not None else ():
            raise NodeError(node.name, f"its input does not fit {node.input!r}: {problem}", node.where("input"))
        match node:
            case ToolNode():
                return await self._run_tool(node, scope)
            case ComputeNode():
                return None, self._compute(node, scope)
            case _:  # a router hands on what it gets
                return None, scope["input"]

    async def _run_tool(self, node: ToolNode, scope: Mapping[str, Any]) -> tuple[int, Mapping[str, JsonValue]]:
        try:
            command = render_tool(node, scope)
        except TemplateError as error:
            raise NodeError(node.name, error.message, error.position or node.position) from None
        result = await self.executor.run_tool(
            node.name, command.argv, stdin=command.stdin, env=command.environment, node=node
        )
        if result.exit_code != 0:
            tail = result.stderr_tail.strip()[-self.limits.max_error_chars :]
            message = f"exit code {result.exit_code}" + (f"\n{tail}" if tail else ", and nothing on stderr")
            raise NodeError(node.name, message, node.position, command_exit_code=result.exit_code)
        schema = self.flow.schemas.get(node.output) if node.output is not None else None
        try:
            return 0, read_output(result.stdout, schema, truncated=result.truncated)
        except ValueProblem as problem:
            where = node.where("output")
            raise NodeError(node.name, str(problem), where, command_exit_code=0) from None

    def _compute(self, node: ComputeNode, scope: Mapping[str, Any]) -> Mapping[str, JsonValue]:
        values: dict[str, JsonValue] = {}
        for computed in node.expr:
            try:
                values[computed.name] = evaluate(computed.expression, scope)
            except ExpressionError as error:
                where = computed.position.inside(computed.text, error.offset)
                raise NodeError(node.name, f"{computed.name}: {error.message}", where) from None
        schema = self.flow.schemas.get(node.output) if node.output is not None else None
        for problem in schema_problems(schema, values) if schema is not None else ():
            raise NodeError(node.name, f"its output does not fit {node.output!r}: {problem}", node.where("output"))
        return values
