"""The file system of a sandbox as a list of layers, and the bubblewrap options that stack them.

Layers are put on top of each other in order, so what is at a path is decided by the last layer at or above it. The
list answers that question, which is how later steps find out what is still visible and has to be masked.
"""

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from drivers.host_paths import is_within


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One mount."""

    target: str
    source: str | None
    "The host's path, or None for something private and empty."


@dataclass(slots=True, kw_only=True)
class View:
    """A stack of mounts under construction. It starts as an empty, private root."""

    empty_file: str
    empty_directory: str
    "On the host; bound over what must not be seen."
    options: list[str] = field(default_factory=list)
    layers: list[Layer] = field(default_factory=lambda: [Layer(target="/", source=None)])
    seal: list[str] = field(default_factory=lambda: ["/"])
    "Private file systems that become read-only once everything is mounted."

    def _add(self, target: str, source: str | None, *options: str) -> None:
        self.options += options
        self.layers.append(Layer(target=target, source=source))

    def show(self, source: str, target: str | None = None, *, writable: bool = False) -> None:
        """Show a path of the host, at the same place by default."""
        target = target or source
        self._add(target, source, "--bind" if writable else "--ro-bind", source, target)

    def show_if_there(self, source: str) -> None:
        """Show a path read-only that may vanish before it is mounted."""
        self._add(source, source, "--ro-bind-try", source, source)

    def private(self, target: str, mode: int = 0o755, *, sealed: bool = False) -> None:
        """Put an empty private directory somewhere."""
        self._add(target, None, "--perms", f"{mode:04o}", "--tmpfs", target)
        if sealed:
            self.seal.append(target)

    def mask(self, path: str, *, directory: bool) -> None:
        """Hide what is at `path`, which must exist inside, behind something empty and read-only."""
        source = self.empty_directory if directory else self.empty_file
        self._add(path, None, "--ro-bind", source, path)

    def plain(self, *options: str) -> None:
        """Add options that are no layer of their own."""
        self.options += options

    def what_is_at(self, path: str) -> str | None:
        """The host's path that a sandbox sees at `path`, or None if it is private (or a file system of the kernel)."""
        for layer in reversed(self.layers):
            if is_within(path, layer.target):
                return None if layer.source is None else layer.source + path[len(layer.target) :]
        return None

    def is_visible(self, path: str) -> bool:
        """Whether the host's `path` is at the same place inside."""
        return self.what_is_at(path) == path

    def places_of(self, path: str) -> list[str]:
        """Where inside the host's `path` can be seen."""
        places = {
            (layer.target.rstrip("/") + path[len(layer.source) :])
            for layer in self.layers
            if layer.source is not None and is_within(path, layer.source)
        }
        return sorted(place for place in places if self.what_is_at(place) == path)

    def finish(self) -> list[str]:
        """The options, the last of which seal what must not be written."""
        return [*self.options, *(text for path in reversed(self.seal) for text in ("--remount-ro", path))]


def is_reachable(path: str) -> bool:
    """Whether a process of ours that has lost its privileges can look `path` up.

    bubblewrap runs in a user namespace in which only our own user and group exist. Root there has no power over what
    belongs to others, so a path that root reads on the host may be out of reach inside: then there is nothing to
    mask, and trying would fail.
    """
    if os.geteuid() != 0:
        return os.path.lexists(path)
    groups = {os.getegid(), *os.getgroups()}
    for parent in reversed(Path(path).parents):
        try:
            status = os.stat(parent)
        except OSError:
            return False
        if status.st_uid == 0:
            allowed = True  # as the owner, or with the namespace's own power over what is ours
        elif status.st_gid in groups:
            allowed = bool(status.st_mode & stat.S_IXGRP)
        else:
            allowed = bool(status.st_mode & stat.S_IXOTH)
        if not allowed:
            return False
    return os.path.lexists(path)
