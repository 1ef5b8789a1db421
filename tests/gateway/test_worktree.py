"""Worktrees: made at the right commit, removed when nothing changed, kept in every doubt, and never trusted."""

import os
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from gateway.host_git import GitError
from gateway.worktree import Worktree, WorktreeOutcome, create_worktree, finish_worktree, in_git_repository

pytestmark = pytest.mark.real

ENVIRON = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}


def git(directory: Path, *arguments: str) -> str:
    environ = {**ENVIRON, "GIT_CONFIG_NOSYSTEM": "1"}
    environ |= {f"GIT_{who}_{what}": "t@example" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    done = subprocess.run(["git", *arguments], cwd=directory, env=environ, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    path = tmp_path / "repository"
    (path / "app").mkdir(parents=True)
    git(path, "init", "--quiet", "--initial-branch=main")
    (path / "app" / "code").write_text("one\n")
    (path / ".gitignore").write_text("*.log\n")
    git(path, "add", ".")
    git(path, "commit", "--quiet", "--message=first")
    return path


Make = Callable[[], Awaitable[Worktree]]


@pytest.fixture
def make(repository: Path, tmp_path: Path) -> Make:
    async def make() -> Worktree:
        return await create_worktree(repository, tmp_path / "home" / "w" / "run", name="calm-otter", environ=ENVIRON)

    return make


async def finish(worktree: Worktree) -> WorktreeOutcome:
    return await finish_worktree(worktree, environ=ENVIRON)


async def kept_because(worktree: Worktree) -> str:
    outcome = await finish(worktree)
    assert outcome.kept
    return outcome.reason


# -- Making -----------------------------------------------------------------------------------------------


async def test_a_worktree_stands_on_a_branch_of_its_own_at_the_current_commit(make: Make, repository: Path) -> None:
    worktree = await make()
    assert (worktree.path / "app" / "code").read_text() == "one\n"
    assert worktree.branch == "iterion/calm-otter"
    assert git(worktree.path, "branch", "--show-current") == "iterion/calm-otter"
    assert worktree.base_commit == git(repository, "rev-parse", "HEAD")
    assert worktree.common_dir == repository / ".git"
    assert worktree.git_dir == repository / ".git" / "worktrees" / "run"
    assert worktree.writable == (repository / ".git",)
    assert worktree.workspace == worktree.path
    assert worktree.warnings == ()
    assert "index" not in repr(worktree).replace("index_time_ns", "")


async def test_the_workspace_is_the_directory_that_the_run_was_started_in(repository: Path, tmp_path: Path) -> None:
    worktree = await create_worktree(repository / "app", tmp_path / "w", name="x", environ=ENVIRON)
    assert worktree.workspace == tmp_path / "w" / "app"


async def test_a_worktree_of_a_worktree_belongs_to_the_same_repository(
    make: Make, repository: Path, tmp_path: Path
) -> None:
    first = await make()
    second = await create_worktree(first.path, tmp_path / "second", name="y", environ=ENVIRON)
    assert second.common_dir == repository / ".git"
    assert not (await finish(second)).kept
    assert (repository / ".git" / "worktrees").exists()


async def test_uncommitted_changes_are_not_in_it_and_that_is_said(make: Make, repository: Path) -> None:
    (repository / "app" / "code").write_text("two\n")
    (repository / ".gitignore").unlink()
    worktree = await make()
    assert (worktree.path / "app" / "code").read_text() == "one\n"
    assert worktree.warnings == (f"2 uncommitted changes in {repository} are not in the run's worktree",)


@pytest.mark.parametrize("after_ms", range(0, 40, 2))
async def test_cancelled_while_it_is_made_it_is_there_or_nothing_is(
    make: Make, repository: Path, tmp_path: Path, after_ms: int
) -> None:
    worktree = None
    with trio.move_on_after(after_ms / 1000):
        worktree = await make()
    if worktree is not None:
        assert not (await finish(worktree)).kept
    assert not (tmp_path / "home" / "w" / "run").exists()
    assert git(repository, "branch", "--format=%(refname:short)") == "main"
    assert not list((repository / ".git").glob("worktrees/*"))
    assert not list((repository / ".git").rglob("*.lock"))


async def test_what_is_no_repository_is_refused(tmp_path: Path, repository: Path) -> None:
    with pytest.raises(GitError, match=r"needs a git repository, .*\n  run it inside a git repository, or set"):
        await create_worktree(tmp_path, tmp_path / "w", name="x", environ=ENVIRON)
    empty = tmp_path / "empty"
    empty.mkdir()
    git(empty, "init", "--quiet")
    with pytest.raises(GitError, match="has no commit yet\n  commit something"):
        await create_worktree(empty, tmp_path / "w", name="x", environ=ENVIRON)
    bare = tmp_path / "bare"
    git(tmp_path, "clone", "--quiet", "--bare", str(repository), str(bare))
    with pytest.raises(GitError, match="needs a git repository"):
        await create_worktree(bare, tmp_path / "w", name="x", environ=ENVIRON)


async def test_a_path_with_a_line_break_is_refused(repository: Path, tmp_path: Path) -> None:
    odd = tmp_path / "odd\nname"
    shutil.copytree(repository, odd)
    with pytest.raises(GitError, match="holds a line break"):
        await create_worktree(odd, tmp_path / "w", name="x", environ=ENVIRON)


async def test_a_place_or_branch_that_is_taken_is_refused(make: Make, repository: Path) -> None:
    await make()
    with pytest.raises(GitError, match=r"cannot make a worktree in .*already exists"):
        await make()


async def test_H52_a_repository_that_was_tampered_with_runs_nothing_when_the_worktree_is_made(
    make: Make, repository: Path, tmp_path: Path
) -> None:
    marker = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho $0 $* >> {marker}\ncat\n")
    program.chmod(0o755)
    for name in ("post-checkout", "reference-transaction", "post-index-change"):
        (repository / ".git" / "hooks" / name).symlink_to(program)
    (repository / ".git" / "info" / "attributes").write_text("* filter=x\n")
    for key in ("core.fsmonitor", "filter.x.smudge", "filter.x.clean", "filter.x.process", "core.pager"):
        git(repository, "config", key, str(program))
    (repository / "app" / "code").write_text("two\n")
    worktree = await make()
    assert "the filter 'x' of the repository's own configuration is not run" in worktree.warnings
    assert not (await finish(worktree)).kept
    assert not marker.exists()


@pytest.mark.parametrize("place", [".", "app", "app/none"])
def test_a_repository_is_seen_from_below(repository: Path, place: str) -> None:
    assert in_git_repository(repository / place)
    assert not in_git_repository(repository.parent)


# -- Unchanged ------------------------------------------------------------------------------------------------


async def test_an_unchanged_worktree_leaves_nothing(make: Make, repository: Path) -> None:
    worktree = await make()
    git(worktree.path, "status")
    assert await finish(worktree) == WorktreeOutcome(kept=False, reason="")
    assert not worktree.path.exists()
    assert not (repository / ".git" / "worktrees").exists()
    assert git(repository, "branch", "--list", "iterion/*") == ""
    assert git(repository, "worktree", "list").count("\n") == 0
    assert not (repository / ".git" / "logs" / "refs" / "heads" / "iterion").exists() or not any(
        (repository / ".git" / "logs" / "refs" / "heads" / "iterion").iterdir()
    )


async def test_ignored_files_and_touched_files_are_no_changes(make: Make, repository: Path) -> None:
    (repository / ".git" / "info" / "exclude").write_text("scratch/\n")
    worktree = await make()
    (worktree.path / "build.log").write_text("noise")
    (worktree.path / "scratch").mkdir()
    (worktree.path / "scratch" / "x").touch()
    os.utime(worktree.path / "app" / "code")
    assert not (await finish(worktree)).kept


async def test_an_untouched_submodule_is_no_change(repository: Path, tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    shutil.copytree(repository, inner)
    git(repository, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "sub")
    git(repository, "commit", "--quiet", "--message=submodule")
    worktree = await create_worktree(repository, tmp_path / "w", name="x", environ=ENVIRON)
    assert not (await finish(worktree)).kept
    worktree = await create_worktree(repository, tmp_path / "w", name="x", environ=ENVIRON)
    (worktree.path / "sub" / "file").touch()
    assert await kept_because(worktree) == "a submodule was checked out in it"


# -- Changed --------------------------------------------------------------------------------------------------


def edit(worktree: Worktree) -> None:
    (worktree.path / "app" / "code").write_text("two\n")  # the same size, within the same second


def add_file(worktree: Worktree) -> None:
    (worktree.path / "new").touch()


def delete(worktree: Worktree) -> None:
    (worktree.path / "app" / "code").unlink()


def make_executable(worktree: Worktree) -> None:
    (worktree.path / "app" / "code").chmod(0o755)


def stage(worktree: Worktree) -> None:
    edit(worktree)
    git(worktree.path, "add", ".")
    (worktree.path / "app" / "code").write_text("one\n")


def commit(worktree: Worktree) -> None:
    git(worktree.path, "commit", "--quiet", "--allow-empty", "--message=work")


def switch(worktree: Worktree) -> None:
    git(worktree.path, "checkout", "--quiet", "-b", "other")


def detach(worktree: Worktree) -> None:
    git(worktree.path, "checkout", "--quiet", "--detach")


def nest(worktree: Worktree) -> None:
    git(worktree.path, "init", "--quiet", "nested")


def vanish(worktree: Worktree) -> None:
    shutil.rmtree(worktree.path)


def replace_by_link(worktree: Worktree) -> None:
    worktree.path.rename(worktree.path.with_name("moved"))
    worktree.path.symlink_to(worktree.path.with_name("moved"))


def replace_by_copy(worktree: Worktree) -> None:
    worktree.path.rename(worktree.path.with_name("moved"))
    shutil.copytree(worktree.path.with_name("moved"), worktree.path)


def spoil_index(worktree: Worktree) -> None:
    (worktree.git_dir / "index").write_bytes(b"DIRC nonsense")


def remove_index(worktree: Worktree) -> None:
    (worktree.git_dir / "index").unlink()


def remove_repository(worktree: Worktree) -> None:
    shutil.rmtree(worktree.common_dir)


def remove_objects(worktree: Worktree) -> None:
    shutil.rmtree(worktree.common_dir / "objects")
    (worktree.common_dir / "objects").mkdir()


def listing(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if ".git" not in path.parts)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (edit, "it has 1 changed file"),
        (add_file, "it has 1 changed file"),
        (delete, "it has 1 changed file"),
        (make_executable, "it has 1 changed file"),
        (nest, "it has 1 changed file"),
        (stage, "it has staged changes"),
        (commit, "iterion/calm-otter has commits of its own"),
        (switch, "iterion/calm-otter is not checked out in it any more"),
        (detach, "iterion/calm-otter is not checked out in it any more"),
        (vanish, "it is not there any more"),
        (replace_by_link, "something else is in its place"),
        (replace_by_copy, "something else is in its place"),
        (spoil_index, "it has staged changes"),
        (remove_index, "its index cannot be read"),
        (remove_repository, "iterion/calm-otter is not checked out in it any more"),
        (remove_objects, "iterion/calm-otter has commits of its own"),
    ],
)
async def test_a_worktree_is_kept_with_its_branch(
    make: Make, change: Callable[[Worktree], None], reason: str, tmp_path: Path
) -> None:
    worktree = await make()
    change(worktree)
    before = listing(tmp_path)
    assert await kept_because(worktree) == reason
    assert listing(tmp_path) == before


async def test_several_changes_are_counted(make: Make) -> None:
    worktree = await make()
    edit(worktree)
    add_file(worktree)
    assert await kept_because(worktree) == "it has 2 changed files"


# -- Hostile ----------------------------------------------------------------------------------------------------


async def test_H52_nothing_that_the_sandbox_wrote_is_run(make: Make, repository: Path, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho $0 $* >> {marker}\ncat\n")
    program.chmod(0o755)
    worktree = await make()
    evil = (
        f"[core]\n\trepositoryformatversion = 0\n\tfsmonitor = {program}\n\thooksPath = {tmp_path / 'hooks'}\n"
        f'\tworktree = /\n[filter "x"]\n\tclean = {program}\n\tprocess = {program}\n'
        f"[diff]\n\texternal = {program}\n[extensions]\n\tworktreeConfig = true\n\tpartialClone = evil\n"
        f'[remote "evil"]\n\turl = ext::{program}\n\tpromisor = true\n'
    )
    (tmp_path / "hooks").mkdir()
    for name in ("post-index-change", "reference-transaction", "pre-auto-gc"):
        (tmp_path / "hooks" / name).symlink_to(program)
    # Everywhere a sandbox might write it: the repository itself, the worktree's part, a repository of its own.
    with (repository / ".git" / "config").open("a") as file:
        file.write(evil)
    (worktree.git_dir / "config.worktree").write_text(evil)
    fake = tmp_path / "fake"
    shutil.copytree(repository / ".git", fake)
    (fake / "config").write_text(evil)
    (worktree.path / ".git").unlink()
    (worktree.path / ".git").write_text(f"gitdir: {fake}\n")
    (worktree.git_dir / "commondir").write_text(f"{fake}\n")
    (worktree.path / ".gitattributes").write_text("* filter=x diff=x\n")
    (worktree.path / "app" / "code").write_text("two\n")
    nested = worktree.path / "nested"
    git(worktree.path.parent, "init", "--quiet", str(nested))
    (nested / ".git" / "config").write_text(evil)
    assert await kept_because(worktree) == "it has 3 changed files"
    assert not marker.exists()
    # The same with nothing to keep: the branch and the directories go, and still nothing is run.
    (worktree.path / ".gitattributes").unlink()
    (worktree.path / "app" / "code").write_text("one\n")
    shutil.rmtree(nested)
    assert await finish(worktree) == WorktreeOutcome(kept=False, reason="")
    assert not marker.exists()
    assert fake.exists()


async def test_H52_links_in_the_git_directory_are_not_followed(make: Make, tmp_path: Path) -> None:
    worktree = await make()
    head = worktree.git_dir / "HEAD"
    head.rename(tmp_path / "HEAD")
    head.symlink_to(tmp_path / "HEAD")
    assert await kept_because(worktree) == "iterion/calm-otter is not checked out in it any more"


async def test_H52_a_worktree_that_holds_links_to_elsewhere_is_removed_alone(make: Make, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").touch()
    worktree = await make()
    (worktree.path / "x.log").symlink_to(victim)
    assert not (await finish(worktree)).kept
    assert (victim / "file").exists()


async def test_without_git_it_is_kept(make: Make) -> None:
    worktree = await make()
    outcome = await finish_worktree(worktree, environ={"PATH": "/nonexistent"})
    assert outcome.kept
    assert outcome.reason.startswith("git cannot be run")
