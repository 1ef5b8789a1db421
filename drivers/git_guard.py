"""Keeping a sandbox from planting code that the host's git runs later.

A repository's `config` can name programs (`core.fsmonitor`, filters, pagers) and its `hooks` are programs; git on the
host runs them without asking. So both are read-only inside, and the directories that lead to them are mount points,
which can be neither renamed nor replaced.

What mounts cannot prevent: a sandbox may create a *new* repository somewhere in the workspace, or point a submodule's
`.git` file at one. Whoever runs git on the workspace afterwards must therefore not trust its configuration.
"""

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from drivers.base import DriverError
from drivers.view import View

READ_ONLY_FILES = ("config", "config.worktree", "commondir", "gitdir")
"""Files of a git directory that say where configuration comes from, or are it."""

NOTE = "git-directories"
MAX_DEPTH = 6
MAX_GIT_DIRECTORIES = 500


def kind_of(path: str) -> str:
    """file, directory, link, other or absent; a link is not followed, since a sandbox may have made it."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return "absent"
    if stat.S_ISLNK(mode):
        return "link"
    if stat.S_ISDIR(mode):
        return "directory"
    return "file" if stat.S_ISREG(mode) else "other"


def is_git_directory(path: str) -> bool:
    """Whether `path` looks like the inside of a .git."""
    return all(kind_of(f"{path}/{name}") in ("file", "link") for name in ("HEAD", "config"))


def git_directories(path: str) -> list[str]:
    """The git directories that a writable directory holds: itself, or its .git."""
    return [
        candidate
        for candidate in (path, f"{path}/.git")
        if kind_of(candidate) == "directory" and is_git_directory(candidate)
    ]


def guard_git(view: View, source: str, target: str) -> None:
    """Protect the repository in a directory that was just made writable.

    :param source: the directory on the host.
    :param target: where it is inside.
    :raises DriverError: it has a shape that cannot be protected.
    """
    kind = kind_of(f"{source}/.git")
    if kind == "link":
        raise _replaceable(f"{source}/.git", "write a file `.git` that says `gitdir: PATH` instead")
    if kind == "file":  # a worktree's pointer to its git directory
        view.show(f"{source}/.git", f"{target}/.git")
    for directory in git_directories(source):
        _guard_directory(view, directory, target + directory[len(source) :])


def _guard_directory(view: View, source: str, target: str) -> None:
    view.show(source, target, writable=True)
    _guard_files(view, source, target)
    hooks = kind_of(f"{source}/hooks")
    if hooks == "absent":
        view.mask(f"{target}/hooks", directory=True)  # leaves an empty directory, as `git init` does
    for directory in _nested(source):
        inside = target + directory[len(source) :]
        view.show(directory, inside, writable=True)
        _guard_files(view, directory, inside)


def _guard_files(view: View, source: str, target: str) -> None:
    for name in (*READ_ONLY_FILES, "hooks"):
        kind = kind_of(f"{source}/{name}")
        if kind == "link":
            raise _replaceable(f"{source}/{name}", "put the real thing there")
        if kind in ("file", "directory"):
            view.show(f"{source}/{name}", f"{target}/{name}")


def _replaceable(path: str, cure: str) -> DriverError:
    return DriverError(f"{path} is a symbolic link, which could be replaced from inside the sandbox; {cure}")


def _nested(source: str) -> Iterator[str]:
    """The git directories of worktrees and submodules, and every directory on the way to them."""
    queue = [(f"{source}/worktrees", 1), (f"{source}/modules", 1)]
    count = 0
    while queue:
        path, depth = queue.pop(0)
        if kind_of(path) != "directory":
            continue
        count += 1
        if count > MAX_GIT_DIRECTORIES:
            raise DriverError(
                f"{source} has more than {MAX_GIT_DIRECTORIES} worktrees and submodules; prune them first"
            )
        yield path
        if depth < MAX_DEPTH and kind_of(f"{path}/HEAD") != "file":
            queue += [(f"{path}/{name}", depth + 1) for name in sorted(os.listdir(path))]
        elif kind_of(f"{path}/modules") == "directory":
            queue.append((f"{path}/modules", depth + 1))


def without_commondir(directories: list[str]) -> list[str]:
    """Those git directories, and those in them, without a `commondir`: main repositories and submodules have none."""
    every = [inner for directory in directories for inner in (directory, *_nested(directory))]
    return [path for path in every if is_git_directory(path) and kind_of(f"{path}/commondir") == "absent"]


def remember(directories: list[str], folder: str) -> None:
    """Note git directories without a `commondir` in a folder that the sandbox cannot see; for `remove_planted_since`.

    :raises OSError: the note cannot be written.
    """
    Path(folder, NOTE).write_bytes(b"\0".join(os.fsencode(directory) for directory in directories))


def remove_planted(directories: list[str]) -> None:
    """After the sandbox's end, remove what would redirect git: a `commondir` in a directory that had none.

    Such a file makes git take its configuration from elsewhere, and no mount can keep a name from being created in
    a directory that git itself must write to.
    """
    for directory in directories:
        path = f"{directory}/commondir"
        if kind_of(path) == "directory":
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(OSError):
                os.unlink(path)


def remove_planted_since(scratch: Path) -> None:
    """Do the same for sandboxes whose gateway was killed, from the notes that it left in its scratch directory."""
    for note in scratch.glob(f"*/{NOTE}"):
        with suppress(OSError):
            remove_planted([os.fsdecode(name) for name in note.read_bytes().split(b"\0") if name])
