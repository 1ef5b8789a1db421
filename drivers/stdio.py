"""The standard streams of a command, as trio streams on our side and plain descriptors on its side."""

import errno
import fcntl
import os
import struct
import termios
from dataclasses import dataclass, field

import trio

from drivers.base import Stdio, TerminalSize


class TerminalOutput(trio.abc.ReceiveStream):
    """The output side of a pseudo-terminal. Its end is an error of the kernel's, which becomes a plain EOF here."""

    def __init__(self, fd: int) -> None:
        self._stream = trio.lowlevel.FdStream(fd)

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Receive what the command wrote; empty when every process has closed the terminal."""
        try:
            return bytes(await self._stream.receive_some(max_bytes))
        except trio.BrokenResourceError as error:
            if isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EIO:
                return b""
            raise

    def close(self) -> None:
        """Close our side at once."""
        self._stream.close()

    async def aclose(self) -> None:
        """Close our side. When both directions are closed, the command gets SIGHUP."""
        await self._stream.aclose()


@dataclass(slots=True, kw_only=True)
class StreamSet:
    """Both ends of what a command's standard streams lead to.

    `remote` is for the command and is closed as soon as it has been passed on; the streams are ours.
    """

    remote: list[int] = field(default_factory=list)
    owned: list[int] = field(default_factory=list)
    "Those of `remote` that were opened here."
    stdin: trio.lowlevel.FdStream | None = None
    stdout: trio.lowlevel.FdStream | TerminalOutput | None = None
    stderr: trio.lowlevel.FdStream | None = None
    terminal: int | None = None
    "A descriptor of the terminal, for its window size."

    def close_remote(self) -> None:
        """Close the command's ends here: they are in its hands, and EOF needs the last copy gone."""
        for fd in self.owned:
            os.close(fd)
        self.owned.clear()
        self.remote.clear()

    def close(self) -> None:
        """Close everything that is still open. A task that waits on one of the streams gets ClosedResourceError."""
        self.close_remote()
        if self.terminal is not None:
            os.close(self.terminal)
            self.terminal = None
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                stream.close()


def open_streams(stdin: Stdio, stdout: Stdio, stderr: Stdio) -> StreamSet:
    """Open what the three streams ask for.

    :raises OSError: out of descriptors; everything opened so far is closed.
    """
    streams = StreamSet()
    try:
        for number, kind in enumerate((stdin, stdout, stderr)):
            if kind is Stdio.INHERIT:
                streams.remote.append(number)
            elif kind is Stdio.STDOUT:
                streams.remote.append(streams.remote[1])
            elif kind is Stdio.DEVNULL:
                _own(streams, os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC))
            else:
                _open_pipe(streams, number)
    except BaseException:
        streams.close()
        raise
    return streams


def _own(streams: StreamSet, fd: int) -> None:
    streams.remote.append(fd)
    streams.owned.append(fd)


def _open_pipe(streams: StreamSet, number: int) -> None:
    receiver, sender = os.pipe2(os.O_CLOEXEC)
    _own(streams, receiver if number == 0 else sender)
    ours = trio.lowlevel.FdStream(sender if number == 0 else receiver)
    if number == 0:
        streams.stdin = ours
    elif number == 1:
        streams.stdout = ours
    else:
        streams.stderr = ours


def open_terminal(size: TerminalSize) -> StreamSet:
    """Make a pseudo-terminal of `size`.

    :raises OSError: out of terminals or descriptors.
    """
    ours, remote = os.openpty()
    try:
        # Non-blocking belongs to the open file, which the copies share, and an FdStream restores on close what it
        # found: had the second found a blocking one, the first to close would make the other block.
        os.set_blocking(ours, False)
        set_size(ours, size)
        sender = fcntl.fcntl(ours, fcntl.F_DUPFD_CLOEXEC, 3)
        receiver = fcntl.fcntl(ours, fcntl.F_DUPFD_CLOEXEC, 3)
    except OSError:
        os.close(ours)
        os.close(remote)
        raise
    return StreamSet(
        remote=[remote],
        owned=[remote],
        stdin=trio.lowlevel.FdStream(sender),
        stdout=TerminalOutput(receiver),
        terminal=ours,
    )


def set_size(terminal: int, size: TerminalSize) -> None:
    """Set a terminal's size in cells; the foreground processes get SIGWINCH."""
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", size.rows, size.columns, 0, 0))
