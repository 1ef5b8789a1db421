"""One direction of a tunnel, turn by turn, between real sockets."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from gateway.egress.pump import GateRefused, Pump, Shared, SinkLost, SourceLost, Turn
from tests.gateway.egress.loopback import abort, tcp_pair

pytestmark = pytest.mark.usefixtures("no_leaks")

CHUNK = 4_096


class PlainGate:
    """Lets everything pass once ``needed`` bytes have come, unless they begin with ``!``."""

    def __init__(self, needed: int) -> None:
        self.needed = needed
        self.seen = b""

    def feed(self, data: memoryview) -> bool:
        self.seen += bytes(data)
        if self.seen.startswith(b"!"):
            raise GateRefused("refused", "it begins with !")
        return len(self.seen) >= self.needed

    def ended(self) -> None:
        raise GateRefused("incomplete", "it ended")


class Bench:
    """A pump between two pairs: what ``source`` sends should arrive at ``sink``."""

    def __init__(self, shared: Shared, source: socket.socket, sink: socket.socket, pump: Pump) -> None:
        self.shared = shared
        self.source = source
        self.sink = sink
        self.pump = pump

    def turn(self) -> Turn:
        """An event on the source, then a turn."""
        self.pump.readable = True
        return self.pump.turn(self.shared)

    def received(self) -> bytes:
        data = bytearray()
        while True:
            try:
                piece = self.sink.recv(1 << 20)
            except BlockingIOError:
                return bytes(data)
            if not piece:
                return bytes(data) + b"<end>"
            data += piece


@contextmanager
def bench(
    gate: PlainGate | None = None, *, turn_bytes: int = 1 << 20, max_pipes: int = 4, small_sink: bool = False
) -> Iterator[Bench]:
    shared = Shared(chunk_bytes=CHUNK, pipe_bytes=65_536, max_pipes=max_pipes, turn_bytes=turn_bytes)
    with tcp_pair() as (source, near_source), tcp_pair() as (near_sink, sink):
        if small_sink:
            near_sink.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16_384)
        pump = Pump(near_source, near_sink, gate)
        yield Bench(shared, source, sink, pump)
        pump.release(shared)
    shared.pipes.close()
    assert shared.pipes.open == 0


def test_small_data_is_copied_in_one_turn() -> None:
    with bench() as b:
        b.source.send(b"hello")
        assert b.turn() is Turn.IDLE
        assert b.received() == b"hello"
        assert b.pump.moved == 5
        assert b.shared.pipes.open == 0


def test_a_short_read_says_that_the_source_is_drained() -> None:
    with bench() as b:
        b.source.send(b"hello")
        b.turn()
        assert not b.pump.readable


def test_a_short_read_says_nothing_once_the_peer_has_ended() -> None:
    with bench() as b:
        b.source.send(b"hello")
        b.source.shutdown(socket.SHUT_WR)
        b.pump.final = True
        assert b.turn() is Turn.DONE
        assert b.received() == b"hello<end>"


def test_a_spurious_event_does_nothing() -> None:
    with bench() as b:
        assert b.turn() is Turn.IDLE
        assert b.received() == b""


def test_an_empty_stream_ends_the_sink() -> None:
    with bench() as b:
        b.source.shutdown(socket.SHUT_WR)
        assert b.turn() is Turn.DONE
        assert b.received() == b"<end>"


@pytest.mark.parametrize("max_pipes", [4, 0])
@pytest.mark.parametrize("size", [CHUNK - 1, CHUNK, CHUNK + 1, 10 * CHUNK, 200_000])
def test_bulk_goes_through_a_pipe_that_is_given_back(size: int, max_pipes: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    data = data[:size]
    with bench(max_pipes=max_pipes) as b:
        received = bytearray()
        left = memoryview(data)
        while left or len(received) < size:
            if left:
                with suppress(BlockingIOError):
                    left = left[b.source.send(left) :]
            b.turn()
            received += b.received()
        assert bytes(received) == data
        assert b.pump.moved == size
        assert b.shared.pipes.open == len(b.shared.pipes._spare)


@pytest.mark.parametrize("max_pipes", [4, 0])
def test_a_sink_that_takes_nothing_stops_the_source_and_loses_nothing(max_pipes: int) -> None:
    data = bytes(range(256)) * 65_536  # 16 MiB
    with bench(max_pipes=max_pipes, small_sink=True) as b:
        left = memoryview(data)
        received = bytearray()
        blocked = 0
        while len(received) < len(data):
            for _ in range(1_000):
                with suppress(BlockingIOError):
                    left = left[b.source.send(left) :]
                if b.turn() is Turn.BLOCKED:
                    blocked += 1
                    break
            received += b.received()
        assert blocked
        assert bytes(received) == data


def test_a_turn_is_bounded() -> None:
    with bench(turn_bytes=CHUNK) as b:
        b.source.send(bytes(10 * CHUNK))
        assert b.turn() is Turn.MORE
        assert b.pump.moved < 10 * CHUNK
        while b.turn() is Turn.MORE:
            pass
        assert len(b.received()) == 10 * CHUNK


def test_a_source_that_was_reset_is_lost_after_its_bytes() -> None:
    with bench() as b:
        b.source.send(b"last words")
        assert b.turn() is Turn.IDLE
        abort(b.source)
        with pytest.raises(SourceLost) as caught:
            b.turn()
        assert caught.value.sock is b.pump.source
        assert b.received() == b"last words"


def test_a_bulk_source_that_was_reset_is_lost() -> None:
    with bench(turn_bytes=1) as b:
        b.source.send(bytes(CHUNK))
        b.turn()  # all of it, in one full buffer: the next turn splices
        abort(b.source)
        with pytest.raises(SourceLost):
            b.turn()


def test_an_end_behind_bulk_is_passed_on() -> None:
    with bench() as b:
        b.source.send(bytes(CHUNK))
        b.source.shutdown(socket.SHUT_WR)
        b.pump.final = True
        assert b.turn() is Turn.DONE
        assert b.received() == bytes(CHUNK) + b"<end>"


def test_a_sink_that_was_reset_is_lost() -> None:
    with bench() as b:
        abort(b.sink)
        b.source.send(b"x")
        with pytest.raises(SinkLost) as caught:
            b.turn()
        assert caught.value.sock is b.pump.sink


def test_a_sink_that_was_reset_during_bulk_is_lost() -> None:
    with bench(turn_bytes=1) as b:
        b.source.send(bytes(3 * CHUNK))
        b.turn()
        abort(b.sink)
        with pytest.raises(SinkLost):
            b.turn()


@pytest.mark.parametrize("max_pipes", [4, 0])
def test_a_sink_that_was_reset_while_it_blocked_is_lost(max_pipes: int) -> None:
    with bench(max_pipes=max_pipes, small_sink=True) as b:
        while True:
            with suppress(BlockingIOError):
                b.source.send(bytes(1 << 20))
            if b.turn() is Turn.BLOCKED:
                break
        abort(b.sink)
        with pytest.raises(SinkLost):
            b.turn()


def test_an_end_for_a_socket_that_somebody_closed_is_a_bug() -> None:
    with bench() as b:
        b.source.shutdown(socket.SHUT_WR)
        b.pump.sink.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            b.turn()


def test_an_end_for_a_sink_that_is_gone_is_no_failure() -> None:
    with bench() as b:
        abort(b.sink)
        with pytest.raises(ConnectionResetError):
            b.pump.sink.recv(1)
        b.source.shutdown(socket.SHUT_WR)
        assert b.turn() is Turn.DONE


def test_preloaded_bytes_go_first() -> None:
    with bench() as b:
        b.pump.preload(b"first ")
        b.source.send(b"second")
        b.turn()
        assert b.received() == b"first second"
        assert b.pump.moved == 12


def test_preloaded_bytes_that_do_not_fit_block_the_pump() -> None:
    data = bytes(range(256)) * 4_096
    with bench(small_sink=True) as b:
        b.pump.preload(data)
        assert b.pump.state is Turn.BLOCKED
        received = bytearray()
        while len(received) < len(data):
            received += b.received()
            b.turn()
        assert bytes(received) == data


def test_the_gate_holds_bytes_back_until_it_lets_them_pass() -> None:
    with bench(PlainGate(6)) as b:
        judging = []
        for data, passed in ((b"abc", b""), (b"defg", b"abcdefg")):
            b.source.send(data)
            assert b.turn() is Turn.IDLE
            assert b.received() == passed
            judging.append(b.pump.judging)
        assert judging == [True, False]
        b.source.send(b"!free")
        b.turn()
        assert b.received() == b"!free"


def test_the_gate_refuses_and_nothing_has_passed() -> None:
    with bench(PlainGate(6)) as b:
        b.source.send(b"!")
        with pytest.raises(GateRefused, match="begins"):
            b.turn()
        assert b.received() == b""


def test_bulk_does_not_go_round_the_gate() -> None:
    with bench(PlainGate(3 * CHUNK)) as b:
        b.source.send(bytes(2 * CHUNK))
        b.turn()
        assert b.received() == b""
        b.source.send(bytes(2 * CHUNK))
        b.turn()
        assert len(b.received()) == 4 * CHUNK


def test_an_end_before_any_byte_passes_the_gate() -> None:
    with bench(PlainGate(6)) as b:
        b.source.shutdown(socket.SHUT_WR)
        assert b.turn() is Turn.DONE
        assert b.received() == b"<end>"


def test_an_end_while_bytes_are_held_is_the_gate_s_to_judge() -> None:
    with bench(PlainGate(6)) as b:
        b.source.send(b"abc")
        b.source.shutdown(socket.SHUT_WR)
        b.pump.final = True
        with pytest.raises(GateRefused, match="ended"):
            b.turn()
        assert b.received() == b""


def test_a_gate_may_let_an_incomplete_start_pass() -> None:
    class Lenient(PlainGate):
        def ended(self) -> None:
            return

    with bench(Lenient(6)) as b:
        b.source.send(b"abc")
        b.source.shutdown(socket.SHUT_WR)
        b.pump.final = True
        assert b.turn() is Turn.DONE
        assert b.received() == b"abc<end>"


def test_preloaded_bytes_pass_the_gate_too() -> None:
    with bench(PlainGate(3)) as b, pytest.raises(GateRefused):
        b.pump.preload(b"!!!")
    with bench(PlainGate(3)) as b:
        b.pump.preload(b"abc")
        assert b.received() == b"abc"
