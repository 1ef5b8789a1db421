"""The stack of layers knows what is visible where."""

import os
from pathlib import Path

import pytest

from drivers.view import View, is_reachable


@pytest.fixture
def view() -> View:
    return View(empty_file="/e/file", empty_directory="/e/dir")


def test_the_last_layer_above_a_path_decides(view: View) -> None:
    assert view.what_is_at("/usr/bin") is None
    view.show("/usr")
    assert view.is_visible("/usr/bin")
    view.private("/usr/local", 0o700)
    assert view.what_is_at("/usr/local/bin") is None
    assert not view.is_visible("/usr/local")
    view.show("/data", "/usr/local/data", writable=True)
    assert view.what_is_at("/usr/local/data/x") == "/data/x"
    assert view.places_of("/data/x") == ["/usr/local/data/x"]
    view.mask("/usr/local/data/x", directory=False)
    assert view.places_of("/data/x") == []
    assert view.places_of("/usr/local/x") == []


def test_options(view: View) -> None:
    view.show("/usr")
    view.show_if_there("/opt")
    view.show("/w", writable=True)
    view.private("/tmp", 0o1777, sealed=True)
    view.mask("/usr/s", directory=True)
    view.plain("--dir", "/home")
    assert view.finish() == [
        *("--ro-bind", "/usr", "/usr", "--ro-bind-try", "/opt", "/opt", "--bind", "/w", "/w"),
        *("--perms", "1777", "--tmpfs", "/tmp", "--ro-bind", "/e/dir", "/usr/s", "--dir", "/home"),
        *("--remount-ro", "/tmp", "--remount-ro", "/"),
    ]


def test_what_cannot_be_reached_need_not_be_masked(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    (closed / "file").touch()
    assert is_reachable(str(closed / "file"))
    assert not is_reachable(str(closed / "none"))
    if os.geteuid() == 0:
        os.chown(closed, 12345, 12345)
        closed.chmod(0o700)
        assert not is_reachable(str(closed / "file"))
        closed.chmod(0o701)
        assert is_reachable(str(closed / "file"))
        os.chown(closed, 12345, os.getegid())
        assert not is_reachable(str(closed / "file"))
        closed.chmod(0o710)
        assert is_reachable(str(closed / "file"))
        assert not is_reachable(str(closed / "none" / "deeper"))
