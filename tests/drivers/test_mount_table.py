"""Files that mounts show under several paths: which those are, and that a sandbox has none of them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from drivers.mount_table import MountPoint, MountTable, read_mount_table

ROOT = Path(__file__).parents[2]


def table(folder: Path, *lines: str) -> MountTable:
    file = folder / "mountinfo"
    file.write_text("".join(f"{number} 1 {line} rw - ext4 /dev/x rw\n" for number, line in enumerate(lines)))
    return read_mount_table(str(file))


def test_a_mount_that_nothing_shares_gives_no_other_paths(tmp_path: Path) -> None:
    assert table(tmp_path, "8:1 / /", "8:2 / /data").spellings("/etc/shadow") == ("/etc/shadow",)


def test_names_are_read_as_they_are(tmp_path: Path) -> None:
    read = table(tmp_path, r"8:1 / /", r"8:1 /a\040b /c\134d")
    assert read.shared[1] == MountPoint(device=b"8:1", root="/a b", point="/c\\d")


def test_every_path_is_found(tmp_path: Path) -> None:
    disk, part = tmp_path / "disk", tmp_path / "disk" / "homes" / "jo"
    part.mkdir(parents=True)
    # The table says that /homes/jo of a file system is at `disk/homes/jo` and at `home`; a link stands in for that.
    (tmp_path / "keys").write_text("")
    os.link(tmp_path / "keys", part / "key")
    home = tmp_path / "home"
    home.mkdir()
    os.link(part / "key", home / "key")
    read = table(tmp_path, f"8:1 / {disk}", f"8:1 /homes/jo {home}", "8:9 / /")
    assert read.spellings(f"{home}/key") == (f"{home}/key", f"{part}/key")
    assert read.spellings(f"{part}/key") == (f"{part}/key", f"{home}/key")
    assert read.spellings(f"{home}/absent") == (f"{home}/absent",)


def test_what_a_later_mount_hides_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    read = table(tmp_path, "8:9 / /", f"8:1 / {tmp_path}/a", f"8:1 / {tmp_path}/b")
    assert read.spellings(f"{tmp_path}/a") == (f"{tmp_path}/a",)


def test_lines_that_are_none_and_tables_that_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "short").write_text("1 2 3\n\n")
    assert read_mount_table(str(tmp_path / "short")).shared == ()
    assert read_mount_table(str(tmp_path / "absent")) == MountTable()


SCRIPT = """
set -e
mount --make-rprivate /
mount --bind "$1/disk" "$1/shown"
mount --bind "$1/shown/home" "$1/home"
mount --bind /etc "$1/shown/etc"
cd "$1/disk/workspace"
exec "$2" -c "from gateway.cli.main import main; main()" sandbox run --quiet -- \\
    sh -c 'cat "$0/shown/home/.ssh/key" "$0/shown/etc/shadow" "$0/disk/home/.ssh/key" "$0/home/.ssh/key"; echo ran' "$1"
"""


@pytest.mark.real
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_no_credential_under_another_path() -> None:
    folder = Path("/srv/iterion-mounts")  # not in /tmp, which a sandbox does not see
    shutil.rmtree(folder, ignore_errors=True)
    try:
        for name in ("disk/home/.ssh", "disk/workspace", "disk/etc", "shown", "home"):
            (folder / name).mkdir(parents=True)
        (folder / "disk/home/.ssh/key").write_text("SECRET")
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", SCRIPT, "sh", str(folder), sys.executable],
            env={
                **os.environ,
                "HOME": str(folder / "home"),
                "ITERION_HOME": str(folder / "store"),
                "PYTHONPATH": str(ROOT),
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.stdout == "ran\n", done.stderr
    finally:
        shutil.rmtree(folder)
