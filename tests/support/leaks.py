"""What a test may leave behind: child processes, descriptors of our own, temporary files, mounts, namespaces.

A snapshot is taken before a test and another after it; whatever is new in the second is a leak. Processes that
have been orphaned are found by a variable in their environment, so that a test is never blamed for what other
users of the machine do.
"""

import gc
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

MARK = "ITERION_TEST_SESSION"
SETTLE_TIMEOUT_S = 3.0
"A killed process needs a moment until it is gone."


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What existed at one moment."""

    processes: frozenset[str]
    descriptors: frozenset[str]
    files: frozenset[str]
    mounts: frozenset[str]
    namespaces: frozenset[str]

    @classmethod
    def take(cls) -> "Snapshot":
        """Look at this process, its children and the places where they put things."""
        return cls(
            processes=_processes(),
            descriptors=_descriptors(),
            files=_temporary_files(),
            mounts=_mounts(),
            namespaces=frozenset(os.listdir("/run/netns") if os.path.isdir("/run/netns") else ()),
        )

    def left_since(self, before: "Snapshot") -> list[str]:
        """Return one line for each thing that is here now and was not before."""
        left = []
        for kind in ("processes", "descriptors", "files", "mounts", "namespaces"):
            left += [f"{kind}: {thing}" for thing in sorted(getattr(self, kind) - getattr(before, kind))]
        return left


def wait_for_leaks(before: Snapshot, settle_timeout_s: float = SETTLE_TIMEOUT_S) -> list[str]:
    """Return what is left once things have settled; empty as soon as nothing is."""
    deadline = time.monotonic() + settle_timeout_s
    gc.collect()
    while (left := Snapshot.take().left_since(before)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(errors="replace").splitlines()
    except OSError:
        return []


def _mounts() -> frozenset[str]:
    """Return the mounts, without those in /sys: the kernel itself mounts tracefs there when somebody looks at it."""
    return frozenset(line for line in _lines("/proc/self/mountinfo") if not line.split()[4].startswith("/sys/"))


def _processes() -> frozenset[str]:
    """Return the living descendants of this process, and orphans that carry the session's mark."""
    mark = f"{MARK}={os.environ.get(MARK, '')}".encode()
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    marked: set[int] = set()
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        pid = int(entry)
        try:
            head, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        fields = rest.split()
        if fields[0] == "Z" and int(fields[1]) != os.getpid():
            continue  # dead; whoever is its parent now has yet to notice
        parents[pid] = int(fields[1])
        names[pid] = f"{head.partition('(')[2]} (pid {pid})"
        if mark in environment.split(b"\0") and pid != os.getpid():
            marked.add(pid)
    return frozenset(names[pid] for pid in names if pid in marked or _descends(pid, parents))


def _descends(pid: int, parents: dict[int, int]) -> bool:
    for _ in range(len(parents)):
        parent = parents.get(pid)
        if parent == os.getpid():
            return True
        if parent is None:
            return False
        pid = parent
    return False


def _descriptors() -> frozenset[str]:
    """Return our open sockets, pipes and namespace handles: what a forgotten stream or listener shows up as."""
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue
        if target.startswith(("socket:", "pipe:", "net:", "user:", "anon_inode:[pidfd]")):
            found.add(target)
    return frozenset(found)


def _temporary_files() -> frozenset[str]:
    folder = tempfile.gettempdir()
    return frozenset(f"{folder}/{name}" for name in os.listdir(folder) if not name.startswith("pytest-of-"))
