"""A git worktree of its own for a run: made before the sandbox, judged and perhaps removed after it.

What a sandbox leaves behind is evidence, not configuration. Everything needed to judge it is noted when the worktree
is made (the commit, the index with the state of each file, where the directories are) and stays in memory. The
worktree's ``.git`` file and its ``commondir``, which a sandbox may have pointed elsewhere, are not read again;
`host_git` says how git is run. In doubt a worktree is kept: to lose work is worse than to leave a directory.
"""

import contextlib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import trio

from gateway.host_git import (
    GitError,
    ShadowRepository,
    filter_overrides,
    git_output,
    open_shadow,
    read_bounded,
    run_git,
)
from gateway.remove_tree import remove_tree

__all__ = ["Worktree", "WorktreeOutcome", "create_worktree", "finish_worktree", "in_git_repository"]

BRANCH_PREFIX: Final = "iterion/"
MAX_HEAD_BYTES: Final = 4_096
MAX_INDEX_BYTES: Final = 512 * 1024 * 1024
MAX_EXCLUDE_BYTES: Final = 1024 * 1024
_CHECKED_OUT_LINK: Final = b"160000 "


@dataclass(frozen=True, slots=True, kw_only=True)
class Worktree:
    """A worktree that was just made, and what must be known to judge it later."""

    path: Path
    workspace: Path
    "Where the run works: the same directory in the worktree as the one it was started in."
    branch: str
    base_commit: str
    common_dir: Path
    "The repository's .git: commits go there, so it must be writable where the run commits."
    git_dir: Path
    "The worktree's own part of it."
    identity: tuple[int, int]
    "Device and inode of ``path``."
    index: bytes = field(repr=False)
    index_time_ns: int
    "When git wrote the index: a file that is not older may have changed since without looking it."
    exclude: bytes = field(repr=False)
    warnings: tuple[str, ...] = ()

    @property
    def writable(self) -> tuple[Path, ...]:
        """What must be writable besides the workspace, so that commits work."""
        return (self.common_dir,)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorktreeOutcome:
    """What became of a worktree; ``reason`` says why it was kept, and is empty when it is gone."""

    kept: bool
    reason: str


def in_git_repository(path: Path) -> bool:
    """Say whether a directory lies in a git work tree, from the names of the directories above it alone."""
    start = path.absolute()
    return any(os.path.lexists(directory / ".git") for directory in (start, *start.parents))


async def create_worktree(workspace: Path, destination: Path, *, name: str, environ: Mapping[str, str]) -> Worktree:
    """Make a worktree of the repository that a directory lies in, on a new branch at its current commit.

    Args:
        workspace: where the run was started.
        destination: the directory to make, absolute; its parent is made if it is missing.
        name: the run's name; the branch is ``iterion/<name>``.
        environ: where git and the user's configuration are found.

    Raises:
        GitError: it is no repository, has no commit, or git fails.

    Cancellation takes effect before it is made; what has begun is finished, because git, when it is killed, leaves
    its own children running and the branch behind.
    """
    common_dir, top, prefix, base = await _locate(workspace, environ)
    overrides = await filter_overrides(workspace, environ)
    warnings = [
        f"the filter {key.split('.', 1)[1].rpartition('.')[0]!r} of the repository's own configuration is not run"
        for key in overrides
        if key.endswith(".process")
    ]
    warnings += await _uncommitted(top, overrides, environ)
    branch = BRANCH_PREFIX + name
    destination.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    arguments = ["worktree", "add", "--quiet", "--no-track", "-b", branch, str(destination), base]
    with trio.CancelScope(shield=True):
        done = await run_git(arguments, cwd=top, environ=environ, config=overrides)
        git_output(done, f"cannot make a worktree in {destination}")
        found = await run_git(["rev-parse", "--absolute-git-dir"], cwd=destination, environ=environ)
    git_dir = _path(git_output(found, "cannot find the new worktree"))
    info = os.stat(destination)
    return Worktree(
        path=destination,
        workspace=destination / prefix,
        branch=branch,
        base_commit=base,
        common_dir=common_dir,
        git_dir=git_dir,
        identity=(info.st_dev, info.st_ino),
        index=read_bounded(git_dir / "index", MAX_INDEX_BYTES) or b"",
        index_time_ns=os.stat(git_dir / "index").st_mtime_ns,
        exclude=read_bounded(common_dir / "info" / "exclude", MAX_EXCLUDE_BYTES) or b"",
        warnings=tuple(warnings),
    )


async def _locate(workspace: Path, environ: Mapping[str, str]) -> tuple[Path, Path, str, str]:
    """The repository's common directory, its top, where in it we are, and its current commit."""
    question = ["rev-parse", "--path-format=absolute", "--git-common-dir", "--show-toplevel", "--show-prefix"]
    done = await run_git(question, cwd=workspace, environ=environ)
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip()
        cure = "run it inside a git repository, or set `worktree: none`"
        raise GitError(f"`worktree: auto` needs a git repository, and {workspace} is in none ({said})", cure=cure)
    lines = os.fsdecode(done.stdout).split("\n")
    if len(lines) != 4:
        raise GitError(f"the path of {workspace} holds a line break", cure="rename the directory")
    common, top, prefix, _ = lines
    head = await run_git(["rev-parse", "--verify", "--quiet", "HEAD^{commit}"], cwd=workspace, environ=environ)
    if head.returncode != 0:
        raise GitError(f"the repository {top} has no commit yet", cure="commit something, or set `worktree: none`")
    return Path(common), Path(top), prefix, head.stdout.decode().strip()


async def _uncommitted(top: Path, overrides: Mapping[str, str], environ: Mapping[str, str]) -> list[str]:
    arguments = ["status", "--porcelain", "-z", "--untracked-files=no", "--ignore-submodules=all", "--no-renames"]
    done = await run_git(arguments, cwd=top, environ=environ, config=overrides)
    count = git_output(done, f"cannot read the state of {top}").count(b"\0")
    if not count:
        return []
    return [f"{count} uncommitted change{'s' if count > 1 else ''} in {top} are not in the run's worktree"]


def _path(output: bytes) -> Path:
    return Path(os.fsdecode(output.removesuffix(b"\n")))


async def finish_worktree(worktree: Worktree, *, environ: Mapping[str, str]) -> WorktreeOutcome:
    """Remove a worktree and its branch if nothing in it changed; keep both otherwise.

    Files that the repository ignores do not count as changes. Call it when nothing runs in the worktree any more.

    Args:
        worktree: what `create_worktree` returned.
        environ: where git is found.

    Returns:
        Whether it was kept, and why. Never raises for anything that a sandbox can do to it.

    Cancellation before the decision keeps it; a removal that has begun is finished.
    """
    try:
        reason = await _reason_to_keep(worktree, environ)
        if reason:
            return WorktreeOutcome(kept=True, reason=reason)
        removed = await trio.to_thread.run_sync(_remove, worktree)
        if not removed:
            return WorktreeOutcome(kept=True, reason="it could not be removed")
        arguments = ["update-ref", "-d", f"refs/heads/{worktree.branch}", worktree.base_commit]
        done = await run_git(
            arguments, cwd=worktree.common_dir, environ=environ, git_dir=worktree.common_dir, user=False
        )
        git_output(done, f"the branch {worktree.branch} could not be removed")
    except GitError as error:
        return WorktreeOutcome(kept=True, reason=error.message)
    return WorktreeOutcome(kept=False, reason="")


def _remove(worktree: Worktree) -> bool:
    """Remove the files and git's record of them. ``git worktree remove`` would read the ``.git`` file again."""
    removed = remove_tree(worktree.path) and remove_tree(worktree.git_dir)
    with contextlib.suppress(OSError):  # it holds other worktrees, usually
        worktree.git_dir.parent.rmdir()
    return removed


async def _reason_to_keep(worktree: Worktree, environ: Mapping[str, str]) -> str:
    try:
        info = os.lstat(worktree.path)
    except OSError:
        return "it is not there any more"
    if not stat.S_ISDIR(info.st_mode) or (info.st_dev, info.st_ino) != worktree.identity:
        return "something else is in its place"
    head = read_bounded(worktree.git_dir / "HEAD", MAX_HEAD_BYTES)
    if head != f"ref: refs/heads/{worktree.branch}\n".encode():
        return f"{worktree.branch} is not checked out in it any more"
    question = ["rev-parse", "--verify", "--quiet", f"refs/heads/{worktree.branch}^{{commit}}"]
    tip = await run_git(question, cwd=worktree.common_dir, environ=environ, git_dir=worktree.common_dir, user=False)
    if tip.stdout.decode(errors="replace").strip() != worktree.base_commit:
        return f"{worktree.branch} has commits of its own"
    index = read_bounded(worktree.git_dir / "index", MAX_INDEX_BYTES)
    if not worktree.index or index is None:
        return "its index cannot be read"
    async with open_shadow(
        objects=worktree.common_dir / "objects",
        work_tree=worktree.path,
        commit=worktree.base_commit,
        exclude=worktree.exclude,
        environ=environ,
    ) as shadow:
        return await _changes(shadow, worktree, index)


async def _changes(shadow: ShadowRepository, worktree: Worktree, index: bytes) -> str:
    """What differs from the commit: in the index that was left, or among the files."""
    left, noted = shadow.path / "left", shadow.path / "noted"
    left.write_bytes(index)
    noted.write_bytes(worktree.index)
    os.utime(noted, ns=(worktree.index_time_ns, worktree.index_time_ns))
    staged = await shadow.run("diff-index", "--cached", "--quiet", "--ignore-submodules=all", "HEAD", index=left)
    if staged.returncode != 0:
        return "it has staged changes"
    # The index as it was noted holds the state of each file then: one that is older than the index and was not touched
    # is not even read, so that no filter is missed, and every other one is compared as it is (git's racy-git.txt).
    arguments = ("status", "--porcelain", "-z", "--untracked-files=normal", "--ignore-submodules=all", "--no-renames")
    files = git_output(await shadow.run(*arguments, index=noted), "its state cannot be read")
    if files:
        count = files.count(b"\0")
        return f"it has {count} changed file{'s' if count > 1 else ''}"
    listing = git_output(await shadow.run("ls-files", "--stage", "-z", index=noted), "its files cannot be listed")
    for entry in listing.split(b"\0"):
        if entry.startswith(_CHECKED_OUT_LINK):
            path = worktree.path / os.fsdecode(entry.partition(b"\t")[2])
            if path.is_symlink() or not path.is_dir() or any(path.iterdir()):
                return "a submodule was checked out in it"
    return ""
