"""Under which other paths this host shows the same files, because a file system is mounted more than once.

A home may be a bind mount of `/data/home/jo`, a disk may be mounted whole beside its parts, and every one of those
paths leads to the same keys. realpath(3) sees through links but not through mounts. proc_pid_mountinfo(5) has them all.
"""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ESCAPE = re.compile(rb"\\([0-7]{3})")
"""How a space, a tab, a line break and a backslash are written in the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MountPoint:
    """One mount."""

    device: bytes
    root: str
    "The directory of the file system that is shown."
    point: str
    "Where it is shown."


@dataclass(frozen=True, slots=True, kw_only=True)
class MountTable:
    """The mounts of this host that show a part of a file system which another one shows too."""

    shared: tuple[MountPoint, ...] = ()
    points: frozenset[str] = frozenset({"/"})
    "Where anything is mounted."

    def spellings(self, path: str) -> tuple[str, ...]:
        """Every path that leads to what is at `path`, a real path; itself first."""
        if not self.shared:
            return (path,)
        point = next(parent for parent in _upwards(path) if parent in self.points)
        found = [path]
        for mount in self.shared:
            if mount.point == point:
                inner = _join(mount.root, path[len(point.rstrip("/")) :])
                found += [other for other in self._elsewhere(mount.device, inner) if _is_same(other, path)]
        return tuple(dict.fromkeys(found))

    def _elsewhere(self, device: bytes, inner: str) -> Iterator[str]:
        for mount in self.shared:
            if mount.device == device and (inner + "/").startswith(mount.root.rstrip("/") + "/"):
                yield _join(mount.point, inner[len(mount.root.rstrip("/")) :])


def read_mount_table(table: str = "/proc/self/mountinfo") -> MountTable:
    """Read the mounts of this process's mount namespace; an unreadable table counts as empty."""
    try:
        lines = Path(table).read_bytes().split(b"\n")
    except OSError:
        return MountTable()
    mounts = [mount for line in lines if (mount := _parse(line)) is not None]
    devices = [mount.device for mount in mounts]
    return MountTable(
        shared=tuple(mount for mount in mounts if devices.count(mount.device) > 1),
        points=frozenset({"/", *(mount.point for mount in mounts)}),
    )


def _parse(line: bytes) -> MountPoint | None:
    fields = line.split(b" ")
    if len(fields) < 6:
        return None
    root, point = (os.fsdecode(ESCAPE.sub(lambda match: bytes([int(match[1], 8)]), text)) for text in fields[3:5])
    return MountPoint(device=fields[2], root=root, point=point)


def _upwards(path: str) -> Iterable[str]:
    yield path
    while path != "/":
        path = os.path.dirname(path)
        yield path


def _join(directory: str, rest: str) -> str:
    return (directory.rstrip("/") + rest).rstrip("/") or "/"


def _is_same(path: str, other: str) -> bool:
    """Whether both lead to one file: what the table says may be hidden by a later mount."""
    try:
        return os.path.samestat(os.lstat(path), os.lstat(other))
    except OSError:
        return False
