"""One direction of a tunnel: moves bytes between two non-blocking sockets without ever waiting.

Theory of operation
-------------------
``turn`` moves what can be moved now and says what it waits for. Its caller watches both sockets with an
*edge-triggered* epoll, so a pump must go on until the kernel says "would block" before it may report that it
waits; the two places where that could be missed are marked below.

Small traffic is copied through a buffer that all pumps share; a pump that finds the buffer filled in one read
switches to ``splice`` through a pipe, so bulk data never enters this process. A pipe is held only while it
holds bytes. Bytes that the sink did not take are kept (at most one buffer) and sent first, so nothing is read
while something waits: that is the backpressure.

States: *idle* (waits for the source), *blocked* (waits for the sink), *more* (its turn is over, it is not),
*done* (the source has ended, every byte is delivered, and the sink's write side is shut: RFC 9293 section 3.6).
"""

import errno
import os
import socket
from enum import Enum, auto
from typing import Final, Protocol

from gateway.egress.pipes import Pipe, PipePool

__all__ = ["Gate", "GateRefused", "Pump", "Shared", "SinkLost", "SourceLost", "Turn"]

SPLICE_FLAGS: Final = os.SPLICE_F_MOVE | os.SPLICE_F_NONBLOCK


class Turn(Enum):
    """Why a turn ended."""

    IDLE = auto()
    BLOCKED = auto()
    MORE = auto()
    DONE = auto()


class SourceLost(Exception):
    """Reading from ``sock`` failed: the sending peer reset the connection or vanished. The cause is the OSError."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__()
        self.sock = sock


class SinkLost(Exception):
    """Writing to ``sock`` failed: the receiving peer reset the connection or vanished. The cause is the OSError."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__()
        self.sock = sock


class GateRefused(Exception):
    """What the client sent first may not pass.

    Args:
        code: a short machine-readable reason.
        detail: one printable sentence.
    """

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


class Gate(Protocol):
    """Judges the first bytes of one direction; they are held back until it lets them pass."""

    def feed(self, data: memoryview) -> bool:
        """Take the next bytes; True when everything so far may pass, False while undecided.

        Raises:
            GateRefused: nothing may pass.
        """
        ...

    def ended(self) -> None:
        """The client has ended while undecided.

        Raises:
            GateRefused: what was held may not pass.
        """
        ...


class Shared:
    """What all pumps of one relay share: the copy buffer and the pipes.

    Args:
        chunk_bytes: size of the buffer.
        pipe_bytes: size of each pipe.
        max_pipes: pipes at once.
        turn_bytes: what one turn moves at most (it may exceed this by one chunk or pipe).
    """

    __slots__ = ("buffer", "chunk_bytes", "pipes", "turn_bytes")

    def __init__(self, *, chunk_bytes: int, pipe_bytes: int, max_pipes: int, turn_bytes: int) -> None:
        self.chunk_bytes: Final = chunk_bytes
        self.turn_bytes: Final = turn_bytes
        self.buffer: Final = memoryview(bytearray(chunk_bytes))
        self.pipes: Final = PipePool(pipe_bytes, max_pipes)


class Pump:
    """Moves bytes from ``source`` to ``sink``; both stay the caller's, who closes them.

    ``readable`` and ``final`` are set by the caller: the source may have bytes; the source's peer has ended or
    failed, so that a short read no longer means that it is drained.
    """

    __slots__ = (
        "_bulk",
        "_ended",
        "_held",
        "_pending",
        "_pipe",
        "final",
        "gate",
        "moved",
        "readable",
        "sink",
        "source",
        "state",
    )

    def __init__(self, source: socket.socket, sink: socket.socket, gate: Gate | None = None) -> None:
        self.source = source
        self.sink = sink
        self.gate = gate
        self.moved = 0
        self.state = Turn.IDLE
        self.readable = False
        self.final = False
        self._pending: memoryview | None = None
        self._held: bytearray | None = None
        self._pipe: Pipe | None = None
        self._bulk = False
        self._ended = False

    @property
    def judging(self) -> bool:
        """True while bytes are held back by the gate."""
        return self._held is not None

    def preload(self, data: bytes) -> None:
        """Send ``data`` first, as if it had been read from the source; the state is then idle or blocked.

        Raises:
            SinkLost: the receiving peer's connection is gone.
            GateRefused: the gate does not let it pass.
        """
        self._take(memoryview(data))
        if self._pending is not None:
            self.state = Turn.BLOCKED

    def turn(self, shared: Shared) -> Turn:
        """Move what can be moved now, up to the turn's size.

        Raises:
            SourceLost, SinkLost: that side's connection is gone.
            GateRefused: from the gate.
        """
        self.state = state = self._turn(shared)
        return state

    def release(self, shared: Shared) -> None:
        """Drop what is held and give the pipe back; the pump is not used again."""
        self._pending = None
        self._held = None
        if self._pipe is not None:
            shared.pipes.give_back(self._pipe)
            self._pipe = None

    def _turn(self, shared: Shared) -> Turn:
        budget = shared.turn_bytes
        while True:
            if self._pending is not None and not self._send_pending():
                return Turn.BLOCKED
            pipe = self._pipe
            if pipe is not None and pipe.held and not self._empty(pipe):
                return Turn.BLOCKED
            if self._ended:
                return self._finish(shared)
            if budget <= 0:
                return Turn.MORE
            if not self.readable:
                if pipe is not None:
                    shared.pipes.give_back(pipe)
                    self._pipe = None
                return Turn.IDLE
            # What the gate has not judged must not go round it through a pipe.
            splice = self._bulk and self.gate is None
            budget -= self._splice(shared) if splice else self._copy(shared)

    def _finish(self, shared: Shared) -> Turn:
        self.release(shared)
        try:
            self.sink.shutdown(socket.SHUT_WR)
        except OSError as error:
            # Not connected any more: all bytes were handed over before, and if the peer reset the
            # connection then the pump that reads from it says so.
            if error.errno != errno.ENOTCONN:
                raise
        return Turn.DONE

    def _copy(self, shared: Shared) -> int:
        buffer = shared.buffer
        try:
            count = self.source.recv_into(buffer)
        except BlockingIOError:
            self.readable = False
            return 0
        except OSError as error:
            raise SourceLost(self.source) from error
        if not count:
            self._end()
            return 0
        if count < shared.chunk_bytes:
            # Edge-triggered epoll(7): a short read from a stream has drained it, so that no second recv is
            # needed to hear "would block" - except where the end of the stream may be queued behind it.
            if not self.final:
                self.readable = False
        else:
            self._bulk = True
        self._take(buffer[:count])
        return count

    def _take(self, data: memoryview) -> None:
        if self.gate is not None:
            self._judge(data)
            return
        sent = 0
        try:
            sent = self.sink.send(data)
        except BlockingIOError:
            pass
        except OSError as error:
            raise SinkLost(self.sink) from error
        self.moved += sent
        if sent < len(data):
            self._pending = memoryview(bytes(data[sent:]))

    def _judge(self, data: memoryview) -> None:
        assert self.gate is not None
        if self._held is None:
            if self.gate.feed(data):  # the usual case: all of it in one piece, nothing is held
                self.gate = None
                self._take(data)
                return
            self._held = bytearray(data)
            return
        self._held += data
        if self.gate.feed(data):
            self._pending = memoryview(bytes(self._held))
            self.gate = self._held = None

    def _end(self) -> None:
        self._ended = True
        if self._held is not None:
            assert self.gate is not None
            self.gate.ended()
            self._pending = memoryview(bytes(self._held))
            self._held = None

    def _send_pending(self) -> bool:
        pending = self._pending
        while pending:
            try:
                sent = self.sink.send(pending)
            except BlockingIOError:
                self._pending = pending
                return False
            except OSError as error:
                raise SinkLost(self.sink) from error
            self.moved += sent
            pending = pending[sent:]
        self._pending = None
        return True

    def _splice(self, shared: Shared) -> int:
        pipe = self._pipe
        if pipe is None:
            pipe = self._pipe = shared.pipes.take()
            if pipe is None:
                return self._copy(shared)
        try:
            count = os.splice(self.source.fileno(), pipe.write_fd, pipe.size, flags=SPLICE_FLAGS)
        except BlockingIOError:  # the pipe is empty here, so it is the source that would block
            self.readable = False
            return 0
        except OSError as error:
            raise SourceLost(self.source) from error
        if not count:
            self._end()
        pipe.held = count
        self._bulk = count >= shared.chunk_bytes // 4  # small again: copying needs fewer calls
        return count

    def _empty(self, pipe: Pipe) -> bool:
        sink_fd = self.sink.fileno()
        while pipe.held:
            try:
                sent = os.splice(pipe.read_fd, sink_fd, pipe.held, flags=SPLICE_FLAGS)
            except BlockingIOError:
                return False
            except OSError as error:
                raise SinkLost(self.sink) from error
            self.moved += sent
            pipe.held -= sent
        return True
