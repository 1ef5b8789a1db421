"""The record of a run: every line in order, and none lost whatever the disk does."""

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from gateway.event_log import EventLog, read_events
from gateway.events import AuditRecovered, Event, NetworkClosed, NodeStarted, PolicyFindings, RunCancelled


class FaultyFile:
    """A ``write`` that fails, is cut short or is slow when told so."""

    def __init__(self) -> None:
        self.full = False
        self.most_bytes: int | None = None
        self.slow_s = 0.0

    def write(self, fd: int, data: bytes) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self.slow_s:
            time.sleep(self.slow_s)
        if self.most_bytes is not None:
            data = data[: self.most_bytes]
        return os.write(fd, data)


def node(number: int) -> NodeStarted:
    return NodeStarted(kind="tool", iteration=number)


def is_healthy(log: EventLog) -> bool:
    return log.healthy


def sequence(events: list[dict[str, Any]]) -> list[int]:
    return [event["seq"] for event in events]


def test_a_line_has_the_documented_shape(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl", "r1", wall_clock=lambda: 1_767_225_600.0785)
    log.emit(node(1), node_id="build")
    log.emit(
        NetworkClosed(host="a.test", port=443, connection=1, bytes_up=2, bytes_down=3, duration_ms=4, outcome="closed")
    )
    log.close()
    first, second = read_events(log.path)
    assert first == {
        "type": "node_started",
        "seq": 1,
        "ts": "2026-01-01T00:00:00.078Z",
        "run_id": "r1",
        "node_id": "build",
        "data": {"kind": "tool", "iteration": 1},
    }
    assert "node_id" not in second
    assert second["data"]["bytes_down"] == 3
    assert (tmp_path / "events.jsonl").stat().st_mode & 0o777 == 0o600


def test_a_line_is_with_the_kernel_when_emit_returns(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl", "r1")
    for number in range(1, 6):
        log.emit(node(number))
        assert sequence(read_events(log.path)) == list(range(1, number + 1))
    log.close()


def test_subscribers_see_each_event_with_its_node(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl", "r1")
    seen: list[tuple[Event, str | None]] = []
    log.subscribe(lambda event, node_id: seen.append((event, node_id)))
    log.emit(node(1), node_id="n")
    log.close()
    assert seen == [(node(1), "n")]


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"seq":1}\n{"seq":2')
    assert sequence(read_events(path)) == [1]


def test_a_line_in_the_middle_that_is_no_event_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"{oops}\n{}\n")
    with pytest.raises(ValueError, match="malformed"):
        read_events(path)


async def test_H65_a_full_disk_delays_lines_and_loses_none(tmp_path: Path) -> None:
    file = FaultyFile()
    log = EventLog(tmp_path / "events.jsonl", "r1", write=file.write, retry_interval_s=0.01)
    recovered = trio.Event()
    log.subscribe(lambda event, _: recovered.set() if isinstance(event, AuditRecovered) else None)
    async with trio.open_nursery() as nursery:
        await nursery.start(log.run)
        log.emit(node(1))
        assert is_healthy(log)
        file.full = True
        log.emit(node(2))
        log.emit(node(3))
        assert not is_healthy(log)
        assert not await log.settled(0.05)
        file.full = False
        assert await log.settled(10.0)
        await recovered.wait()
        assert is_healthy(log)
        log.emit(node(4))
        nursery.cancel_scope.cancel()
    log.close()
    events = read_events(log.path)
    assert sequence(events) == list(range(1, len(events) + 1))
    kinds = [event["type"] for event in events]
    assert kinds == [
        "node_started",
        "node_started",
        "audit_stalled",
        "node_started",
        "audit_recovered",
        "node_started",
    ]
    assert events[4]["data"]["lines"] == 3


async def test_a_write_that_is_cut_short_is_completed(tmp_path: Path) -> None:
    file = FaultyFile()
    log = EventLog(tmp_path / "events.jsonl", "r1", write=file.write, retry_interval_s=0.01)
    async with trio.open_nursery() as nursery:
        await nursery.start(log.run)
        file.most_bytes = 7
        log.emit(node(1))
        assert not log.healthy
        await trio.sleep(0.05)
        file.most_bytes = None
        assert await log.settled(10.0)
        nursery.cancel_scope.cancel()
    log.close()
    assert sequence(read_events(log.path)) == [1, 2, 3]


async def test_a_slow_disk_takes_the_writer_off_the_loop(tmp_path: Path) -> None:
    file = FaultyFile()
    log = EventLog(tmp_path / "events.jsonl", "r1", write=file.write, slow_write_s=0.02)
    async with trio.open_nursery() as nursery:
        await nursery.start(log.run)
        file.slow_s = 0.05
        log.emit(node(1))
        assert not log.healthy
        began = time.perf_counter()
        for number in range(100):
            log.emit(node(number))
        assert time.perf_counter() - began < 0.05 * 100
        file.slow_s = 0.0
        assert await log.settled(60.0)
        nursery.cancel_scope.cancel()
    log.close()
    events = read_events(log.path)
    assert sequence(events) == list(range(1, len(events) + 1))
    assert sum(event["type"] == "node_started" for event in events) == 101


def test_close_writes_what_waits_and_says_what_it_could_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = FaultyFile()
    log = EventLog(tmp_path / "late.jsonl", "r1", write=file.write)
    file.full = True
    log.emit(node(1))
    file.full = False
    log.close()
    log.close()
    assert [event["type"] for event in read_events(log.path)] == [
        "node_started",
        "audit_stalled",
        "audit_recovered",
    ]

    lost = EventLog(tmp_path / "lost.jsonl", "r1", write=file.write)
    file.full = True
    lost.emit(node(1))
    lost.close()
    assert capsys.readouterr().err.count("event not written to") == 2


async def test_security_events_are_synced(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl", "r1")
    async with trio.open_nursery() as nursery:
        await nursery.start(log.run)
        log.emit(RunCancelled(reason="SIGINT", duration_ms=1))
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    log.close()
    assert sequence(read_events(log.path)) == [1]


def test_a_file_that_cannot_be_synced_is_still_written(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        log = EventLog(fifo, "r1")
        log.emit(node(1))
        log.close()
        assert os.read(reader, 1000).startswith(b'{"type":"node_started"')
    finally:
        os.close(reader)


def test_H61_kill_9_loses_no_event_that_emit_returned_for(tmp_path: Path) -> None:
    script = """
import sys
from pathlib import Path
from gateway.event_log import EventLog
from gateway.events import NodeStarted
log = EventLog(Path(sys.argv[1]), "r1")
number = 0
while True:
    number += 1
    log.emit(NodeStarted(kind="tool", iteration=number))
    print(number, flush=True)
"""
    path = tmp_path / "events.jsonl"
    with subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        for _ in range(500):
            child.stdout.readline()
        child.send_signal(signal.SIGKILL)
        reported = [int(line) for line in child.stdout.read().split(b"\n")[:-1] if line]
    numbers = sequence(read_events(path))
    assert numbers == list(range(1, len(numbers) + 1))
    assert numbers[-1] >= max(reported, default=500)


def test_a_name_that_is_not_utf_8_does_not_stop_the_record(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl", "run-1")
    found = PolicyFindings(mode="allowlist", preset=None, rules=1, findings=("pol\udcffcy.yaml:3: x",))
    for event in (found, node(1)):
        log.emit(event, node_id="n\udc80")
    log.close()
    first, second = read_events(tmp_path / "events.jsonl")
    assert (first["seq"], first["data"]["findings"], first["node_id"]) == (1, ["pol\\udcffcy.yaml:3: x"], "n\\udc80")
    assert (first["type"], first["data"]["rules"]) == ("policy_findings", 1)
    assert second["data"] == {"kind": "tool", "iteration": 1}


@pytest.mark.parametrize("trouble", ["slow", "full", "short", "behind", "none"])
def test_nothing_follows_the_last_event(tmp_path: Path, trouble: str) -> None:
    file = FaultyFile()
    log = EventLog(tmp_path / "events.jsonl", "r1", write=file.write, slow_write_s=0.01)
    log.emit(node(1))
    if trouble == "behind":
        file.full = True
        log.emit(node(2))
        file.full = False
    file.slow_s = 0.02 if trouble == "slow" else 0.0
    file.full = trouble == "full"
    file.most_bytes = 10 if trouble == "short" else None
    log.emit_last(RunCancelled(reason="SIGINT", duration_ms=1))
    file.full, file.most_bytes = False, None
    log.close()
    events = read_events(log.path)
    assert sequence(events) == list(range(1, len(events) + 1))
    types = [event["type"] for event in events]
    assert types[0] == "node_started"
    assert types[-1] == "run_cancelled"
    assert types[1:-1] == (["node_started", "audit_stalled", "audit_recovered"] if trouble == "behind" else [])
