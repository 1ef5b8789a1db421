"""Ways out of a bubblewrap sandbox that were seen to work elsewhere, or here, each tried for real."""

import os
import shutil
import socket
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


FIND_FAMILIES = """
import socket
for family in range(64):
    for kind in (1, 2, 3, 4, 5):
        try:
            socket.socket(family, kind).close()
            print(family)
        except OSError:
            pass
"""


async def test_no_socket_outside_of_the_network_namespace(sandbox: Sandbox) -> None:
    """A vsock reaches the hypervisor, and listeners of this host, from an empty network namespace."""
    found = {int(line) for line in (await python(sandbox, FIND_FAMILIES)).splitlines()}
    assert found == {socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK}


CALL = """
import ctypes, errno, sys
libc = ctypes.CDLL(None, use_errno=True)
for call in {calls!r}:
    result = libc.syscall(*call)
    print(errno.errorcode.get(ctypes.get_errno()) if result < 0 else "done")
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers are those of x86_64")
async def test_system_calls_that_reach_past_the_namespaces(sandbox: Sandbox) -> None:
    calls = {
        "io_uring_setup": ((425, 8, bytes(256)), "ENOSYS"),
        "socket of the x32 kind": ((0x40000000 + 41, 40, 1, 0), "ENOSYS"),
        "add_key": ((248, b"user", b"name", b"value", 5, -3), "EPERM"),
        "request_key: the kernel would ask DNS": ((249, b"dns_resolver", b"data.example", b"", 0), "EPERM"),
        "keyctl: the user's keyring": ((250, 0, -4, 0), "EPERM"),
        "keyctl: a named session keyring": ((250, 1, b"name"), "EPERM"),
        "syslog": ((103, 3, bytes(64), 64), "EPERM"),
        "perf_event_open": ((298, bytes(128), 0, -1, -1, 0), "EPERM"),
        "open_by_handle_at": ((304, -100, bytes(64), 0), "EPERM"),
        "bpf": ((321, 0, bytes(64), 64), "EPERM"),
        "userfaultfd": ((323, 0), "EPERM"),
    }
    said = (await python(sandbox, CALL.format(calls=[call for call, _ in calls.values()]))).split()
    assert dict(zip(calls, said, strict=True)) == {name: expected for name, (_, expected) in calls.items()}


def write_privately(path: Path) -> None:
    if path.parent.name != "etc":
        path.parent.chmod(0o700)
    path.write_text("SECRET")
    path.chmod(0o600)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root owns files of the system")
async def test_what_only_root_may_read_is_hidden(driver: BubblewrapDriver, tmp_path: Path) -> None:
    place = Path("/var/lib/iterion-test-private")
    workspace = place / "workspace"
    secrets = (Path("/etc/iterion-test-token"), place / "key")
    try:
        workspace.mkdir(parents=True)
        for secret in secrets:
            write_privately(secret)
        async with driver.start(SandboxSpec(), run_info(tmp_path, workspace=workspace)) as sandbox:
            done = await run(sandbox, f"cat {secrets[0]} {secrets[1]}; echo x >{workspace}/file")
        assert done.out == ""
        assert (workspace / "file").read_text() == "x\n", "a workspace below something private is shown all the same"
    finally:
        shutil.rmtree(place)
        secrets[0].unlink(missing_ok=True)


async def test_a_command_cannot_stop_the_process_that_reports_its_end(sandbox: Sandbox) -> None:
    done = await run(sandbox, "kill -STOP $PPID; sleep 0.1; kill -STOP $PPID; exit 3", timeout_s=5)
    assert done.status.returncode == 3
