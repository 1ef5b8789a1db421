"""The relay: every open tunnel of one egress server, moved by one task.

Theory of operation
-------------------
A connection's own task opens a ``Tunnel`` and waits in ``Relay.carry`` until it is over. It keeps owning both
sockets: it made them, and it closes them. In between, the relay's task moves the bytes: it waits for a private
*edge-triggered* epoll (itself a descriptor that trio can wait for) and lets the pumps of whatever is ready take
turns. So an idle tunnel costs one parked task and a few small objects: no pump tasks, no buffers, no timers.

* Each socket is registered once, for reading; for writing only after a send would have blocked, for then an
  edge is due when room appears.
* Between two awaits of the relay's task nothing else runs, so a tunnel is never dropped under a pump's hands.
  A batch of events may still name a tunnel that ended earlier in the same batch: it is no longer in the table.
* A direction that has spent its turn queues behind the others, and so does everybody once a round has moved
  ``ROUND_TURNS`` turns' worth of bytes; the task passes a checkpoint after each round. A pump is queued exactly
  while its state is MORE.
* Deadlines are looked at by one sweeper task, at the earliest of them or a short coalescing interval later.
  Every timeout is counted from an event of its tunnel, so none can fall due before one ``shortest`` interval
  after the last sweep, which is when the sweeper wakes at the latest.

A failure in one tunnel ends that tunnel: expected ones become its outcome, a bug is raised in its owner's task.
"""

import select
import socket
from collections import deque
from enum import StrEnum
from typing import Final

import outcome as task_outcome
import trio
from trio.lowlevel import Abort, RaiseCancelT

from gateway.egress.limits import Limits
from gateway.egress.pump import Gate, GateRefused, Pump, Shared, SinkLost, SourceLost, Turn

__all__ = ["Ending", "Relay", "Tunnel"]

READ: Final = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET
READ_WRITE: Final = READ | select.EPOLLOUT
ENDED: Final = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
READABLE: Final = select.EPOLLIN | ENDED
WRITABLE: Final = select.EPOLLOUT | select.EPOLLHUP | select.EPOLLERR
BATCH: Final = 256
"Events taken from the kernel at a time."
ROUND_TURNS: Final = 4


class Ending(StrEnum):
    """How a tunnel ended; the ``outcome`` of its ``network_closed`` event."""

    COMPLETED = "completed"
    "Both sides finished sending and every byte was delivered."
    CLIENT_RESET = "client_reset"
    UPSTREAM_RESET = "upstream_reset"
    IDLE_TIMEOUT = "idle_timeout"
    HALF_CLOSE_TIMEOUT = "half_close_timeout"
    TOTAL_TIMEOUT = "total_timeout"
    HANDSHAKE_TIMEOUT = "handshake_timeout"
    REFUSED = "refused"
    "The gate refused what the client sent first; ``refusal`` says why."
    CANCELLED = "cancelled"
    FAILED = "internal_error"
    "A bug, raised in the task of the tunnel's owner."


class Tunnel:
    """Two connected, non-blocking sockets and what has moved between them.

    Args:
        client, upstream: stay the caller's, who closes them afterwards.
        gate: judges what the client sends first, or None.

    After ``Relay.carry``: ``ending``, ``refusal``, ``bytes_up`` and ``bytes_down`` (bytes delivered).
    """

    __slots__ = (
        "active_at",
        "client",
        "down",
        "ending",
        "judging_since",
        "opened_at",
        "owner",
        "refusal",
        "up",
        "upstream",
    )

    def __init__(self, client: socket.socket, upstream: socket.socket, gate: Gate | None = None) -> None:
        self.client = client
        self.upstream = upstream
        self.up = Pump(client, upstream, gate)
        self.down = Pump(upstream, client)
        self.opened_at = 0.0
        self.active_at = 0.0
        self.judging_since: float | None = None
        self.ending: Ending | None = None
        self.refusal: GateRefused | None = None
        self.owner: trio.lowlevel.Task | None = None

    @property
    def bytes_up(self) -> int:
        """Bytes delivered to the upstream."""
        return self.up.moved

    @property
    def bytes_down(self) -> int:
        """Bytes delivered to the client."""
        return self.down.moved


class _Side:
    """One registered socket: the pump that reads from it and the pump that writes to it."""

    __slots__ = ("fd", "reader", "tunnel", "watched_for_writing", "writer")

    def __init__(self, tunnel: Tunnel, reader: Pump, writer: Pump) -> None:
        self.tunnel = tunnel
        self.reader = reader
        self.writer = writer
        self.fd = reader.source.fileno()
        self.watched_for_writing = False


class Relay:
    """Moves the bytes of all tunnels of one egress server.

    Args:
        limits: the tunnel and relay limits are used.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits: Final = limits
        self._shared = Shared(
            chunk_bytes=limits.relay_chunk_bytes,
            pipe_bytes=limits.relay_pipe_bytes,
            max_pipes=limits.max_relay_pipes,
            turn_bytes=limits.relay_turn_bytes,
        )
        self._epoll = select.epoll()
        self._sides: dict[int, _Side] = {}
        self._ready: deque[tuple[Tunnel, Pump]] = deque()
        self._occupied = trio.Event()
        self._round_left = 0
        timeouts = [limits.idle_timeout_s, limits.half_close_timeout_s, limits.handshake_timeout_s]
        self._shortest_s: Final = min([*timeouts, limits.total_timeout_s or timeouts[0]])
        self._coalesce_s: Final = self._shortest_s / 50

    @property
    def open_tunnels(self) -> int:
        """Tunnels carried now."""
        return len(self._sides) // 2

    def close(self) -> None:
        """Close the epoll and the spare pipes; ``run`` must have ended."""
        self._epoll.close()
        self._shared.pipes.close()

    async def run(self) -> None:
        """Child task of the server: carry tunnels until cancelled. Cancellation leaves sockets to their owners."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._sweep)
            await self._move()

    async def carry(self, tunnel: Tunnel, first: bytes = b"", first_down: bytes = b"") -> None:
        """Relay both directions until the tunnel is over; then ``tunnel.ending`` says how it ended.

        Args:
            tunnel: a tunnel that no relay has carried before.
            first: bytes the client has already sent, in front of what is still in its socket.
            first_down: the same of the upstream.

        Raises:
            OSError: the sockets cannot be watched (out of memory or epoll watches).

        Cancellation ends the tunnel with ``Ending.CANCELLED`` at once; it closes nothing.
        """
        tunnel.opened_at = tunnel.active_at = trio.current_time()
        try:
            if first:
                tunnel.up.preload(first)
                if tunnel.up.judging:
                    tunnel.judging_since = tunnel.active_at
            if first_down:
                tunnel.down.preload(first_down)
            self._add(tunnel)
        except GateRefused as refusal:
            tunnel.ending, tunnel.refusal = Ending.REFUSED, refusal
            self._release(tunnel)
            return
        except SinkLost as lost:
            tunnel.ending = self._reset_by(tunnel, lost.sock)
            self._release(tunnel)
            return
        tunnel.owner = trio.lowlevel.current_task()

        def cancelled(_: RaiseCancelT) -> Abort:
            self._drop(tunnel, Ending.CANCELLED)
            return Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(cancelled)

    def _add(self, tunnel: Tunnel) -> None:
        client = _Side(tunnel, tunnel.up, tunnel.down)
        upstream = _Side(tunnel, tunnel.down, tunnel.up)
        self._epoll.register(client.fd, READ)
        try:
            self._epoll.register(upstream.fd, READ)
        except OSError:
            self._epoll.unregister(client.fd)
            raise
        self._sides[client.fd] = client
        self._sides[upstream.fd] = upstream
        for pump in (tunnel.up, tunnel.down):
            if pump.state is Turn.BLOCKED:  # what was sent first did not fit at once
                self._watch_for_writing(pump)
        if not self._occupied.is_set():
            self._occupied.set()

    def _release(self, tunnel: Tunnel) -> None:
        tunnel.up.release(self._shared)
        tunnel.down.release(self._shared)

    def _drop(self, tunnel: Tunnel, ending: Ending) -> None:
        tunnel.ending = ending
        for fd in (tunnel.client.fileno(), tunnel.upstream.fileno()):
            del self._sides[fd]
            if ending is not Ending.COMPLETED:  # else its owner closes both now, which does it as well
                self._epoll.unregister(fd)
        self._release(tunnel)

    def _end(self, tunnel: Tunnel, ending: Ending) -> None:
        self._drop(tunnel, ending)
        assert tunnel.owner is not None
        trio.lowlevel.reschedule(tunnel.owner)

    async def _move(self) -> None:
        epoll, ready, sides = self._epoll, self._ready, self._sides
        round_bytes = self.limits.relay_turn_bytes * ROUND_TURNS
        while True:
            if ready:
                await trio.lowlevel.checkpoint()
            else:
                await trio.lowlevel.wait_readable(epoll.fileno())
            now = trio.current_time()
            self._round_left = round_bytes
            for _ in range(len(ready)):
                if self._round_left <= 0:
                    break
                tunnel, pump = ready.popleft()
                if tunnel.ending is None:
                    tunnel.active_at = now
                    self._turn(tunnel, pump)
            for fd, events in epoll.poll(0, BATCH):
                side = sides.get(fd)
                if side is not None:
                    self._notice(side, events, now)

    def _notice(self, side: _Side, events: int, now: float) -> None:
        """Let the pumps of one socket run after an event on it."""
        tunnel, reader, writer = side.tunnel, side.reader, side.writer
        tunnel.active_at = now
        if events & READABLE:
            if events & ENDED:
                reader.final = True
            reader.readable = True
            if reader.state is Turn.IDLE:
                self._turn(tunnel, reader)
            elif events & select.EPOLLERR and reader.state is Turn.BLOCKED:
                # The sender is gone and the receiver does not take what it sent: nobody is left to wait for.
                self._end(tunnel, self._reset_by(tunnel, reader.source))
        if events & WRITABLE and writer.state is Turn.BLOCKED and tunnel.ending is None:
            self._turn(tunnel, writer)

    def _turn(self, tunnel: Tunnel, pump: Pump) -> None:
        """Give one pump its turn, now or in the next round, and act on what it says."""
        if self._round_left <= 0:
            pump.state = Turn.MORE
            self._ready.append((tunnel, pump))
            return
        moved = pump.moved
        try:
            state = pump.turn(self._shared)
        except (SourceLost, SinkLost) as lost:
            self._end(tunnel, self._reset_by(tunnel, lost.sock))
            return
        except GateRefused as refusal:
            tunnel.refusal = refusal
            self._end(tunnel, Ending.REFUSED)
            return
        except Exception as bug:  # not the relay's to judge: the tunnel's owner hears of it
            self._drop(tunnel, Ending.FAILED)
            assert tunnel.owner is not None
            trio.lowlevel.reschedule(tunnel.owner, task_outcome.Error(bug))
            return
        self._round_left -= pump.moved - moved
        if state is Turn.MORE:
            self._ready.append((tunnel, pump))
        elif state is Turn.BLOCKED:
            self._watch_for_writing(pump)
        elif state is Turn.DONE:
            if tunnel.up.state is Turn.DONE and tunnel.down.state is Turn.DONE:
                self._end(tunnel, Ending.COMPLETED)
        elif pump.judging and tunnel.judging_since is None:
            tunnel.judging_since = tunnel.active_at

    def _watch_for_writing(self, pump: Pump) -> None:
        side = self._sides[pump.sink.fileno()]
        if not side.watched_for_writing:
            side.watched_for_writing = True
            # Modifying looks at the socket anew: room that appeared meanwhile is an event too.
            self._epoll.modify(side.fd, READ_WRITE)

    @staticmethod
    def _reset_by(tunnel: Tunnel, lost: socket.socket) -> Ending:
        return Ending.CLIENT_RESET if lost is tunnel.client else Ending.UPSTREAM_RESET

    def _deadline(self, tunnel: Tunnel) -> tuple[float, Ending]:
        limits = self.limits
        if tunnel.up.state is Turn.DONE or tunnel.down.state is Turn.DONE:
            due = (tunnel.active_at + limits.half_close_timeout_s, Ending.HALF_CLOSE_TIMEOUT)
        else:
            due = (tunnel.active_at + limits.idle_timeout_s, Ending.IDLE_TIMEOUT)
        if tunnel.judging_since is not None and tunnel.up.judging:
            due = min(due, (tunnel.judging_since + limits.handshake_timeout_s, Ending.HANDSHAKE_TIMEOUT))
        if limits.total_timeout_s is not None:
            due = min(due, (tunnel.opened_at + limits.total_timeout_s, Ending.TOTAL_TIMEOUT))
        return due

    async def _sweep(self) -> None:
        """End tunnels whose time is up."""
        while True:
            if not self._sides:
                self._occupied = trio.Event()
                await self._occupied.wait()
            now = trio.current_time()
            earliest = now + self._shortest_s
            for fd, side in list(self._sides.items()):
                if fd != side.tunnel.client.fileno():
                    continue  # each tunnel once
                deadline, ending = self._deadline(side.tunnel)
                if deadline <= now:
                    self._end(side.tunnel, ending)
                else:
                    earliest = min(earliest, deadline)
            await trio.sleep_until(max(earliest, now + self._coalesce_s))
