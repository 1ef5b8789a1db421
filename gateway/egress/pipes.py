"""Kernel pipes that bulk data is spliced through, lent out only while bytes sit in them."""

import fcntl
import os
from dataclasses import dataclass
from typing import Final

__all__ = ["Pipe", "PipePool"]


@dataclass(slots=True)
class Pipe:
    """Both ends of a pipe and how many bytes it holds."""

    read_fd: int
    write_fd: int
    size: int
    held: int = 0

    def close(self) -> None:
        """Close both ends; what the pipe holds is lost."""
        os.close(self.read_fd)
        os.close(self.write_fd)


class PipePool:
    """Lends pipes to the directions of tunnels; a direction gives its pipe back whenever it is empty.

    Args:
        size: what each pipe should hold (bytes). The kernel may grant less (pipe(7), /proc/sys/fs/pipe-*).
        limit: pipes at once, lent and spare together.
        keep: spare pipes that stay open.
    """

    def __init__(self, size: int, limit: int, keep: int = 8) -> None:
        self.size: Final = size
        self.limit: Final = limit
        self.keep: Final = keep
        self.open = 0
        self._spare: list[Pipe] = []

    def take(self) -> Pipe | None:
        """Return an empty pipe, or None where the limit or the process's descriptors are used up."""
        if self._spare:
            return self._spare.pop()
        if self.open >= self.limit:
            return None
        try:
            read_fd, write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:  # EMFILE, ENFILE: the caller copies instead
            return None
        try:
            granted = fcntl.fcntl(write_fd, fcntl.F_SETPIPE_SZ, self.size)
        except OSError:  # over the user's soft limit of pipe pages: the default size does too
            granted = fcntl.fcntl(write_fd, fcntl.F_GETPIPE_SZ)
        self.open += 1
        return Pipe(read_fd, write_fd, granted)

    def give_back(self, pipe: Pipe) -> None:
        """Take a pipe back; one that still holds bytes is closed, for they belong to nobody else."""
        if pipe.held or len(self._spare) >= self.keep:
            self.open -= 1
            pipe.close()
        else:
            self._spare.append(pipe)

    def close(self) -> None:
        """Close the spare pipes; lent ones are closed when they come back."""
        while self._spare:
            self.open -= 1
            self._spare.pop().close()
