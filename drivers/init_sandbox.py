"""`drivers.base.Sandbox` on top of an init: shared by noop and bubblewrap, which differ in where init runs."""

import posixpath
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

import trio

from drivers import control
from drivers.base import (
    MCP_PORT,
    PROBE_TARGETS,
    PROXY_PORT,
    DriverError,
    ProbeResult,
    ProbeTarget,
    SandboxLost,
    Stdio,
    TerminalSize,
)
from drivers.init_client import InitClient, InitProcess
from drivers.stdio import StreamSet, open_streams, open_terminal

LISTENER_NAMES = ("proxy", "mcp")
LISTENER_PORTS = (PROXY_PORT, MCP_PORT)
"""The listeners of a sandbox with an isolated network, in the order in which init hands them out."""
KILL_TIMEOUT_S = 10.0
"""How long leaving an `exec` block waits for the process tree to be gone."""


class InitSandbox:
    """A running sandbox; see `drivers.base.Sandbox`."""

    def __init__(
        self,
        *,
        driver: str,
        workspace: str,
        environment: Mapping[str, str],
        connect: Callable[[], Awaitable[InitClient]],
        wait_lost: Callable[[], Awaitable[str]],
        isolated: bool,
        listeners: Mapping[str, socket.socket],
        host_state_mounts: tuple[str, ...] = (),
    ) -> None:
        """Assemble it.

        :param environment: what every command gets before its own variables.
        :param connect: gives the client of the running init, starting it if need be.
        :param isolated: whether the network may be probed; probing a network that works would send traffic.
        """
        self.driver = driver
        self.workspace = workspace
        self.listeners = listeners
        self.proxy_endpoint = ("127.0.0.1", PROXY_PORT)
        self.host_state_mounts = host_state_mounts
        self._environment = environment
        self._connect = connect
        self._wait_lost = wait_lost
        self._isolated = isolated

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
    ) -> AsyncIterator[InitProcess]:
        """Run one command; see `drivers.base.Sandbox.exec`."""
        client = await self._connect()
        identity, command = client.open_command()
        streams = StreamSet()
        try:
            try:
                request = control.encode_exec(
                    identity, argv, {**self._environment, **env}, self._inside(cwd or "."), terminal=terminal
                )
                if terminal:
                    streams = open_terminal(terminal_size or TerminalSize())
                else:
                    streams = open_streams(stdin, stdout, stderr)
            except (ValueError, OSError) as error:
                raise DriverError(f"cannot start a command: {error}") from None
            process = InitProcess(client, identity, command, streams)
            try:
                await client.send_exec(request, streams.remote)
                streams.close_remote()
                yield process
            finally:
                if command.status is None:
                    with trio.move_on_after(KILL_TIMEOUT_S, shield=True), suppress(SandboxLost):
                        await process.kill()
        finally:
            streams.close()
            client.close_command(identity)

    def _inside(self, path: str) -> str:
        return posixpath.join(self.workspace, path)

    async def write_file(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """Write a file inside; see `drivers.base.Sandbox.write_file`."""
        client = await self._connect()
        try:
            error = await client.write_file(self._inside(path), data, mode)
        except ValueError as problem:
            error = str(problem)
        if error:
            raise DriverError(f"cannot write {path} in the sandbox: {error}")

    async def probe_egress(self, targets: Sequence[ProbeTarget] = PROBE_TARGETS) -> tuple[ProbeResult, ...]:
        """Try each way out; see `drivers.base.Sandbox.probe_egress`."""
        if not self._isolated:
            await trio.lowlevel.checkpoint()
            detail = "not tried: the network is the host's"
            return tuple(_result(target, reached=True, detail=detail) for target in targets)
        client = await self._connect()
        answers = await client.probe(targets)
        results = []
        for index, target in enumerate(targets):
            # No answer for a target is no proof of anything, so it counts as a way out.
            answer = answers.get(index)
            results.append(
                _result(target, reached=True, detail="no result")
                if answer is None
                else _result(target, reached=answer.reached, detail=answer.detail)
            )
        return tuple(results)

    async def wait_lost(self) -> str:
        """Wait until the sandbox dies by itself; see `drivers.base.Sandbox.wait_lost`."""
        return await self._wait_lost()


def _result(target: ProbeTarget, *, reached: bool, detail: str) -> ProbeResult:
    host = f"[{target.address}]" if ":" in target.address else target.address
    return ProbeResult(target=f"{target.kind} {host}:{target.port}", kind=target.name, reached=reached, detail=detail)
