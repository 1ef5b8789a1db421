"""One sandbox together with its egress: what a run, or a node with a sandbox of its own, executes in.

Order matters. The sandbox is started first, because the proxy's listener is born inside its network namespace
and handed out; the proxy serves it before the first command; the probe then proves from inside that there is no
other way out; only then does ``post_create`` run. At the end the sandbox goes first, so that no client is left,
and the proxy drains afterwards.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from drivers.base import (
    Driver,
    ProbeResult,
    RunInfo,
    Sandbox,
    SandboxLost,
    SandboxProcess,
    Stdio,
    TerminalSize,
)
from drivers.spec import SandboxSpec
from gateway import events as record
from gateway.command import LineSplitter, run_to_end
from gateway.egress.stats import Stats
from gateway.errors import ConfigError, RunFailed, error_leaves
from gateway.event_log import EventLog
from policy.rules import Mode

if TYPE_CHECKING:
    from gateway.egress.limits import Limits

__all__ = ["RunContext", "SandboxPlan", "SandboxSession", "open_sandbox"]

POST_CREATE_TIMEOUT_S: Final = 1800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxPlan:
    """A sandbox that was decided on: the resolved spec, the driver, and why."""

    spec: SandboxSpec
    driver: Driver
    mode: str
    source: str
    host_state_source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """What every sandbox of a run shares."""

    run_id: str
    run_name: str
    workspace: Path
    writable: tuple[Path, ...] = ()
    scratch: Path
    hidden: tuple[Path, ...]
    "Directories that no sandbox sees, wherever they lie: the records of all runs, the worktrees of other runs."
    events: EventLog
    notify: Callable[[str], None]
    "Shows one line to the person who started the run."
    limits: "Limits | None" = None
    "Of the proxy; None for the usual ones."
    egress_stats: list[Stats] = field(default_factory=list)
    "The counts of every egress server of the run, for its summary."


class SandboxSession:
    """A sandbox that is ready for commands. Ends with the block of `open_sandbox`."""

    def __init__(self, sandbox: Sandbox, environment: Mapping[str, str]) -> None:
        self.sandbox: Final = sandbox
        self.environment: Final = environment

    def exec(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        stdin: Stdio = Stdio.DEVNULL,
        stdout: Stdio = Stdio.PIPE,
        stderr: Stdio = Stdio.PIPE,
        terminal: bool = False,
        terminal_size: TerminalSize | None = None,
    ) -> AbstractAsyncContextManager[SandboxProcess]:
        """Run one command with the proxy's variables added; arguments and errors are those of `Sandbox.exec`."""
        return self.sandbox.exec(
            argv,
            env={**self.environment, **(env or {})},
            cwd=cwd,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            terminal=terminal,
            terminal_size=terminal_size,
        )


@asynccontextmanager
async def open_sandbox(
    plan: SandboxPlan, context: RunContext, *, node_id: str | None = None
) -> AsyncIterator[SandboxSession]:
    """Start a sandbox with its egress and make it ready for commands.

    Args:
        plan: what was resolved.
        context: the run it belongs to.
        node_id: the node that has this sandbox for itself, for the record.

    Raises:
        DriverError: it cannot be started, or not as the spec demands.
        SandboxLost: it died; raised out of the block, whatever the block was doing.
        ConfigError, PolicyError: the network block cannot be honoured.
        RunFailed: ``post_create`` failed, or egress is not enforced.

    Cancellation, like every other way out, ends the sandbox and then the proxy; nothing of either is left.
    """
    spec, driver = plan.spec, plan.driver
    driver.check(spec)
    network = spec.network
    if network.tls == "inspect":
        raise ConfigError(
            "network.tls: inspect is not available in this version",
            cure="write `tls: passthrough`, or leave it out",
        )
    proxied = network.effective_mode is not Mode.OPEN
    enforced = proxied and network.enforcement == "enforced"
    if enforced and not driver.capabilities.enforces_egress:
        raise RunFailed(
            f"the {driver.name} driver cannot enforce the network policy",
            cure="use a driver that isolates the network (--driver bubblewrap), "
            "or accept advice only with `enforcement: cooperative`",
        )
    info = RunInfo(
        run_id=context.run_id,
        run_name=context.run_name,
        workspace=context.workspace,
        writable=context.writable,
        scratch=context.scratch,
        hidden=context.hidden,
        network="isolated" if enforced else "host",
    )
    async with AsyncExitStack() as stack:
        nursery = await stack.enter_async_context(trio.open_nursery())
        stack.callback(nursery.cancel_scope.cancel)  # runs before the nursery waits: the proxy drains
        if proxied:
            nursery.start_soon(_import_proxy)
        sandbox = await stack.enter_async_context(_record_removal(driver, spec, info, context, node_id))
        environment: Mapping[str, str] = {}
        if proxied:
            from gateway import sandbox_proxy  # see _import_proxy

            server = sandbox_proxy.make_server(network, context.events, context.notify, context.limits, node_id=node_id)
            context.egress_stats.append(server.stats)
            environment = await sandbox_proxy.serve_sandbox(server, sandbox, nursery, enforced=enforced)
        _record_start(plan, sandbox, context, node_id, proxied=proxied, enforced=enforced)
        session = SandboxSession(sandbox, environment)
        async with _supervision(sandbox, context.events, node_id):
            if enforced:
                await _verify_egress(sandbox, context.events, node_id)
                await sandbox_proxy.write_ssh_connect(sandbox)
            if spec.post_create is not None:
                await _post_create(session, spec.post_create, context)
            yield session


async def _import_proxy() -> None:
    """Import the proxy. It takes as long as a sandbox takes to start, which is then another processor's work."""
    from gateway import sandbox_proxy  # noqa: F401


@asynccontextmanager
async def _record_removal(
    driver: Driver, spec: SandboxSpec, info: RunInfo, context: RunContext, node_id: str | None
) -> AsyncIterator[Sandbox]:
    """Start the sandbox, and record its end once it is really gone."""
    ended = 0.0
    clean = False
    started = False
    try:
        async with driver.start(spec, info) as sandbox:
            started = True
            try:
                yield sandbox
            finally:
                ended = trio.current_time()
        clean = True
    except BaseException as error:
        # A failure of the block is not a failure of the clean-up; only the driver's own words are.
        clean = not isinstance(error, SandboxLost)
        raise
    finally:
        if started:
            context.events.emit(
                record.SandboxRemoved(driver=driver.name, clean=clean, duration_ms=_milliseconds_since(ended)),
                node_id=node_id,
            )


def _record_start(
    plan: SandboxPlan,
    sandbox: Sandbox,
    context: RunContext,
    node_id: str | None,
    *,
    proxied: bool,
    enforced: bool,
) -> None:
    spec, driver, events = plan.spec, plan.driver, context.events
    if not driver.capabilities.isolates:
        reason = "commands run on this host with its credentials and files: nothing is isolated"
        events.emit(
            record.SandboxSkipped(driver=driver.name, mode=plan.mode, source=plan.source, reason=reason),
            node_id=node_id,
        )
        context.notify(f"WARNING: no sandbox ({driver.name} driver): {reason}")
    else:
        events.emit(
            record.SandboxStarted(
                driver=driver.name,
                mode=plan.mode,
                source=plan.source,
                image=spec.image or "",
                has_post_create=spec.post_create is not None,
                enforcement="enforced" if enforced else "cooperative" if proxied else "open",
                user=spec.user or "",
                workspace_folder=sandbox.workspace,
            ),
            node_id=node_id,
        )
        events.emit(
            record.SandboxHostStateMounted(
                enabled=spec.host_state == "auto",
                source=plan.host_state_source,
                workspace_folder=sandbox.workspace,
                mounts=tuple(sandbox.host_state_mounts),
            ),
            node_id=node_id,
        )
    if proxied and not enforced:
        reason = "the proxy is advice: a program that ignores HTTPS_PROXY goes round it"
        events.emit(
            record.SandboxEgressUnenforced(driver=driver.name, enforcement=spec.network.enforcement, reason=reason),
            node_id=node_id,
        )
        context.notify(f"WARNING: network policy is not enforced: {reason}")


@asynccontextmanager
async def _supervision(sandbox: Sandbox, events: EventLog, node_id: str | None) -> AsyncIterator[None]:
    """End the block as soon as the sandbox dies by itself, and record that, whoever notices it first."""
    loss: SandboxLost | None = None

    def record_loss(description: str) -> SandboxLost:
        nonlocal loss
        if loss is None:
            loss = SandboxLost(f"the {sandbox.driver} sandbox died: {description}")
            events.emit(record.SandboxLost(driver=sandbox.driver, error=description), node_id=node_id)
        return loss

    async def supervise() -> None:
        raise record_loss(await sandbox.wait_lost())

    try:
        async with trio.open_nursery() as users:
            users.start_soon(supervise)
            yield
            users.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        # A command that is just being started meets the death before the supervisor hears of it.
        leaves = list(error_leaves(group))
        lost = [error for error in leaves if isinstance(error, SandboxLost)]
        if lost:
            said = record_loss(str(lost[0]))
            if len(lost) == len(leaves):
                raise said from None
        raise


async def _verify_egress(sandbox: Sandbox, events: EventLog, node_id: str | None) -> None:
    began = trio.current_time()
    results: tuple[ProbeResult, ...] = await sandbox.probe_egress()
    reached = [result.target for result in results if result.reached]
    events.emit(
        record.SandboxEgressVerified(
            enforced=not reached,
            attempts=tuple(
                record.ProbeRecord(target=result.target, kind=result.kind, reached=result.reached, detail=result.detail)
                for result in results
            ),
            duration_ms=_milliseconds_since(began),
        ),
        node_id=node_id,
    )
    if reached:
        raise RunFailed(
            f"egress is not enforced: {', '.join(reached)} can be reached from inside without the proxy",
            cure="the run was stopped before its first command; "
            "write `enforcement: cooperative` only if that is what you want",
        )


async def _post_create(session: SandboxSession, command: str, context: RunContext) -> None:
    context.notify(f"post_create: {command}")
    outputs = [LineSplitter(lambda line: context.notify(f"post_create: {line}")) for _ in range(2)]
    with trio.move_on_after(POST_CREATE_TIMEOUT_S) as scope:
        status = await run_to_end(
            session.exec(["sh", "-c", command]),
            stdin=None,
            on_stdout=outputs[0].feed,
            on_stderr=outputs[1].feed,
        )
    for output in outputs:
        output.finish()
    if scope.cancelled_caught:
        raise RunFailed(
            f"post_create did not end within {POST_CREATE_TIMEOUT_S:.0f} s: {command}",
            cure="make it faster, or do the work in the image",
        )
    if status.returncode != 0:
        raise RunFailed(f"post_create ended with exit code {status.returncode}: {command}")


def _milliseconds_since(began: float) -> int:
    return int((trio.current_time() - began) * 1000)
