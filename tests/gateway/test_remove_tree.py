"""Everything goes, whatever its permissions, and nothing outside."""

import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

from gateway.remove_tree import remove_tree


def test_remove_tree_takes_absent_paths_files_and_unreadable_directories(tmp_path: Path) -> None:
    assert remove_tree(tmp_path / "absent")
    (tmp_path / "file").touch()
    assert remove_tree(tmp_path / "file")
    closed = tmp_path / "top" / "closed"
    (closed / "inner").mkdir(parents=True)
    (closed / "inner").chmod(0)
    closed.chmod(0)
    assert remove_tree(tmp_path / "top")


@pytest.mark.real
def test_remove_tree_gives_back_permissions_as_an_ordinary_user() -> None:
    program = textwrap.dedent(
        """
        import os, pathlib, sys
        from gateway.remove_tree import remove_tree
        base = pathlib.Path(sys.argv[1])
        if os.geteuid() == 0:
            os.chown(base, 65534, 65534)
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        (base / "a" / "b").mkdir(parents=True)
        (base / "a" / "b" / "file").touch()
        os.chmod(base / "a" / "b", 0)
        os.chmod(base / "a", 0)
        sys.exit(0 if remove_tree(base / "a") and not os.listdir(base) else 1)
        """
    )
    with tempfile.TemporaryDirectory() as base:
        done = subprocess.run([sys.executable, "-c", program, base], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_remove_tree_says_when_something_is_left() -> None:
    assert not remove_tree(Path(f"/proc/{os.getpid()}/fdinfo"))  # nobody can remove what the kernel shows
