"""``iterion run``: one workflow as one run, from its file to its exit code."""

import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from signal import Signals
from typing import Final

import trio

from drivers.base import Driver, RunInfo, Sandbox
from drivers.noop import NoopDriver
from drivers.registry import select_driver, why_nothing_isolates
from drivers.spec import SandboxSpec
from gateway import events as record
from gateway.egress.stats import Stats
from gateway.errors import ConfigError, UsageError
from gateway.event_log import EventLog
from gateway.flow_executor import FlowExecutor, NodePlan
from gateway.notices import BlockedHosts, make_notify, show_summary
from gateway.run import conduct_run
from gateway.sandbox_session import RunContext, SandboxPlan, SandboxSession, open_sandbox
from gateway.signals import note_signals
from gateway.store import RunDirectory, RunStore, hidden_directories, store_home
from gateway.version import __version__
from gateway.workflow.engine import check_supported, run_workflow
from gateway.workflow.language import parse_flow
from gateway.workflow.model import Flow, JsonValue, ToolNode
from gateway.workflow.resolution import (
    NodeResolution,
    Placement,
    Request,
    Resolution,
    degrade,
    resolve,
    resolve_node,
)
from gateway.workflow.variables import expand_variables, parse_assignments, resolve_variables
from gateway.workspace import working_directory
from gateway.worktree import Worktree, create_worktree, finish_worktree, in_git_repository

__all__ = ["FlowRequest", "run_flow"]

DEVCONTAINERS: Final = (".devcontainer/devcontainer.json", ".devcontainer.json")
MAX_FLOW_BYTES: Final = 16 * 1024 * 1024
SUFFIXES: Final = (".bot", ".iter")
FINISH_WORKTREE_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowRequest:
    """What the command line says; see ``iterion run --help``."""

    file: Path
    sandbox: str | None = None
    driver_name: str | None = None
    default_image: str | None = None
    host_state: str | None = None
    variables: tuple[str, ...] = ()
    preset: str | None = None
    store_dir: Path | None = None
    run_id: str | None = None
    quiet: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """Everything that is known before the run begins."""

    flow: Flow
    variables: Mapping[str, JsonValue]
    assigned: frozenset[str]
    "The variables whose value comes from the command line."
    resolution: Resolution
    nodes: Mapping[str, NodeResolution]
    driver: Driver | None
    "None when no node has a sandbox."
    notices: tuple[str, ...]


def run_flow(request: FlowRequest) -> int:
    """Run one workflow.

    Args:
        request: what the command line says.

    Returns:
        0 when it reached ``done``, 1 when it failed, 130 or 143 when it was interrupted, 2 for a mistake that only
        shows in the run.

    Raises:
        FlowError, UsageError, ConfigError, PolicyError, SpecError, DriverError, StoreError: before anything was
        started.
    """
    workspace = working_directory()
    notify = make_notify(quiet=request.quiet)
    plan = _plan(request, workspace)
    for line in plan.notices:
        notify(line)
    store = RunStore(store_home(request.store_dir, os.environ))
    store.reap_stale_runs()
    resolution = plan.resolution
    with (
        note_signals() as signals,
        store.create(
            run_id=request.run_id,
            flow=str(request.file.absolute()),
            vars=plan.variables,
            workspace=str(workspace),
            sandbox={
                "mode": resolution.mode,
                "source": resolution.source,
                "driver": plan.driver.name if plan.driver is not None else "none",
            },
        ) as directory,
    ):
        return trio.run(_conduct, plan, directory, workspace, notify, signals)


def _plan(request: FlowRequest, workspace: Path) -> _Plan:
    flow = _read(request.file)
    check_supported(flow)
    assigned = parse_assignments(request.variables)
    variables = resolve_variables(flow, assigned, preset=request.preset)
    question = Request(
        workflow=flow.workflow.sandbox,
        mode_flag=request.sandbox,
        host_state_flag=request.host_state,
        image_flag=request.default_image,
        environ=os.environ,
        workspace=str(workspace),
        in_git_repository=in_git_repository(workspace),
        devcontainer=next((name for name in DEVCONTAINERS if (workspace / name).is_file()), None),
        version=__version__,
    )
    resolution = resolve(question)
    tools = {name: node for name, node in flow.nodes.items() if isinstance(node, ToolNode)}
    nodes = {name: resolve_node(question, resolution, node.sandbox) for name, node in tools.items()}
    notices = [found.render() for found in flow.warnings]
    notices += resolution.warnings
    notices += [warning for node in nodes.values() for warning in node.warnings]
    driver: Driver | None = None
    if resolution.spec is not None or any(node.spec is not None for node in nodes.values()):
        driver = select_driver(request.driver_name, environ=os.environ)
        if request.driver_name is None and not driver.capabilities.isolates:
            reason = why_nothing_isolates(os.environ)
            for node in nodes.values():
                if node.placement is Placement.OWN and node.spec is not None:  # somebody wrote it: it never degrades
                    degrade(replace(resolution, explicit=True, source=node.source, wanted=node.spec.mode), reason)
            resolution = degrade(resolution, reason)
            nodes = {name: resolve_node(question, resolution, node.sandbox) for name, node in tools.items()}
            driver = None
        elif resolution.devcontainer is not None and not driver.capabilities.images:
            notices.append(f"{resolution.devcontainer} is not used: the {driver.name} driver runs no images")
    elif request.driver_name is not None:
        select_driver(request.driver_name, environ=os.environ)  # a name that does not exist is still a mistake
    return _Plan(
        flow=flow,
        variables=variables,
        assigned=frozenset(assigned),
        resolution=resolution,
        nodes=nodes,
        driver=driver,
        notices=tuple(dict.fromkeys(notices)),
    )


def _read(path: Path) -> Flow:
    if path.suffix not in SUFFIXES:
        raise UsageError(f"{path} is not a workflow file", cure=f"its name ends in {' or '.join(SUFFIXES)}")
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FLOW_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    if len(content) > MAX_FLOW_BYTES:
        raise ConfigError(
            f"{path} is over {MAX_FLOW_BYTES} bytes", cure="no workflow needs that; is it the right file?"
        )
    return parse_flow(content, file=str(path))


async def _conduct(
    plan: _Plan, directory: RunDirectory, workspace: Path, notify: Callable[[str], None], signals: Sequence[Signals]
) -> int:
    async def body(events: EventLog) -> int:
        blocked = BlockedHosts()
        events.subscribe(blocked.see)
        events.subscribe(lambda event, node_id: _show_node(notify, event, node_id))
        if plan.resolution.skip_reason is not None:
            _record_skipped(plan.resolution, events, notify)
        egress_stats: list[Stats] = []
        try:
            async with _worktree(plan, directory, workspace, notify) as worktree, AsyncExitStack() as stack:
                context = RunContext(
                    run_id=directory.run_id,
                    run_name=directory.record.run_name,
                    workspace=workspace if worktree is None else worktree.workspace,
                    writable=() if worktree is None else worktree.writable,
                    scratch=directory.scratch,
                    hidden=hidden_directories(directory),
                    events=events,
                    notify=notify,
                    egress_stats=egress_stats,
                )
                session, host = await _open_places(plan, context, stack)
                await _run_nodes(plan, context, session, host, notify)
        finally:
            show_summary(notify, egress_stats, blocked, directory.events)
        return 0

    started = record.RunStarted(
        name=directory.record.run_name,
        flow=directory.record.flow,
        workspace=str(workspace),
        worktree=plan.flow.workflow.worktree,
        version=__version__,
    )
    return await conduct_run(directory, started, body, notify=notify, before=signals)


@asynccontextmanager
async def _worktree(
    plan: _Plan, directory: RunDirectory, workspace: Path, notify: Callable[[str], None]
) -> AsyncIterator[Worktree | None]:
    """Give the run a git worktree if it asks for one, and keep it afterwards if anything in it changed."""
    if plan.flow.workflow.worktree != "auto":
        yield None
        return
    worktree = await create_worktree(
        workspace, directory.worktrees / directory.run_id, name=directory.record.run_name, environ=os.environ
    )
    try:
        for warning in worktree.warnings:
            notify(f"worktree: {warning}")
        directory.update(worktree=str(worktree.path), branch=worktree.branch)
        yield worktree
    finally:
        outcome = None
        with trio.move_on_after(FINISH_WORKTREE_S, shield=True):
            outcome = await finish_worktree(worktree, environ=os.environ)
        if outcome is not None and not outcome.kept:
            directory.update(worktree=None, branch=None)
        else:
            reason = outcome.reason if outcome is not None else f"not judged within {FINISH_WORKTREE_S:.0f} s"
            notify(f"worktree: kept at {worktree.path}, branch {worktree.branch} ({reason})")


async def _open_places(
    plan: _Plan, context: RunContext, stack: AsyncExitStack
) -> tuple[SandboxSession | None, Sandbox | None]:
    placements = {node.placement for node in plan.nodes.values()}
    session = host = None
    if Placement.RUN in placements and plan.resolution.spec is not None and plan.driver is not None:
        sandbox = _sandbox_plan(plan, plan.resolution.spec, plan.resolution.source)
        session = await stack.enter_async_context(open_sandbox(sandbox, context))
    if Placement.HOST in placements:
        info = RunInfo(
            run_id=context.run_id,
            run_name=context.run_name,
            workspace=context.workspace,
            writable=context.writable,
            scratch=context.scratch,
            network="host",
        )
        host = await stack.enter_async_context(NoopDriver(os.environ).start(SandboxSpec(mode="none"), info))
    return session, host


def _sandbox_plan(plan: _Plan, spec: SandboxSpec, source: str) -> SandboxPlan:
    assert plan.driver is not None
    if spec.mode == "auto" and not plan.driver.capabilities.images:
        spec = replace(spec, image=None)  # only the fallback of drivers that run images
    return SandboxPlan(
        spec=spec,
        driver=plan.driver,
        mode=spec.mode,
        source=source,
        host_state_source=plan.resolution.host_state_source,
    )


async def _run_nodes(
    plan: _Plan,
    context: RunContext,
    session: SandboxSession | None,
    host: Sandbox | None,
    notify: Callable[[str], None],
) -> None:
    nodes = {
        name: NodePlan(
            placement=node.placement,
            plan=_sandbox_plan(plan, node.spec, node.source)
            if node.placement is Placement.OWN and node.spec is not None
            else None,
        )
        for name, node in plan.nodes.items()
    }
    executor = FlowExecutor(
        context,
        nodes,
        session=session,
        host=host,
        show=lambda node_id, line: notify(f"[{node_id}] {line}"),
    )
    project = session.sandbox.workspace if session is not None else str(context.workspace)
    environ = {**os.environ, "PROJECT_DIR": project}
    await run_workflow(
        plan.flow,
        run_id=context.run_id,
        variables=expand_variables(plan.flow, plan.variables, assigned=plan.assigned, environ=environ),
        executor=executor,
        events=context.events,
        environ=environ,
    )


def _record_skipped(resolution: Resolution, events: EventLog, notify: Callable[[str], None]) -> None:
    reason = resolution.skip_reason or ""
    events.emit(record.SandboxSkipped(driver="noop", mode=resolution.wanted, source=resolution.source, reason=reason))
    notify(f"WARNING: no sandbox, commands run on this host with its credentials and files: {reason}")


def _show_node(notify: Callable[[str], None], event: record.Event, node_id: str | None) -> None:
    if isinstance(event, record.NodeFinished):
        outcome = event.status if event.exit_code is None else f"{event.status}, exit code {event.exit_code}"
        notify(f"[{node_id}] {outcome} ({event.duration_ms / 1000:.1f} s)")
