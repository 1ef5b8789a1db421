"""Which parts of a repository are protected, on paper; the attacks are in test_bubblewrap.py."""

from pathlib import Path

import pytest

from drivers.base import DriverError
from drivers.git_guard import (
    guard_git,
    kind_of,
    remember,
    remove_planted,
    remove_planted_since,
    without_commondir,
)
from drivers.view import View


@pytest.fixture
def view() -> View:
    return View(empty_file="/e/file", empty_directory="/e/dir")


def make_git_directory(path: Path) -> Path:
    (path / "hooks").mkdir(parents=True)
    (path / "HEAD").write_text("ref: refs/heads/main\n")
    (path / "config").write_text("")
    return path


def shown(view: View) -> dict[str, bool]:
    """Target -> writable, in the order of mounting."""
    options = view.options
    return {
        options[at + 2]: options[at] == "--bind" for at in range(len(options)) if options[at] in ("--bind", "--ro-bind")
    }


def test_kinds(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "file").touch()
    kinds = [kind_of(f"{tmp_path}/{name}") for name in ("", "file", "link", "none")]
    assert [*kinds, kind_of("/dev/null")] == ["directory", "file", "link", "absent", "other"]


def test_a_repository(view: View, tmp_path: Path) -> None:
    git = make_git_directory(tmp_path / ".git")
    nested = make_git_directory(git / "modules" / "a" / "b")
    deeper = make_git_directory(nested / "modules" / "c")
    tree = git / "worktrees" / "t"
    tree.mkdir(parents=True)
    (tree / "commondir").write_text("../..\n")
    guard_git(view, str(tmp_path), "/in")
    mounts = shown(view)
    for path in (
        git,
        git / "modules",
        git / "modules" / "a",
        nested,
        nested / "modules",
        deeper,
        git / "worktrees",
        tree,
    ):
        assert mounts["/in" + str(path)[len(str(tmp_path)) :]] is True
    for path in (git / "config", git / "hooks", nested / "config", deeper / "hooks", tree / "commondir"):
        assert mounts["/in" + str(path)[len(str(tmp_path)) :]] is False


def test_a_worktree_pointer_and_no_repository(view: View, tmp_path: Path) -> None:
    guard_git(view, str(tmp_path), str(tmp_path))
    assert view.options == []
    (tmp_path / ".git").write_text("gitdir: /x\n")
    guard_git(view, str(tmp_path), str(tmp_path))
    assert shown(view) == {f"{tmp_path}/.git": False}


def test_missing_hooks_stay_missing(view: View, tmp_path: Path) -> None:
    git = make_git_directory(tmp_path / ".git")
    (git / "hooks").rmdir()
    guard_git(view, str(tmp_path), str(tmp_path))
    assert view.what_is_at(f"{git}/hooks/pre-commit") is None


@pytest.mark.parametrize("name", ["config", "hooks", "commondir", "."])
def test_links_cannot_be_protected(view: View, tmp_path: Path, name: str) -> None:
    git = make_git_directory(tmp_path / ".git")
    path = git / name
    if path.exists():
        path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DriverError, match="symbolic link"):
        guard_git(view, str(tmp_path), str(tmp_path))


def test_what_was_planted_is_removed(tmp_path: Path) -> None:
    main = make_git_directory(tmp_path / "main")
    tree = make_git_directory(tmp_path / "tree")
    (tree / "commondir").touch()
    candidates = without_commondir([str(main), str(tree)])
    assert candidates == [str(main)]
    (main / "commondir").write_text("../evil")
    remove_planted(candidates)
    assert not (main / "commondir").exists()
    assert (tree / "commondir").exists()


def test_a_submodule_is_cleaned_like_its_repository(tmp_path: Path) -> None:
    main = make_git_directory(tmp_path / ".git")
    module = make_git_directory(main / "modules" / "library")
    assert without_commondir([str(main)]) == [str(main), str(module)]


def test_whatever_was_planted_is_removed(tmp_path: Path) -> None:
    places = [make_git_directory(tmp_path / name) for name in ("file", "link", "directory", "nothing")]
    (places[0] / "commondir").write_text("/evil")
    (places[1] / "commondir").symlink_to("/evil")
    (places[2] / "commondir" / "deep").mkdir(parents=True)
    remove_planted([str(place) for place in places])
    assert {kind_of(f"{place}/commondir") for place in places} == {"absent"}


def test_a_note_outlives_the_gateway(tmp_path: Path) -> None:
    main = make_git_directory(tmp_path / "a\nb")
    folder = tmp_path / "scratch" / "bubblewrap-x"
    folder.mkdir(parents=True)
    remember([str(main)], str(folder))
    (main / "commondir").write_text("/evil")
    remove_planted_since(tmp_path / "scratch")
    assert kind_of(f"{main}/commondir") == "absent"
    remove_planted_since(tmp_path / "absent")
