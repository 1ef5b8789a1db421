"""The driver that isolates nothing: commands run on the host, with its files, its network and its environment.

It exists so that a run without a sandbox goes through the same code, with the same streams, exit statuses and kills.
Its init is a plain child process, started by the first command: a run that executes nothing costs nothing.
"""

import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType

import trio

from drivers.base import Capabilities, DriverError, RunInfo
from drivers.init_client import InitClient
from drivers.init_sandbox import InitSandbox
from drivers.init_session import INIT_PATH, InitSession, init_arguments, run_init
from drivers.spawn import SandboxRoot
from drivers.spec import SandboxSpec


class NoopDriver:
    """Runs commands on the host; see `drivers.base.Driver`."""

    name = "noop"
    capabilities = Capabilities(
        isolates=False,
        enforces_egress=False,
        images=False,
        build=False,
        mounts=False,
        remote_user=False,
        post_create=True,
    )

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        """Make it.

        :param environ: what commands inherit; the environment of this process by default.
        """
        self._environ = environ

    def availability(self) -> str | None:
        """It runs wherever init does."""
        return None if sys.platform == "linux" else "the noop driver needs Linux"

    def check(self, spec: SandboxSpec) -> None:
        """Accept everything: whoever chose to have no isolation has said so, and limits of it mean nothing."""

    @asynccontextmanager
    async def start(self, spec: SandboxSpec, info: RunInfo) -> AsyncIterator[InitSandbox]:
        """Start nothing yet; see `drivers.base.Driver.start`."""
        if not info.workspace.is_dir():
            raise DriverError(f"the workspace {info.workspace} is not a directory; create it")
        failure: BaseException | None = None
        try:
            async with trio.open_nursery() as nursery:
                lazy = _LazyInit(nursery)
                sandbox = InitSandbox(
                    driver=self.name,
                    workspace=str(info.workspace),
                    environment={**(os.environ if self._environ is None else self._environ), **spec.env},
                    connect=lazy.connect,
                    wait_lost=lazy.wait_lost,
                    isolated=False,
                    listeners=MappingProxyType({}),
                )
                try:
                    yield sandbox
                except BaseException as error:
                    failure = error
                lazy.holding.cancel()
        finally:
            if failure is not None:
                raise failure


class _LazyInit:
    """An init that is started by the first who needs it, and ends with the nursery."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self.holding = trio.CancelScope(shield=True)  # until the block has ended, and no later
        self._lock = trio.Lock()
        self._started = trio.Event()
        self._session: InitSession | None = None

    async def connect(self) -> InitClient:
        async with self._lock:
            if self._session is None:
                self._session = await self._nursery.start(self._hold)
                self._started.set()
        return self._session.client

    async def wait_lost(self) -> str:
        await self._started.wait()
        assert self._session is not None
        return await self._session.wait_lost()

    async def _hold(self, task_status: trio.TaskStatus[InitSession]) -> None:
        async with run_init(_spawn) as session:
            task_status.started(session)
            # If `start` was cancelled just now, it waits for us to end, and the shield would make that wait endless.
            await trio.lowlevel.checkpoint_if_cancelled()
            with self.holding:
                await trio.sleep_forever()


def _spawn(control_fd: int) -> SandboxRoot:
    argv = init_arguments(sys.executable, str(INIT_PATH), control_fd, host=True)
    try:
        return SandboxRoot(argv, os.environ, [control_fd], "/")
    except OSError as error:
        raise DriverError(f"cannot start {sys.executable}: {error}") from error
