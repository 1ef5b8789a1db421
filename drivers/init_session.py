"""The life of one init process: spawned, greeted, pumped, and ended in every case."""

import importlib.machinery
import importlib.util
import marshal
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import trio

from drivers.base import DriverError, SandboxLost
from drivers.init_client import InitClient
from drivers.spawn import SandboxRoot, control_pair

INIT_PATH = Path(__file__).with_name("sandbox_init.py")
START_TIMEOUT_S = 30.0
"""How long a loaded machine may take to bring init up; normally it is 30 ms."""
END_TIMEOUT_S = 10.0
"""How long init may take to end after its socket was closed, before it is killed."""
AUTOPSY_TIMEOUT_S = 2.0
"""How long a lost sandbox may take to leave its exit status."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class InitSession:
    """A running init."""

    client: InitClient
    root: SandboxRoot
    listeners: tuple[socket.socket, ...]

    async def wait_lost(self) -> str:
        """Wait until it dies by itself. Returns how."""
        await self.client.lost.wait()
        return self.client.lost_reason


@asynccontextmanager
async def run_init(spawn: Callable[[int], SandboxRoot], *, listener_count: int = 0) -> AsyncIterator[InitSession]:
    """Run an init for as long as the block.

    :param spawn: given the number of init's end of the control socket, which it must let the child inherit.
    :param listener_count: how many listeners init must hand out.
    :raises DriverError: it does not come up; the message is what it, or what should have started it, said.

    Leaving the block ends it and waits until it is gone, shielded and for END_TIMEOUT_S at most before it is killed.
    """
    ours, theirs = control_pair()
    try:
        with theirs:
            root = spawn(theirs.fileno())
    except BaseException:
        ours.close()
        raise
    client = InitClient(ours, lambda: _autopsy(root))
    listeners: list[socket.socket] = []
    failure: BaseException | None = None
    try:
        try:
            listeners = await _greet(client, root, listener_count)
            # The pump is shielded: when everything is cancelled, commands are still killed, and hear of it.
            pumping = trio.CancelScope(shield=True)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_pump, client, root, pumping)
                # What the block raises goes round the nursery, which would wrap it into a group.
                try:
                    yield InitSession(client=client, root=root, listeners=tuple(listeners))
                except BaseException as error:
                    failure = error
                pumping.cancel()
        finally:
            for listener in listeners:
                listener.close()
            await _end(client, root)
    finally:
        if failure is not None:
            raise failure


async def _pump(client: InitClient, root: SandboxRoot, scope: trio.CancelScope) -> None:
    with scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.pump)
            # Without a PID namespace, keepers outlive a killed init for a moment and keep its socket open.
            await root.wait()
            client.lose(root.describe_end())
            nursery.cancel_scope.cancel()


async def _greet(client: InitClient, root: SandboxRoot, listener_count: int) -> list[socket.socket]:
    try:
        with trio.fail_after(START_TIMEOUT_S):
            return await client.receive_ready(listener_count)
    except trio.TooSlowError:
        raise DriverError(f"the sandbox did not start within {START_TIMEOUT_S:.0f} s; {root.stderr_tail()}") from None
    except SandboxLost as error:
        raise DriverError(f"{error} ({await _autopsy(root)})") from None


async def _autopsy(root: SandboxRoot) -> str:
    with trio.move_on_after(AUTOPSY_TIMEOUT_S):
        await root.wait()
    return root.describe_end()


async def _end(client: InitClient, root: SandboxRoot) -> None:
    """Close the socket, which ends init and all it started; kill it if that takes too long."""
    client.close()
    with trio.CancelScope(shield=True):
        with trio.move_on_after(END_TIMEOUT_S):
            await root.wait()
            root.close()
            return
        root.kill()
        with trio.move_on_after(END_TIMEOUT_S), suppress(ProcessLookupError):
            await root.wait()
        root.close()


def init_bytecode() -> bytes:
    """Init as a file of bytecode for this interpreter, which saves init a third of its start: it is one long script.

    It comes from the cache beside the source if that is current, as with every import.
    """
    code = importlib.machinery.SourceFileLoader("drivers.sandbox_init", str(INIT_PATH)).get_code("drivers.sandbox_init")
    return importlib.util.MAGIC_NUMBER + bytes(12) + marshal.dumps(code)  # a script's time and size are not checked


def init_arguments(python: str, script: str, control_fd: int, ports: Sequence[int] = (), *, host: bool) -> list[str]:
    """The command line of an init.

    :param ports: TCP ports on 127.0.0.1 to listen on.
    :param host: without a PID namespace, so that it must kill its descendants itself.
    """
    listen = [text for port in ports for text in ("--listen", str(port))]
    return [python, "-I", "-S", script, "--control", str(control_fd), *listen, *(["--host"] if host else [])]
