"""Starting, measuring and ending the programs that a benchmark compares."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

CLOCK_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A started program: its root process and the loopback port it listens on."""

    name: str
    pid: int
    port: int

    def cpu_seconds(self) -> float:
        """Return the user and system time that the process tree has used, in seconds."""
        ticks = sum(int(field) for pid in process_tree(self.pid) for field in _stat_fields(pid)[11:13])
        return ticks / CLOCK_TICKS_PER_S

    def resident_bytes(self) -> int:
        """Return the resident memory of the process tree, in bytes."""
        pages = 0
        for pid in process_tree(self.pid):
            try:
                pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            except (OSError, IndexError):
                continue
        return pages * os.sysconf("SC_PAGE_SIZE")


def _stat_fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat behind the command name, empty where the process is gone (proc(5))."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def process_tree(root: int) -> list[int]:
    """Return the process and all its living descendants."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := _stat_fields(int(entry))):
            children.setdefault(int(fields[1]), []).append(int(entry))
    tree = [root]
    for pid in tree:
        tree += children.get(pid, [])
    return tree


def free_port() -> int:
    """Return a loopback TCP port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for_port(name: str, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"{name} ended with {process.returncode}; its output is in {log}")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise RuntimeError(f"{name} did not listen on port {port} within {START_TIMEOUT_S:g} s; see {log}")


@contextmanager
def running(name: str, argv: Sequence[str], port: int, log: Path) -> Iterator[Running]:
    """Run a server in its own process group until the block is left, then end the whole group."""
    with log.open("wb") as output:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)
    try:
        _wait_for_port(name, process, port, log)
        yield Running(name=name, pid=process.pid, port=port)
    finally:
        end_group(process)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process group that we started: SIGTERM, then SIGKILL after STOP_TIMEOUT_S."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            continue
    process.wait(STOP_TIMEOUT_S)
