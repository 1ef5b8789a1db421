"""Which standard streams of this process a command in a sandbox gets as they are, and feeding it the others.

A file that is handed to a command is more than its bytes: through ``/proc/self/fd`` it can be opened again, for writing
where it was given for reading, from its start where it was given for appending, and a directory leads to the rest of
the disk. A terminal takes mode changes from whoever holds it. So a command gets pipes, and the bytes are moved. Only
what is a pipe already is passed on as it is: there is nothing behind it but who holds its other end.
"""

import fcntl
import os
import stat
import struct
import termios
from typing import Final

import trio

from drivers.base import Stdio

__all__ = ["choose_streams", "feed_file", "must_be_fed"]

READ_BYTES: Final = 65536


def choose_streams() -> tuple[Stdio, Stdio, Stdio]:
    """Decide how each standard stream of this process is led to a command."""
    stdin, stdout, stderr = (_choose(fd) for fd in range(3))
    if stdout is stderr is Stdio.PIPE and os.path.sameopenfile(1, 2):
        stderr = Stdio.STDOUT  # one pipe keeps the order of what goes to one place
    return stdin, stdout, stderr


def _choose(fd: int) -> Stdio:
    status = os.fstat(fd)
    if stat.S_ISFIFO(status.st_mode):
        return Stdio.INHERIT
    is_null = stat.S_ISCHR(status.st_mode) and status.st_rdev == os.stat(os.devnull).st_rdev
    return Stdio.DEVNULL if is_null or stat.S_ISDIR(status.st_mode) else Stdio.PIPE


def must_be_fed() -> bool:
    """Say whether standard input is a file or a device: what can be read but not waited for."""
    mode = os.fstat(0).st_mode
    return stat.S_ISREG(mode) or stat.S_ISBLK(mode) or (stat.S_ISCHR(mode) and not os.isatty(0))


async def feed_file(pipe: trio.abc.SendStream) -> None:
    """Write the file at standard input to a command, and close the pipe.

    Args:
        pipe: a pipe of ours.

    What the command does not read is given back to the file: whoever reads it next goes on there. Cancellation does
    the same.
    """
    assert isinstance(pipe, trio.lowlevel.FdStream)
    left = memoryview(b"")
    try:
        while left := memoryview(await trio.to_thread.run_sync(os.read, 0, READ_BYTES, abandon_on_cancel=True)):
            while left:
                try:
                    left = left[os.write(pipe.fileno(), left) :]
                    await trio.lowlevel.checkpoint()
                except BlockingIOError:
                    await trio.lowlevel.wait_writable(pipe.fileno())
    except (OSError, trio.ClosedResourceError):
        pass  # the command does not read it to the end, which is its right; or it cannot be read, which is its end
    finally:
        _give_back(pipe, len(left))
        await pipe.aclose()


def _give_back(pipe: trio.lowlevel.FdStream, unsent: int) -> None:
    """Put the file back to the first byte that the command has not read."""
    try:
        unread = struct.unpack("=i", fcntl.ioctl(pipe.fileno(), termios.FIONREAD, bytes(4)))[0]
        if unsent + unread and stat.S_ISREG(os.fstat(0).st_mode):
            os.lseek(0, -unsent - unread, os.SEEK_CUR)
    except (OSError, trio.ClosedResourceError):
        pass  # the pipe is closed on the way out, before it could be asked
