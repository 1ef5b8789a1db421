"""A sandbox whose first process is `sandbox_init.py`: the trio side of its control socket.

One task, `pump`, reads the socket for as long as the sandbox lives and hands each reply to whoever waits for it.
Everybody else only sends. When the socket ends, or says something it cannot say, the sandbox is lost: every waiter,
now and later, gets SandboxLost.
"""

import array
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import trio

from drivers import control
from drivers.base import ExitStatus, ProbeTarget, SandboxLost, TerminalSize
from drivers.spawn import memory_file
from drivers.stdio import StreamSet, set_size

MAX_FDS = 8
PROBE_TIMEOUT_S = 3.0
"""How long one probe waits for an answer."""


@dataclass(slots=True, eq=False)
class PendingCommand:
    """What is known of a command that was started."""

    status: ExitStatus | None = None
    ended: trio.Event = field(default_factory=trio.Event)
    killed: trio.Event = field(default_factory=trio.Event)


class InitClient:
    """Requests to init, and its replies."""

    def __init__(self, ours: socket.socket, describe_end: Callable[[], Awaitable[str]]) -> None:
        """Talk over `ours`; `describe_end` tells, once the socket has ended, how the other side did."""
        self._describe_end = describe_end
        self._socket = trio.socket.from_stdlib_socket(ours)
        self._send_lock = trio.Lock()
        self._next_identity = 1
        self._commands: dict[int, PendingCommand] = {}
        self._answers: dict[int, trio.MemorySendChannel[control.Wrote | control.Probed]] = {}
        self.lost = trio.Event()
        self.lost_reason = ""

    async def receive_ready(self, listener_count: int) -> list[socket.socket]:
        """Wait until init runs.

        :returns: its listeners, non-blocking.
        :raises SandboxLost: it ended, or is not init; the message is what it said.
        """
        reply, fds = await self._receive()
        listeners = [socket.socket(fileno=fd) for fd in fds]
        problem = ""
        if isinstance(reply, control.Fatal):
            problem = reply.detail
        elif not isinstance(reply, control.Ready) or len(listeners) != listener_count:
            problem = "init did not introduce itself"
        if problem:
            for listener in listeners:
                listener.close()
            raise SandboxLost(problem)
        for listener in listeners:
            listener.setblocking(False)
        return listeners

    async def _receive(self) -> tuple[control.Reply | None, list[int]]:
        """The next reply, or None at the end of the socket.

        :raises SandboxLost: it was none.
        """
        try:
            data, ancillary, flags, _ = await self._socket.recvmsg(
                control.MAX_REPLY_BYTES, socket.CMSG_SPACE(4 * MAX_FDS), socket.MSG_CMSG_CLOEXEC
            )
        except OSError:
            return None, []
        fds = array.array("i")
        for level, kind, raw in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(raw[: len(raw) - len(raw) % fds.itemsize])
        try:
            if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
                raise control.ProtocolError("a message is too long")
            return (control.parse_reply(data) if data else None), fds.tolist()
        except control.ProtocolError as error:
            for fd in fds:
                os.close(fd)
            raise SandboxLost(f"its init broke the protocol: {error}") from None

    async def pump(self) -> None:
        """Hand out replies until the socket ends; then the sandbox is lost.

        Cancellation stops it: replies are then no longer handed out, and the sandbox must be ended.
        """
        try:
            while True:
                reply, fds = await self._receive()
                for fd in fds:  # only `ready` brings any
                    os.close(fd)
                if reply is None:
                    break
                self._dispatch(reply)
        except SandboxLost as error:
            self.lose(str(error))
        else:
            self.lose(await self._describe_end())

    def _dispatch(self, reply: control.Reply) -> None:
        match reply:
            case control.Exited(identity=identity, status=status):
                if (command := self._commands.get(identity)) is not None and command.status is None:
                    command.status = status
                    command.ended.set()
            case control.Killed(identity=identity):
                if (command := self._commands.get(identity)) is not None:
                    command.killed.set()
            case control.Wrote(identity=identity) | control.Probed(identity=identity):
                if (channel := self._answers.get(identity)) is not None:
                    try:
                        channel.send_nowait(reply)
                    except trio.WouldBlock:
                        raise SandboxLost("its init broke the protocol: too many answers") from None
            case _:
                raise SandboxLost("its init broke the protocol: an answer to nothing")

    def lose(self, reason: str) -> None:
        """Declare the sandbox lost: every waiter, now and later, hears of it. Only the first reason counts."""
        if self.lost.is_set():
            return
        self.lost_reason = reason
        self.lost.set()
        for command in self._commands.values():
            command.ended.set()
            command.killed.set()
        for channel in self._answers.values():
            channel.close()

    async def _send(self, data: bytes, fds: Sequence[int] = ()) -> None:
        if self.lost.is_set():
            raise SandboxLost(self.lost_reason)
        large = None
        if len(data) > control.MAX_INLINE_BYTES:
            large = memory_file(data)
        try:
            if large is not None:
                data, fds = b"big", [large, *fds]
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
            async with self._send_lock:
                await self._socket.sendmsg([data], rights)
        except OSError as error:
            raise SandboxLost(self.lost_reason or f"its control socket failed: {error}") from None
        finally:
            if large is not None:
                os.close(large)

    def open_command(self) -> tuple[int, PendingCommand]:
        """Reserve an identity for a command."""
        identity = self._take_identity()
        self._commands[identity] = PendingCommand()
        return identity, self._commands[identity]

    def close_command(self, identity: int) -> None:
        """Forget a command."""
        self._commands.pop(identity, None)

    def _take_identity(self) -> int:
        identity = self._next_identity
        self._next_identity += 1
        return identity

    async def send_exec(self, request: bytes, fds: Sequence[int]) -> None:
        """Start a command. Once sent it runs: cancellation takes effect before or not at all."""
        await self._send(request, fds)

    async def send_kill(self, identity: int) -> None:
        """Ask for the death of a command's process tree."""
        await self._send(control.encode_kill(identity))

    async def send_signal(self, identity: int, number: int) -> None:
        """Send a signal to a command."""
        await self._send(control.encode_signal(identity, number))

    async def write_file(self, path: str, data: bytes, mode: int) -> str:
        """Write a file. Returns an error text, or nothing."""
        content = memory_file(data)
        try:
            identity = self._take_identity()
            answers = await self._ask(identity, control.encode_write(identity, path, mode), 1, [content])
        finally:
            os.close(content)
        return "".join(answer.error for answer in answers if isinstance(answer, control.Wrote))

    async def probe(self, targets: Sequence[ProbeTarget]) -> dict[int, control.Probed]:
        """Try ways out. Returns the answers by the target's position."""
        identity = self._take_identity()
        request = control.encode_probe(identity, PROBE_TIMEOUT_S, targets)
        answers = await self._ask(identity, request, len(targets))
        return {answer.index: answer for answer in answers if isinstance(answer, control.Probed)}

    async def _ask(
        self, identity: int, request: bytes, count: int, fds: Sequence[int] = ()
    ) -> list[control.Wrote | control.Probed]:
        """Send a request and wait for `count` answers."""
        sender, receiver = trio.open_memory_channel[control.Wrote | control.Probed](count)
        self._answers[identity] = sender
        try:
            await self._send(request, fds)
            return [await receiver.receive() for _ in range(count)]
        except trio.EndOfChannel:
            raise SandboxLost(self.lost_reason) from None
        finally:
            del self._answers[identity]
            sender.close()
            receiver.close()

    def close(self) -> None:
        """End the conversation, and with it the sandbox."""
        self._socket.close()


class InitProcess:
    """A command started by init; see `drivers.base.SandboxProcess`."""

    def __init__(self, client: InitClient, identity: int, command: PendingCommand, streams: StreamSet) -> None:
        self._client = client
        self._identity = identity
        self._command = command
        self._streams = streams
        self.stdin: trio.abc.SendStream | None = streams.stdin
        self.stdout: trio.abc.ReceiveStream | None = streams.stdout
        self.stderr: trio.abc.ReceiveStream | None = streams.stderr

    async def wait(self) -> ExitStatus:
        """Wait for the command itself to end."""
        await self._command.ended.wait()
        if self._command.status is None:
            raise SandboxLost(self._client.lost_reason)
        return self._command.status

    async def kill(self) -> None:
        """Kill the command and everything it started."""
        await self._client.send_kill(self._identity)
        await self._command.killed.wait()
        if self._client.lost.is_set():
            raise SandboxLost(self._client.lost_reason)

    async def send_signal(self, signal_number: int) -> None:
        """Send a signal to the command alone."""
        if self._command.status is None:
            await self._client.send_signal(self._identity, signal_number)

    async def resize(self, size: TerminalSize) -> None:
        """Tell a command on a terminal that its window changed."""
        await trio.lowlevel.checkpoint()
        if self._streams.terminal is not None:
            set_size(self._streams.terminal, size)
