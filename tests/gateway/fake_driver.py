"""A driver whose sandbox is this very process: its commands are coroutines, its listeners are on our own loopback.

It keeps the contract of `drivers.base` as far as a run can see it, and says what it was asked for.
"""

import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio
import trio.testing

from drivers.base import (
    PROBE_TARGETS,
    Capabilities,
    ExitStatus,
    ProbeResult,
    ProbeTarget,
    RunInfo,
    SandboxLost,
    Stdio,
    TerminalSize,
)
from drivers.spec import SandboxSpec

Program = Callable[[Mapping[str, str]], Awaitable[int]]
"Given its environment; returns its exit code."


@dataclass(eq=False, kw_only=True)
class FakeProcess:
    """A coroutine that runs as a command."""

    stdin: trio.abc.SendStream | None = None
    stdout: trio.abc.ReceiveStream | None = None
    stderr: trio.abc.ReceiveStream | None = None
    status: ExitStatus | None = None
    ended: trio.Event = field(default_factory=trio.Event)
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)

    async def wait(self) -> ExitStatus:
        await self.ended.wait()
        if self.status is None:
            raise SandboxLost("the fake sandbox is lost")
        return self.status

    async def kill(self) -> None:
        self.scope.cancel()
        await self.ended.wait()

    async def send_signal(self, signal_number: int) -> None:
        await self.kill()

    async def resize(self, size: TerminalSize) -> None:
        await trio.lowlevel.checkpoint()


class FakeSandbox:
    """Runs the driver's program for each command."""

    driver = "fake"
    workspace = "/workspace"
    host_state_mounts = ()

    def __init__(self, driver: "FakeDriver", listener: socket.socket) -> None:
        self._driver = driver
        self.listeners: Mapping[str, socket.socket] = {"proxy": listener}
        self.proxy_endpoint: tuple[str, int] = listener.getsockname()
        self.lost = trio.Event()

    @asynccontextmanager
    async def exec(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | None = None,
        stdin: Stdio = Stdio.DEVNULL,
        stdout: Stdio = Stdio.PIPE,
        stderr: Stdio = Stdio.PIPE,
        terminal: bool = False,
        terminal_size: TerminalSize | None = None,
    ) -> AsyncIterator[FakeProcess]:
        self._driver.commands.append(tuple(argv))
        if self.lost.is_set():
            raise SandboxLost("the fake sandbox is lost")
        process = FakeProcess()
        pipes = []
        if stdout is Stdio.PIPE:
            pipe, process.stdout = trio.testing.memory_stream_one_way_pair()
            pipes.append(pipe)
        if stderr is Stdio.PIPE:
            pipe, process.stderr = trio.testing.memory_stream_one_way_pair()
            pipes.append(pipe)

        async def work() -> None:
            try:
                with process.scope:
                    process.status = ExitStatus(code=await self._driver.program(env))
                if process.scope.cancelled_caught and not self.lost.is_set():
                    process.status = ExitStatus(signal=9)
            finally:
                process.ended.set()
                for pipe in pipes:
                    pipe.close()

        async def die() -> None:
            await self.lost.wait()
            process.scope.cancel()

        await trio.lowlevel.checkpoint()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(work)
            nursery.start_soon(die)
            yield process
            nursery.cancel_scope.cancel()

    async def write_file(self, path: str, data: bytes, mode: int = 0o644) -> None:
        await trio.lowlevel.checkpoint()
        self._driver.files[path] = data

    async def probe_egress(self, targets: Sequence[ProbeTarget] = PROBE_TARGETS) -> tuple[ProbeResult, ...]:
        await trio.lowlevel.checkpoint()
        return tuple(
            ProbeResult(target=target.name, kind=target.kind, reached=self._driver.leaks, detail="")
            for target in targets
        )

    async def wait_lost(self) -> str:
        await self.lost.wait()
        return "the fake sandbox is lost"


@dataclass(eq=False, kw_only=True)
class FakeDriver:
    """Runs ``program`` as every command; ``leaks`` makes the probe find a way out."""

    program: Program
    leaks: bool = False
    name: str = "fake"
    commands: list[tuple[str, ...]] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    sandboxes: list[FakeSandbox] = field(default_factory=list)
    capabilities: Capabilities = field(
        default_factory=lambda: Capabilities(
            isolates=True,
            enforces_egress=True,
            images=False,
            build=False,
            mounts=False,
            remote_user=False,
            post_create=True,
        )
    )

    def availability(self) -> str | None:
        return None

    def check(self, spec: SandboxSpec) -> None:
        """Take everything."""

    @asynccontextmanager
    async def start(self, spec: SandboxSpec, info: RunInfo) -> AsyncIterator[FakeSandbox]:
        await trio.lowlevel.checkpoint()
        folder = info.scratch / "fake"
        folder.mkdir()
        try:
            with socket.create_server(("127.0.0.1", 0)) as listener:
                self.sandboxes.append(FakeSandbox(self, listener))
                yield self.sandboxes[-1]
        finally:
            with trio.CancelScope(shield=True):
                await trio.lowlevel.checkpoint()
            folder.rmdir()
