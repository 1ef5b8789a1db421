"""Running git on the host where a sandbox may have written.

A repository's configuration can name programs (hooks, fsmonitor, filters, ssh commands), and git runs them without
asking. Two ways of calling git are safe here, and only these two are used:

* `run_git` on the user's own repository. Its configuration is read, and everything in it that would start a program is
  overruled from the environment, which git ranks above every file. Filters have names that only the configuration
  knows, so those it defines are looked up (which runs nothing) and switched off, unless the user's own global
  configuration defines them alike, as `git lfs install` does.
* `ShadowRepository` on files that a sandbox wrote. Its git directory is made by us in a private place, knows one commit
  and the repository's objects, and none of its configuration.

git-config(1), "GIT_CONFIG_COUNT"; gitattributes(5), "filter"; githooks(5), "core.hooksPath".
"""

import contextlib
import os
import stat
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Final

import trio

from gateway.errors import RunFailed

__all__ = ["GitError", "ShadowRepository", "filter_overrides", "git_output", "open_shadow", "run_git"]

GIT_TIMEOUT_S: Final = 600.0
MAX_SHOWN_ERROR_CHARS: Final = 2_000

_NO_PROGRAMS: Final[Mapping[str, str]] = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.sshCommand": "false",
    "core.askPass": "",
    "core.pager": "cat",
    "core.editor": "false",
    "core.alternateRefsCommand": "false",
    "core.untrackedCache": "false",
    "core.splitIndex": "false",
    "credential.helper": "",
    "diff.external": "",
    "gpg.program": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "protocol.allow": "never",
    "submodule.recurse": "false",
    "branch.autoSetupMerge": "false",
}
_FILTER_PARTS = ("clean", "smudge", "process", "required")
_TRUSTED_SCOPES = frozenset({"system", "global"})


class GitError(RunFailed):
    """git failed or cannot be run; the message holds what it said."""


def _environment(environ: Mapping[str, str], config: Mapping[str, str], *, user: bool) -> dict[str, str]:
    """The whole environment of a git process: no GIT_ variable of ours or of the caller's gets in by accident."""
    clean = {name: environ[name] for name in ("PATH", "TMPDIR") if name in environ}
    if user:
        clean |= {name: environ[name] for name in ("HOME", "XDG_CONFIG_HOME") if name in environ}
    else:
        clean |= {"HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"}
    clean |= {
        "LC_ALL": "C",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "",
        "GIT_ATTR_NOSYSTEM": "0" if user else "1",
        "GIT_CONFIG_COUNT": str(len(config)),
    }
    for index, (key, value) in enumerate(config.items()):
        clean |= {f"GIT_CONFIG_KEY_{index}": key, f"GIT_CONFIG_VALUE_{index}": value}
    return clean


async def run_git(
    arguments: Iterable[str],
    *,
    cwd: Path,
    environ: Mapping[str, str],
    config: Mapping[str, str] | None = None,
    git_dir: Path | None = None,
    user: bool = True,
    extra: Mapping[str, str] | None = None,
    timeout_s: float = GIT_TIMEOUT_S,
) -> subprocess.CompletedProcess[bytes]:
    """Run one git command that starts no other program.

    Args:
        arguments: the command and its arguments.
        cwd: where it runs.
        environ: where git and the user's configuration are found.
        config: further configuration, such as `filter_overrides`.
        git_dir: the git directory; None to let git look for it from ``cwd``.
        user: whether the user's and the system's configuration count.
        extra: further environment variables.
        timeout_s: seconds that git may take.

    Returns:
        The finished process, whatever its exit code.

    Raises:
        GitError: git is not installed, cannot enter ``cwd``, or did not end in time.

    Cancellation kills git.
    """
    environment = _environment(environ, {**_NO_PROGRAMS, **(config or {})}, user=user)
    if git_dir is not None:
        environment["GIT_DIR"] = str(git_dir)
    environment |= extra or {}
    command = ["git", *arguments]
    try:
        with trio.fail_after(timeout_s):
            return await trio.run_process(
                command, cwd=cwd, env=environment, capture_stdout=True, capture_stderr=True, check=False
            )
    except OSError as error:
        raise _cannot_run(cwd, error) from error
    except trio.TooSlowError:
        raise GitError(f"`git {command[1]}` did not end within {timeout_s:g} s") from None


def _cannot_run(cwd: Path, error: OSError) -> GitError:
    if not cwd.is_dir():
        return GitError(f"{cwd} is not a directory that can be entered")
    return GitError(f"git cannot be run ({error.strerror})", cure="install git, or set `worktree: none`")


def git_output(done: subprocess.CompletedProcess[bytes], what: str) -> bytes:
    """Return what git printed.

    Raises:
        GitError: it failed; ``what`` says what it was for.
    """
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip()[-MAX_SHOWN_ERROR_CHARS:]
        raise GitError(f"{what}: {said or f'git ended with exit code {done.returncode}'}")
    return bytes(done.stdout)


async def filter_overrides(repository: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the configuration that switches off the filters which a repository's own configuration defines.

    A filter that the user's global configuration defines with the same commands stays as it is.

    Raises:
        GitError: the configuration cannot be read.
    """
    done = await run_git(
        ["config", "--show-scope", "-z", "--get-regexp", r"^filter\."], cwd=repository, environ=environ
    )
    if done.returncode == 1:  # none
        return {}
    fields = git_output(done, "cannot read the repository's configuration").decode(errors="surrogateescape").split("\0")
    trusted: dict[str, dict[str, str]] = {}
    local: dict[str, dict[str, str]] = {}
    for scope, entry in zip(fields[0::2], fields[1::2], strict=False):
        key, _, value = entry.partition("\n")
        name, _, part = key.removeprefix("filter.").rpartition(".")
        (trusted if scope in _TRUSTED_SCOPES else local).setdefault(name, {})[part] = value
    overrides = {}
    for name, parts in local.items():
        if parts != {part: trusted.get(name, {}).get(part) for part in parts}:
            for part in _FILTER_PARTS:
                overrides[f"filter.{name}.{part}"] = "false" if part == "required" else ""
    return overrides


class ShadowRepository:
    """A git directory of our own over the objects of another: one commit, no configuration, no hooks."""

    def __init__(self, path: Path, objects: Path, work_tree: Path, environ: Mapping[str, str]) -> None:
        self.path: Final = path
        self._objects = objects
        self._work_tree = work_tree
        self._environ = environ

    async def run(self, *arguments: str, index: Path) -> subprocess.CompletedProcess[bytes]:
        """Run a git command on the work tree with a given index. Raises GitError as `run_git` does."""
        return await run_git(
            arguments,
            cwd=self._work_tree,
            environ=self._environ,
            git_dir=self.path,
            user=False,
            extra={
                "GIT_OBJECT_DIRECTORY": str(self._objects),
                "GIT_WORK_TREE": str(self._work_tree),
                "GIT_INDEX_FILE": str(index),
            },
        )


@contextlib.asynccontextmanager
async def open_shadow(
    *, objects: Path, work_tree: Path, commit: str, exclude: bytes, environ: Mapping[str, str]
) -> AsyncIterator[ShadowRepository]:
    """Make a shadow repository that lives as long as the block.

    Args:
        objects: the object directory of the repository.
        work_tree: the files to look at.
        commit: what HEAD is, in full.
        exclude: the patterns of ``info/exclude``.
        environ: where git is found.
    """
    with tempfile.TemporaryDirectory(prefix="iterion-git-") as directory:
        path = Path(directory)
        for name in ("objects", "refs", "info"):
            (path / name).mkdir()
        (path / "HEAD").write_text(f"{commit}\n")
        (path / "info" / "exclude").write_bytes(exclude)
        sha256 = len(commit) == 64
        config = f"[core]\n\trepositoryformatversion = {int(sha256)}\n"
        (path / "config").write_text(config + ("[extensions]\n\tobjectformat = sha256\n" if sha256 else ""))
        yield ShadowRepository(path, objects, work_tree, {key: environ[key] for key in environ if key == "PATH"})


def read_bounded(path: Path, limit: int) -> bytes | None:
    """Read a small file without following a link; None if it is missing, too long, or no regular file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(limit + 1)
    finally:
        os.close(descriptor)
    return data if len(data) <= limit else None
