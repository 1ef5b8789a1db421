"""What others may not read is found, and nothing else is."""

import os
from pathlib import Path

from drivers.private_files import PrivateFile, private_files


def test_what_others_may_not_read_is_found(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    for name, mode in (("token", 0o600), ("open/group", 0o640), ("open/public", 0o644), ("executable", 0o711)):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(mode)
    for name, mode in (("closed", 0o700), ("listed", 0o754), ("entered", 0o711)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "below").write_text("")
        (tmp_path / name).chmod(mode)
    (tmp_path / "link").symlink_to("token")
    os.mkfifo(tmp_path / "pipe", 0o600)
    found = {(entry.path.removeprefix(f"{tmp_path}/"), entry.is_directory) for entry in private_files(str(tmp_path), 5)}
    assert found == {
        ("token", False),
        ("open/group", False),
        ("executable", False),
        ("closed", True),
        ("listed", True),
        ("entered", True),
    }


def test_no_deeper_than_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a").chmod(0o755)
    (tmp_path / "a" / "b").chmod(0o755)
    for name in ("a/x", "a/b/y"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o600)
    assert list(private_files(str(tmp_path), 2)) == [PrivateFile(path=f"{tmp_path}/a/x", is_directory=False)]


def test_a_place_that_is_not_there(tmp_path: Path) -> None:
    assert list(private_files(str(tmp_path / "absent"), 3)) == []
