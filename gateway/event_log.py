"""The events.jsonl writer: what is emitted is never lost, and a bad disk never stops the run for long.

Theory of operation
-------------------
``EventLog.emit`` is synchronous. In the normal case it hands the line to the kernel with one ``write`` before
it returns, so a later kill -9 of this process cannot lose it: the page cache survives the process. There is
no user-space buffer to lose.

Two things can go wrong, and both lead to the same state, *behind*:

* the write fails (disk full, quota, I/O error) or is cut short;
* a write takes longer than ``slow_write_s``: the disk is slow, and the loop must not wait for it each time.

While behind, lines queue in memory in order, and ``run`` (a child task of the run) writes them from a worker
thread, trying again every ``retry_interval_s``. ``healthy`` is False, so the egress server takes no new
connections, and ``settled`` lets a connection that was already judged wait, for a bounded time, until its
line is really written. What can still be emitted is bounded by the connections that were open when it began.
When the queue is empty the log is *current* again and says how long it was behind (``audit_recovered``).

``seq`` has no gaps in any state: numbers are given out in ``emit`` and lines are written in that order by one
writer at a time (the loop while current, the worker thread while behind).
"""

import os
import sys
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import trio

from gateway.events import AuditRecovered, AuditStalled, Event, EventLine

__all__ = ["EventLog", "Subscriber", "read_events"]

Subscriber = Callable[[Event, str | None], None]


class EventLog:
    """Appends events to one run's events.jsonl.

    Args:
        path: the file; made with mode 0600 when it is not there, appended to when it is.
        run_id: written on every line.
        wall_clock: seconds since the epoch.
        slow_write_s: a write slower than this (seconds) takes the writer off the loop.
        retry_interval_s: seconds between two tries while the file cannot be written.
    """

    def __init__(
        self,
        path: Path,
        run_id: str,
        *,
        wall_clock: Callable[[], float] = time.time,
        write: Callable[[int, bytes], int] = os.write,
        slow_write_s: float = 0.1,
        retry_interval_s: float = 0.25,
    ) -> None:
        self.path: Final = path
        self.run_id: Final = run_id
        self.slow_write_s: Final = slow_write_s
        self.retry_interval_s: Final = retry_interval_s
        self._wall_clock = wall_clock
        self._write = write
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._encode = msgspec.json.Encoder().encode
        self._seq = 0
        self._second = -1
        self._second_text = ""
        self._backlog: deque[bytes] = deque()
        self._behind = False
        self._ending = False
        self._behind_since = 0.0
        self._late_lines = 0
        self._sync_wanted = False
        self._wake = trio.Event()
        self._caught_up = trio.Event()
        self._subscribers: list[Subscriber] = []

    @property
    def healthy(self) -> bool:
        """False while lines wait in memory: take no new work that would have to be recorded."""
        return not self._behind

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call ``subscriber(event, node_id)`` for each event from now on; it must return at once."""
        self._subscribers.append(subscriber)

    def emit(self, event: Event, *, node_id: str | None = None) -> None:
        """Record one event; returns when the kernel has the line, or it is queued (see the module's text).

        Args:
            event: what happened.
            node_id: the workflow node it belongs to.
        """
        self._append(event, node_id)
        if event.security:
            self._sync_wanted = True
            self._wake.set()

    def emit_last(self, event: Event) -> None:
        """Record the run's last event: nothing follows it, not even that the disk was slow. Only ``close`` is left."""
        if self._behind and self._drain():
            self._become_current()
        self._ending = True
        self._append(event, None)

    async def settled(self, timeout_s: float) -> bool:
        """Wait until every emitted line is written; True when it is.

        Args:
            timeout_s: seconds to wait at most.

        Does not checkpoint when nothing waits. Cancellation changes nothing.
        """
        if not self._behind:
            return True
        with trio.move_on_after(timeout_s):
            while self._behind:
                await self._caught_up.wait()
        return not self._behind

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Child task of the run: writes what could not be written at once, and fsyncs security events.

        Never returns. Cancellation leaves the queue as it is; ``close`` writes what is left.
        """
        task_status.started()
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            while self._behind:
                if not await trio.to_thread.run_sync(self._drain):
                    await trio.sleep(self.retry_interval_s)
                elif not self._backlog:
                    self._become_current()
            if self._sync_wanted:
                self._sync_wanted = False
                await trio.to_thread.run_sync(self._fsync)

    def close(self) -> None:
        """Write what waits, fsync and close; a line that still cannot be written goes to stderr."""
        if self._fd < 0:
            return
        if not self._drain():
            for line in self._backlog:
                sys.stderr.write(f"iterion: event not written to {self.path}: {line.decode(errors='replace')}")
        elif self._behind and not self._ending:
            self._become_current()
        self._fsync()
        os.close(self._fd)
        self._fd = -1

    def _append(self, event: Event, node_id: str | None) -> None:
        self._seq += 1
        line = EventLine(
            type=event.type,
            seq=self._seq,
            ts=self._timestamp(),
            run_id=self.run_id,
            node_id=node_id,
            data=event,
        )
        try:
            data = self._encode(line) + b"\n"
        except UnicodeEncodeError:  # the name of a file that is not UTF-8, as Python represents it
            data = self._encode(_printable(msgspec.to_builtins(line))) + b"\n"
        if self._behind:
            self._late_lines += 1
            self._backlog.append(data)
        else:
            self._write_now(data)
        for subscriber in self._subscribers:
            subscriber(event, node_id)

    def _write_now(self, data: bytes) -> None:
        began = time.perf_counter()
        try:
            written = self._write(self._fd, data)
        except OSError as error:
            self._fall_behind(data, error.strerror or str(error))
            return
        if written < len(data):
            self._fall_behind(data[written:], "the write was cut short (is the disk full?)")
        elif not self._ending and (elapsed := time.perf_counter() - began) > self.slow_write_s:
            self._fall_behind(b"", f"one write took {elapsed:.2f} s")

    def _fall_behind(self, rest: bytes, error: str) -> None:
        self._behind = True
        self._behind_since = time.perf_counter()
        self._late_lines = 1 if rest else 0
        if rest:
            self._backlog.append(rest)
        self._caught_up = trio.Event()
        self._wake.set()
        if not self._ending:
            self._append(AuditStalled(error=error), None)

    def _drain(self) -> bool:
        """Write queued lines in order; False when the file still refuses. One caller at a time."""
        while self._backlog:
            data = self._backlog[0]
            try:
                written = self._write(self._fd, data)
            except OSError:
                return False
            if written < len(data):
                self._backlog[0] = data[written:]
                return False
            self._backlog.popleft()
        return True

    def _become_current(self) -> None:
        lines, since = self._late_lines, self._behind_since
        self._behind = False
        self._caught_up.set()
        self._append(AuditRecovered(lines=lines, duration_ms=int((time.perf_counter() - since) * 1000)), None)

    def _fsync(self) -> None:
        try:
            os.fsync(self._fd)
        except OSError as error:  # a pipe or a full disk: the lines themselves are with the kernel
            if self._fd < 0 or error.errno is None:
                raise

    def _timestamp(self) -> str:
        now = self._wall_clock()
        second = int(now)
        if second != self._second:
            self._second = second
            self._second_text = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{self._second_text}.{int((now - second) * 1000):03d}Z"


def _printable(value: Any) -> Any:
    """Return a value with surrogates escaped in every text in it: JSON cannot hold them."""
    match value:
        case str():
            return value.encode(errors="backslashreplace").decode()
        case dict():
            return {key: _printable(each) for key, each in value.items()}
        case list() | tuple():
            return [_printable(each) for each in value]
    return value


def read_events(path: Path) -> list[dict[str, Any]]:
    """Read an events.jsonl back, in order.

    Args:
        path: the file.

    Returns:
        One dictionary a line. A last line that a crash cut short is left out.

    Raises:
        OSError: the file cannot be read.
        ValueError: a line other than the last is not an event.
    """
    lines = path.read_bytes().split(b"\n")
    complete = lines[:-1]  # what follows the last newline is empty or torn
    return [msgspec.json.decode(line) for line in complete if line]
