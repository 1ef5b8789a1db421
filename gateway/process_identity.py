"""Which process owns a run: enough of its identity that a reused process number is never taken for it."""

import os
import socket
from pathlib import Path

import msgspec

__all__ = ["Owner", "current_owner", "start_ticks"]

_PROC = Path("/proc")

# proc_pid_stat(5): field 22 is the start time in clock ticks since boot; the split below starts at field 3.
_START_FIELD = 22 - 3


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """One process, on one boot of one host. ``start`` counts clock ticks since that boot."""

    host: str
    pid: int
    start: int
    boot_id: str

    def is_alive(self, *, host: str | None = None, proc: Path = _PROC) -> bool:
        """Tell whether exactly this process runs here.

        Args:
            host: the name of this host, if it is not the one the system tells.
            proc: where the process file system is mounted.

        Returns:
            False on another host or boot, or when the number belongs to a younger process.
        """
        if self.host != (host or socket.gethostname()) or self.boot_id != boot_id():
            return False
        return start_ticks(self.pid, proc=proc) == self.start


def boot_id(*, proc: Path = _PROC) -> str:
    """Return the kernel's random identifier of this boot, or an empty string where there is none."""
    try:
        return (proc / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def start_ticks(pid: int, *, proc: Path = _PROC) -> int | None:
    """Return when a process started, in clock ticks since boot; None if there is no such process.

    The command name in field 2 may hold spaces and parentheses, so the fields are counted from the last one
    (proc_pid_stat(5)).
    """
    try:
        text = (proc / str(pid) / "stat").read_text(errors="replace")
        return int(text.rpartition(")")[2].split()[_START_FIELD])
    except (OSError, ValueError, IndexError):
        return None


def current_owner() -> Owner:
    """Return the identity of this process."""
    pid = os.getpid()
    return Owner(host=socket.gethostname(), pid=pid, start=start_ticks(pid) or 0, boot_id=boot_id())
