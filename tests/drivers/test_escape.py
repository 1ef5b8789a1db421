"""Ways out of a bubblewrap sandbox that were seen to work elsewhere, or here, each tried for real."""

import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from drivers.base import DriverError, Sandbox
from drivers.bubblewrap import BubblewrapDriver
from drivers.spec import SandboxSpec
from tests.drivers.helpers import PATH, run, run_info

pytestmark = pytest.mark.real


@pytest.fixture
def driver(tmp_path: Path) -> BubblewrapDriver:
    home = tmp_path / "home"
    home.mkdir()
    return BubblewrapDriver({"PATH": PATH, "HOME": str(home)})


@pytest.fixture
async def sandbox(driver: BubblewrapDriver, tmp_path: Path) -> AsyncIterator[Sandbox]:
    async with driver.start(SandboxSpec(), run_info(tmp_path)) as started:
        yield started


async def python(sandbox: Sandbox, source: str) -> str:
    """What a Python program prints inside."""
    done = await run(sandbox, ["/usr/bin/env", "python3", "-c", source])
    assert done.status.returncode == 0, done.err
    return done.out


FIND_KERNEL_FILES = """
import os, stat
for top, folders, files in os.walk("/proc"):
    if top == "/proc":
        folders[:] = [name for name in folders if not name.isdigit() and name not in ("self", "thread-self")]
    for name in files:
        path = os.path.join(top, name)
        try:
            mode = os.lstat(path).st_mode
            if not stat.S_ISREG(mode):
                continue
            os.close(os.open(path, os.O_WRONLY))
            print("writable", path)
        except OSError:
            pass
"""


async def test_no_setting_of_the_kernel_can_be_written(sandbox: Sandbox) -> None:
    """`kernel.core_pattern` names a program that the kernel runs outside, as root: to write it is to own the host."""
    found = (await python(sandbox, FIND_KERNEL_FILES)).splitlines()
    assert [line for line in found if not line.startswith("writable /proc/pressure/")] == []


async def test_what_only_root_may_read_of_the_kernel_is_hidden(sandbox: Sandbox) -> None:
    private = [
        entry.path
        for entry in os.scandir("/proc")
        if not entry.name.isdigit() and entry.is_file(follow_symlinks=False) and not entry.stat().st_mode & stat.S_IROTH
    ]
    assert private, "every kernel has some"
    shown = await run(sandbox, ["cat", *private])
    assert shown.out == ""


async def test_the_record_cannot_be_moved_away_with_its_parent(driver: BubblewrapDriver, tmp_path: Path) -> None:
    records = tmp_path / "workspace" / ".iterion" / "deep" / "runs"
    records.mkdir(parents=True)
    (records / "events.jsonl").write_text("record")
    async with driver.start(SandboxSpec(), run_info(tmp_path, hidden=(records,))) as sandbox:
        script = (
            "for x in .iterion .iterion/deep .iterion/deep/runs; do mv $x away; rm -rf $x; done; echo x >.iterion/y"
        )
        await run(sandbox, script)
    assert (records / "events.jsonl").read_text() == "record"
    assert (tmp_path / "workspace" / ".iterion" / "y").exists(), "what is around it stays writable"


@pytest.mark.parametrize("place", ["runs", "runs/0190", "runs/0190/files"])
async def test_the_place_of_the_records_is_no_workspace(driver: BubblewrapDriver, tmp_path: Path, place: str) -> None:
    (tmp_path / "runs" / "0190" / "files").mkdir(parents=True)
    info = run_info(tmp_path, workspace=tmp_path / place, hidden=(tmp_path / "runs",))
    with pytest.raises(DriverError, match="where runs are recorded"):
        async with driver.start(SandboxSpec(), info):
            pass
