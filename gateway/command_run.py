"""``iterion sandbox run``: one command as one run, from its flags to its exit code."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from signal import Signals

import trio

from drivers.base import DriverError
from drivers.registry import select_driver, why_nothing_isolates
from drivers.spec import SandboxSpec
from gateway.errors import UsageError
from gateway.event_log import EventLog
from gateway.events import RunStarted
from gateway.notices import BlockedHosts, make_notify, show_summary
from gateway.policy_flags import network_from_flags
from gateway.run import conduct_run
from gateway.sandbox_session import RunContext, SandboxPlan, SandboxSession, open_sandbox
from gateway.signals import note_signals
from gateway.standard_streams import choose_streams
from gateway.store import RunDirectory, RunStore, hidden_directories, store_home
from gateway.terminal import has_terminal, join_streams, join_terminal, restore_terminal, terminal_size
from gateway.version import __version__
from gateway.workspace import working_directory

__all__ = ["CommandRequest", "reap_runs", "run_in_sandbox"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRequest:
    """What the command line says; see ``iterion sandbox run --help``."""

    command: tuple[str, ...]
    policy_file: Path | None = None
    allow: tuple[str, ...] = ()
    resolve: tuple[str, ...] = ()
    driver_name: str | None = None
    image: str | None = None
    enforcement: str | None = None
    host_state: str = "none"
    env: tuple[str, ...] = ()
    store_dir: Path | None = None
    run_id: str | None = None
    quiet: bool = False


def run_in_sandbox(request: CommandRequest) -> int:
    """Run one command in a sandbox of its own.

    Args:
        request: what the command line says.

    Returns:
        The command's exit code (128 plus the number of the signal that ended it); 130 or 143 when the run was
        interrupted; 1 when the sandbox could not be had or died; 2 for a mistake in the request.

    Raises:
        UsageError, ConfigError, PolicyError, SpecError, DriverError, StoreError: before anything was started.
    """
    spec = build_spec(request)
    driver = select_driver(request.driver_name, environ=os.environ)
    if request.driver_name is None and not driver.capabilities.isolates:
        # Whoever asks for a sandbox gets one or an error; to go without has to be said (--driver noop).
        raise DriverError(why_nothing_isolates(os.environ))
    driver.check(spec)
    workspace = working_directory()
    store = RunStore(store_home(request.store_dir, os.environ))
    store.reap_stale_runs()
    mode, source = spec.mode, "cli: iterion sandbox run"
    with (
        note_signals() as signals,
        store.create(
            run_id=request.run_id,
            command=request.command,
            workspace=str(workspace),
            sandbox={
                "mode": mode,
                "source": source,
                "driver": driver.name,
                "network_mode": spec.network.effective_mode.value,
            },
        ) as directory,
    ):
        plan = SandboxPlan(
            spec=spec, driver=driver, mode=mode, source=source, host_state_source="cli flag --host-state"
        )
        return trio.run(_conduct, request, plan, directory, workspace, signals)


def build_spec(request: CommandRequest) -> SandboxSpec:
    """Make the sandbox spec that a request describes.

    Raises:
        ConfigError: the policy file cannot be used.
        PolicyError: a rule cannot be used.
        UsageError: a flag's value cannot be used.
        SpecError: the whole cannot be honoured; one line for each problem.
    """
    network = network_from_flags(request.policy_file, request.allow)
    network = replace(network, hosts={**network.hosts, **_static_hosts(request.resolve)})
    if request.enforcement is not None:
        network = replace(network, enforcement=request.enforcement)  # type: ignore[arg-type] # a click.Choice
    spec = SandboxSpec(
        mode="inline" if request.image else "auto",
        image=request.image,
        host_state="auto" if request.host_state == "auto" else "none",
        env=_pairs(request.env, "--env", "NAME=VALUE"),
        network=network,
    )
    spec.validate()
    return spec


def reap_runs(store_dir: Path | None) -> list[str]:
    """Clean up after runs whose process is gone.

    Args:
        store_dir: where runs are kept; None for the default place.

    Returns:
        One line for each run that was cleaned up, and a last one that counts them.
    """
    reaped = RunStore(store_home(store_dir, os.environ)).reap_stale_runs()
    lines = [
        f"{run.record.run_id} ({run.record.run_name}): interrupted"
        + ("" if run.clean else f"; files remain in {run.path / 'scratch'}")
        for run in reaped
    ]
    return [*lines, f"{len(reaped)} stale run{'' if len(reaped) == 1 else 's'} cleaned up"]


async def _conduct(
    request: CommandRequest,
    plan: SandboxPlan,
    directory: RunDirectory,
    workspace: Path,
    signals: Sequence[Signals],
) -> int:
    notify = make_notify(quiet=request.quiet)
    blocked = BlockedHosts()

    async def body(events: EventLog) -> int:
        events.subscribe(blocked.see)
        context = RunContext(
            run_id=directory.run_id,
            run_name=directory.record.run_name,
            workspace=workspace,
            scratch=directory.scratch,
            hidden=hidden_directories(directory),
            events=events,
            notify=notify,
        )
        try:
            async with open_sandbox(plan, context) as session:
                return await _execute(session, request.command)
        finally:
            show_summary(notify, context.egress_stats, blocked, directory.events)

    return await conduct_run(
        directory,
        RunStarted(
            name=directory.record.run_name,
            flow=None,
            workspace=str(workspace),
            worktree=None,
            version=__version__,
        ),
        body,
        notify=notify,
        at_once=restore_terminal,
        before=signals,
    )


async def _execute(session: SandboxSession, command: tuple[str, ...]) -> int:
    if has_terminal():
        async with session.exec(command, terminal=True, terminal_size=terminal_size()) as process:
            return (await join_terminal(process)).returncode
    stdin, stdout, stderr = choose_streams()
    async with session.exec(command, stdin=stdin, stdout=stdout, stderr=stderr) as process:
        return (await join_streams(process)).returncode


def _static_hosts(items: tuple[str, ...]) -> Mapping[str, tuple[str, ...]]:
    hosts: dict[str, tuple[str, ...]] = {}
    for item in items:
        name, separator, address = item.partition("=")
        if not separator or not name or not address:
            raise UsageError(
                f"--resolve {item!r} is not HOST=ADDRESS", cure="write e.g. --resolve registry.test=10.0.0.5"
            )
        hosts[name] = (*hosts.get(name, ()), address)
    return hosts


def _pairs(items: tuple[str, ...], flag: str, form: str) -> Mapping[str, str]:
    pairs: dict[str, str] = {}
    for item in items:
        name, separator, value = item.partition("=")
        if not separator:
            raise UsageError(f"{flag} {item!r} is not {form}", cure=f"write e.g. {flag} CI=1")
        pairs[name] = value
    return pairs
