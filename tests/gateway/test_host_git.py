"""git on the host runs no program that a repository's configuration names."""

import os
import subprocess
from pathlib import Path

import pytest

from gateway.host_git import GitError, filter_overrides, git_output, open_shadow, read_bounded, run_git


def git(directory: Path, *arguments: str, home: Path | None = None) -> str:
    """What git prints, with nobody's configuration but that of ``home``."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(home or "/nonexistent"), "GIT_CONFIG_NOSYSTEM": "1"}
    environ |= {f"GIT_{who}_{what}": "t@example" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    done = subprocess.run(["git", *arguments], cwd=directory, env=environ, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    path = tmp_path / "repository"
    path.mkdir()
    git(path, "init", "--quiet", "--initial-branch=main")
    (path / "file").write_text("text\n")
    git(path, "add", ".")
    git(path, "commit", "--quiet", "--message=first")
    return path


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    home = tmp_path / "home"
    home.mkdir()
    return {"PATH": os.environ["PATH"], "HOME": str(home), "GIT_DIR": "/nowhere", "GIT_TRACE": "/nowhere/x"}


@pytest.mark.real
async def test_H52_hooks_and_fsmonitor_of_the_repository_are_not_run(
    repository: Path, environ: dict[str, str], tmp_path: Path
) -> None:
    marker = tmp_path / "ran"
    program = repository / ".git" / "hooks" / "post-checkout"
    program.write_text(f"#!/bin/sh\necho $0 >> {marker}\n")
    program.chmod(0o755)
    for name in ("reference-transaction", "post-index-change"):
        (program.parent / name).symlink_to(program)
    git(repository, "config", "core.fsmonitor", str(program))
    git(repository, "config", "core.hooksPath", str(program.parent))
    for arguments in (["status"], ["checkout", "-q", "-b", "other"], ["branch", "-D", "main"]):
        git_output(await run_git(arguments, cwd=repository, environ=environ), "test")
    assert not marker.exists()
    git(repository, "checkout", "-q", "-b", "third")
    assert marker.exists(), "the test's own trap does not work"


@pytest.mark.real
async def test_H52_filters_of_the_repository_are_switched_off_and_those_of_the_user_are_not(
    repository: Path, environ: dict[str, str], tmp_path: Path
) -> None:
    marker = tmp_path / "ran"
    home = Path(environ["HOME"])
    (repository / ".gitattributes").write_text("file filter=evil.with=dots\ngood filter=good\nboth filter=both\n")
    for name in ("good", "both"):
        (repository / name).write_text("text\n")
    git(repository, "add", "--all")
    git(repository, "config", "--global", "filter.good.smudge", "sed s/text/GOOD/", home=home)
    git(repository, "config", "--global", "filter.both.smudge", "sed s/text/BOTH/", home=home)
    git(repository, "config", "filter.both.smudge", "sed s/text/BOTH/")
    git(repository, "config", "filter.evil.with=dots.smudge", f"touch {marker}; cat")
    git(repository, "config", "filter.evil.with=dots.required", "true")
    overrides = await filter_overrides(repository, environ)
    assert set(overrides) == {f"filter.evil.with=dots.{part}" for part in ("clean", "smudge", "process", "required")}
    for name in ("file", "good", "both"):
        (repository / name).unlink()
    done = await run_git(["checkout", "--", "file", "good", "both"], cwd=repository, environ=environ, config=overrides)
    git_output(done, "test")
    assert not marker.exists()
    assert [(repository / name).read_text() for name in ("file", "good", "both")] == ["text\n", "GOOD\n", "BOTH\n"]


@pytest.mark.real
async def test_a_repository_without_filters_has_no_overrides(repository: Path, environ: dict[str, str]) -> None:
    assert await filter_overrides(repository, environ) == {}
    (repository / ".git" / "config").write_text("[broken\n")
    with pytest.raises(GitError, match="cannot read the repository's configuration: fatal: bad config"):
        await filter_overrides(repository, environ)


@pytest.mark.real
async def test_variables_of_the_caller_do_not_reach_git(repository: Path, environ: dict[str, str]) -> None:
    done = await run_git(["rev-parse", "--show-toplevel"], cwd=repository, environ=environ)
    assert git_output(done, "test").decode().strip() == str(repository)


@pytest.mark.real
async def test_a_shadow_knows_the_objects_and_nothing_else(
    repository: Path, environ: dict[str, str], tmp_path: Path
) -> None:
    git(repository, "config", "core.fsmonitor", f"touch {tmp_path / 'ran'}")
    commit = git(repository, "rev-parse", "HEAD")
    (repository / "ignored").touch()
    (repository / "new").touch()
    async with open_shadow(
        objects=repository / ".git" / "objects",
        work_tree=repository,
        commit=commit,
        exclude=b"ignored\n",
        environ=environ,
    ) as shadow:
        await shadow.run("read-tree", "HEAD", index=shadow.path / "index")
        listed = await shadow.run("config", "--list", "--show-scope", index=shadow.path / "index")
        assert all(not line.startswith(b"global") for line in listed.stdout.splitlines())
        state = await shadow.run("status", "--porcelain", index=shadow.path / "index")
        assert git_output(state, "test") == b"?? new\n"
        kept = shadow.path
    assert not kept.exists()
    assert not (tmp_path / "ran").exists()


@pytest.mark.real
async def test_a_shadow_of_a_sha256_repository(environ: dict[str, str], tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "--object-format=sha256", "r")
    repository = tmp_path / "r"
    git(repository, "commit", "--quiet", "--allow-empty", "--message=first")
    async with open_shadow(
        objects=repository / ".git" / "objects",
        work_tree=repository,
        commit=git(repository, "rev-parse", "HEAD"),
        exclude=b"",
        environ=environ,
    ) as shadow:
        assert git_output(await shadow.run("status", "--porcelain", index=shadow.path / "i"), "test") == b""


@pytest.mark.real
async def test_errors_say_what_git_said(repository: Path, environ: dict[str, str], tmp_path: Path) -> None:
    done = await run_git(["rev-parse", "--verify", "none"], cwd=repository, environ=environ)
    with pytest.raises(GitError, match="looking: fatal: Needed a single revision"):
        git_output(done, "looking")
    done = await run_git(["rev-parse", "--verify", "--quiet", "none"], cwd=repository, environ=environ)
    with pytest.raises(GitError, match="looking: git ended with exit code 1"):
        git_output(done, "looking")
    with pytest.raises(GitError, match="is not a directory that can be entered"):
        await run_git(["status"], cwd=tmp_path / "none", environ=environ)
    with pytest.raises(GitError, match="git cannot be run"):
        await run_git(["status"], cwd=repository, environ={"PATH": str(tmp_path)})


async def test_git_is_given_a_bounded_time(tmp_path: Path) -> None:
    fake = tmp_path / "git"
    fake.write_text("#!/bin/sh\nexec sleep 600\n")
    fake.chmod(0o755)
    with pytest.raises(GitError, match=r"`git status` did not end within 0\.2 s"):
        await run_git(["status"], cwd=tmp_path, environ={"PATH": f"{tmp_path}:/bin:/usr/bin"}, timeout_s=0.2)


def test_small_files_are_read_without_following_links(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    os.mkfifo(tmp_path / "fifo")
    assert read_bounded(tmp_path / "file", 5) == b"12345"
    assert read_bounded(tmp_path / "file", 4) is None
    assert read_bounded(tmp_path / "link", 5) is None
    assert read_bounded(tmp_path / "none", 5) is None
    assert read_bounded(tmp_path, 5) is None
    assert read_bounded(tmp_path / "fifo", 5) is None
