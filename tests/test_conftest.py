"""The leak check itself: it must see what it is there for, and nothing else."""

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.support import leaks
from tests.support.ordinary_user import OrdinaryUser


def test_a_quiet_test_has_no_leaks() -> None:
    before = leaks.Snapshot.take()
    assert leaks.wait_for_leaks(before) == []


def test_a_child_process_is_seen() -> None:
    before = leaks.Snapshot.take()
    with subprocess.Popen(["sleep", "30"]) as child:
        left = leaks.wait_for_leaks(before, 0)
        child.kill()
    assert left == [f"processes: sleep (pid {child.pid})"]


def test_an_orphan_is_seen_by_its_mark() -> None:
    before = leaks.Snapshot.take()
    # The shell ends at once, so that its child is nobody's of ours any more.
    answer = subprocess.run(
        ["sh", "-c", "sleep 30 >/dev/null 2>&1 & echo $!"], capture_output=True, text=True, check=True
    )
    pid = int(answer.stdout)
    try:
        assert f"processes: sleep (pid {pid})" in leaks.wait_for_leaks(before, 0)
    finally:
        os.kill(pid, 9)


def test_a_temporary_file_and_a_pipe_are_seen() -> None:
    before = leaks.Snapshot.take()
    reader, writer = os.pipe()
    folder = Path(tempfile.mkdtemp(prefix="forgotten-"))
    try:
        left = leaks.wait_for_leaks(before, 0)
    finally:
        os.close(reader)
        os.close(writer)
        folder.rmdir()
    assert f"files: {folder}" in left
    assert any(line.startswith("descriptors: pipe:") for line in left)


@pytest.mark.real
def test_the_ordinary_user_has_no_privileges_and_can_import_us(ordinary_user: OrdinaryUser) -> None:
    code = "import os, trio, gateway, policy, drivers; print(os.geteuid()); open('/etc/passwd', 'a')"
    answer = ordinary_user.run([ordinary_user.python, "-c", code])
    assert answer.stdout == f"{ordinary_user.uid}\n"
    assert ordinary_user.uid != 0
    assert "PermissionError" in answer.stderr
