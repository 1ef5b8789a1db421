"""The relay: whole tunnels between real sockets, with the clock in the test's hand where time matters."""

import hashlib
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager

import pytest
import trio
import trio.testing

from gateway.egress.limits import Limits
from gateway.egress.pump import Gate, GateRefused
from gateway.egress.tunnel import Ending, Relay, Tunnel
from tests.gateway.egress.loopback import abort, receive, receive_all, receive_exactly, send, tcp_pair

pytestmark = pytest.mark.usefixtures("no_leaks")

TIMES = Limits(
    idle_timeout_s=100, half_close_timeout_s=30, handshake_timeout_s=10, relay_chunk_bytes=16_384, drain_timeout_s=1
)


class StartGate:
    """Lets a start pass that is four bytes long and is not ``evil``."""

    def __init__(self) -> None:
        self.seen = b""

    def feed(self, data: memoryview) -> bool:
        self.seen += bytes(data)
        if self.seen.startswith(b"evil"):
            raise GateRefused("evil", "it is evil")
        return len(self.seen) >= 4

    def ended(self) -> None:
        raise GateRefused("short", "it is short")


class Line:
    """A tunnel in the relay, and the far ends of its two connections."""

    def __init__(self, client: socket.socket, server: socket.socket, tunnel: Tunnel) -> None:
        self.client = client
        self.server = server
        self.tunnel = tunnel
        self.over = trio.Event()
        self.scope = trio.CancelScope()

    async def carry(self, relay: Relay, first: bytes, first_down: bytes) -> None:
        with self.scope:
            try:
                await relay.carry(self.tunnel, first, first_down)
            finally:
                self.over.set()


@asynccontextmanager
async def running(limits: Limits = TIMES) -> AsyncIterator[tuple[Relay, trio.Nursery]]:
    relay = Relay(limits)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(relay.run)
            yield relay, nursery
            nursery.cancel_scope.cancel()
    finally:
        relay.close()


@contextmanager
def line(
    relay: Relay, nursery: trio.Nursery, *, first: bytes = b"", first_down: bytes = b"", gate: Gate | None = None
) -> Iterator[Line]:
    with tcp_pair() as (client, near_client), tcp_pair() as (near_server, server):
        opened = Line(client, server, Tunnel(near_client, near_server, gate))
        nursery.start_soon(opened.carry, relay, first, first_down)
        yield opened
        opened.scope.cancel()


async def pump_through(sender: socket.socket, receiver: socket.socket, data: bytes) -> bytes:
    """Send data and the end of the stream; return what comes out, as a digest."""
    digest = hashlib.sha256()

    async def write() -> None:
        await send(sender, data)
        sender.shutdown(socket.SHUT_WR)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        while piece := await receive(receiver, 1 << 20):
            digest.update(piece)
    return digest.digest()


SIZES = [0, 1, 65_535, 65_536, 65_537, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 50_000_000]


@pytest.mark.parametrize("upwards", [True, False], ids=["up", "down"])
@pytest.mark.parametrize("size", SIZES)
async def test_H64_half_close_and_every_byte_arrives(size: int, upwards: bool) -> None:
    data = os.urandom(min(size, 1 << 20)) * (size // (1 << 20) + 1)
    data = data[:size]
    async with running(Limits()) as (relay, nursery):
        with line(relay, nursery) as opened:
            sender, receiver = (opened.client, opened.server) if upwards else (opened.server, opened.client)
            assert await pump_through(sender, receiver, data) == hashlib.sha256(data).digest()
            # The other direction still works, and ends by itself.
            assert await pump_through(receiver, sender, b"answer") == hashlib.sha256(b"answer").digest()
            await opened.over.wait()
            up, down = (size, 6) if upwards else (6, size)
            assert opened.tunnel.ending is Ending.COMPLETED
            assert (opened.tunnel.bytes_up, opened.tunnel.bytes_down) == (up, down)
            assert relay.open_tunnels == 0


async def test_H64_both_directions_at_once_and_a_whole_answer_after_the_client_has_ended() -> None:
    up, down = os.urandom(3_000_001), os.urandom(5_000_003)
    async with running(Limits()) as (relay, nursery):
        with line(relay, nursery) as opened:
            results: dict[str, bytes] = {}

            async def one_way(name: str, sender: socket.socket, receiver: socket.socket, data: bytes) -> None:
                results[name] = await pump_through(sender, receiver, data)

            async with trio.open_nursery() as both:
                both.start_soon(one_way, "up", opened.client, opened.server, up)
                both.start_soon(one_way, "down", opened.server, opened.client, down)
            await opened.over.wait()
            assert results == {"up": hashlib.sha256(up).digest(), "down": hashlib.sha256(down).digest()}
            assert opened.tunnel.ending is Ending.COMPLETED


async def test_a_slow_reader_gets_everything() -> None:
    data = os.urandom(1 << 20) * 20
    async with running(Limits(relay_turn_bytes=65_536, max_relay_pipes=1)) as (relay, nursery):
        with line(relay, nursery) as opened, line(relay, nursery) as other:
            received = bytearray()

            async def write(sock: socket.socket) -> None:
                await send(sock, data)
                sock.shutdown(socket.SHUT_WR)

            async with trio.open_nursery() as writers:
                writers.start_soon(write, opened.server)
                writers.start_soon(write, other.server)
                await trio.sleep(0.05)  # both directions are full by now
                while piece := await receive(opened.client, 300_000):
                    received += piece
                    await trio.lowlevel.checkpoint()
                assert await receive_all(other.client) == data
            assert bytes(received) == data


async def test_bytes_sent_before_the_tunnel_go_first_both_ways() -> None:
    async with running() as (relay, nursery):
        with line(relay, nursery, first=b"early ", first_down=b"banner ") as opened:
            await send(opened.client, b"late")
            await send(opened.server, b"more")
            assert await receive_exactly(opened.server, 10) == b"early late"
            assert await receive_exactly(opened.client, 11) == b"banner more"


async def test_many_first_bytes_do_not_need_room_at_once() -> None:
    first = os.urandom(1 << 20) * 16
    async with running() as (relay, nursery):
        with line(relay, nursery, first=first, first_down=first) as opened:
            assert await receive_exactly(opened.server, len(first)) == first
            assert await receive_exactly(opened.client, len(first)) == first


async def test_a_server_that_speaks_first_does_not_stall() -> None:
    async with running() as (relay, nursery):
        with line(relay, nursery, gate=StartGate()) as opened:
            await send(opened.server, b"220 ready")
            assert await receive_exactly(opened.client, 9) == b"220 ready"
            await send(opened.client, b"EHLO")
            assert await receive_exactly(opened.server, 4) == b"EHLO"


@pytest.mark.parametrize("pieces", [[b"evil"], [b"ev", b"il"]])
async def test_H23_what_the_gate_refuses_never_reaches_the_upstream(pieces: list[bytes]) -> None:
    async with running() as (relay, nursery):
        with line(relay, nursery, gate=StartGate()) as opened:
            for piece in pieces:
                await send(opened.client, piece)
                await trio.testing.wait_all_tasks_blocked()
            await opened.over.wait()
            assert opened.tunnel.ending is Ending.REFUSED
            assert opened.tunnel.refusal is not None
            assert opened.tunnel.refusal.code == "evil"
            assert opened.tunnel.bytes_up == 0
            opened.tunnel.upstream.close()
            assert await receive_all(opened.server) == b""


async def test_first_bytes_that_the_gate_refuses_end_the_tunnel_at_once() -> None:
    async with running() as (relay, nursery):
        with line(relay, nursery, first=b"evil", gate=StartGate()) as opened:
            await opened.over.wait()
            assert opened.tunnel.ending is Ending.REFUSED


async def test_an_end_inside_what_the_gate_judges_is_refused() -> None:
    async with running() as (relay, nursery):
        with line(relay, nursery, gate=StartGate()) as opened:
            await send(opened.client, b"ab")
            opened.client.shutdown(socket.SHUT_WR)
            await opened.over.wait()
            assert opened.tunnel.refusal is not None
            assert opened.tunnel.refusal.code == "short"


@pytest.mark.parametrize(("by_client", "ending"), [(True, Ending.CLIENT_RESET), (False, Ending.UPSTREAM_RESET)])
async def test_a_reset_ends_the_tunnel_and_says_whose_it_was(by_client: bool, ending: Ending) -> None:
    async with running() as (relay, nursery):
        with line(relay, nursery) as opened:
            await send(opened.client, b"ping")
            assert await receive_exactly(opened.server, 4) == b"ping"
            abort(opened.client if by_client else opened.server)
            await opened.over.wait()
            assert opened.tunnel.ending is ending


async def test_bytes_in_front_of_a_reset_are_delivered() -> None:
    async with running() as (relay, nursery):
        with line(relay, nursery) as opened:
            await send(opened.server, b"the answer")
            abort(opened.server)
            await opened.over.wait()
            assert await receive_exactly(opened.client, 10) == b"the answer"


async def test_a_sender_that_vanishes_behind_a_stalled_receiver_is_noticed() -> None:
    async with running() as (relay, nursery):
        with line(relay, nursery) as opened:
            with trio.move_on_after(0.3):  # until nothing fits anywhere
                while True:
                    await send(opened.client, bytes(1 << 20))
            abort(opened.client)
            await opened.over.wait()
            assert opened.tunnel.ending is Ending.CLIENT_RESET


async def test_an_upstream_that_is_gone_before_the_first_bytes() -> None:
    async with running() as (relay, _nursery):
        with tcp_pair() as (_, near_client), tcp_pair() as (near_server, server):
            abort(server)
            tunnel = Tunnel(near_client, near_server)
            await relay.carry(tunnel, b"hello")
            assert tunnel.ending is Ending.UPSTREAM_RESET


async def test_cancellation_ends_the_tunnel_and_leaves_the_sockets_to_their_owner() -> None:
    async with running() as (relay, nursery):
        with line(relay, nursery) as opened:
            await send(opened.client, b"x")
            assert await receive_exactly(opened.server, 1) == b"x"
            opened.scope.cancel()
            await opened.over.wait()
            assert opened.tunnel.ending is Ending.CANCELLED
            assert relay.open_tunnels == 0
            assert opened.tunnel.client.fileno() >= 0


async def test_a_bug_in_one_tunnel_is_raised_in_its_owner_and_spares_the_others() -> None:
    class Broken(StartGate):
        def feed(self, data: memoryview) -> bool:
            raise ZeroDivisionError

    async with running() as (relay, nursery):
        with line(relay, nursery) as healthy, tcp_pair() as (client, near_client), tcp_pair() as (near_server, _):
            tunnel = Tunnel(near_client, near_server, Broken())
            await send(client, b"x")
            with pytest.raises(ZeroDivisionError):
                await relay.carry(tunnel)
            assert tunnel.ending is Ending.FAILED
            await send(healthy.client, b"x")
            assert await receive_exactly(healthy.server, 1) == b"x"


async def test_sockets_that_cannot_be_watched_are_an_error_and_nothing_stays_registered() -> None:
    async with running() as (relay, _):
        with tcp_pair() as (client, _other):
            upstream = socket.socket(fileno=os.dup(client.fileno()))
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, upstream.fileno())  # epoll refuses what cannot be polled
            os.close(null)
            with pytest.raises(PermissionError):
                await relay.carry(Tunnel(client, upstream))
            upstream.close()
            assert relay.open_tunnels == 0


async def test_idle_tunnels_end_at_the_deadline_and_not_before(autojump_clock: trio.testing.MockClock) -> None:
    async with running() as (relay, nursery):
        with line(relay, nursery) as opened:
            with trio.move_on_after(99) as scope:
                await opened.over.wait()
            assert scope.cancelled_caught
            await send(opened.client, b"x")
            assert await receive_exactly(opened.server, 1) == b"x"
            began = trio.current_time()
            await opened.over.wait()
            assert opened.tunnel.ending is Ending.IDLE_TIMEOUT
            assert 100 <= trio.current_time() - began <= 101


async def test_a_half_closed_tunnel_has_a_deadline_of_its_own(autojump_clock: trio.testing.MockClock) -> None:
    async with running() as (relay, nursery):
        with line(relay, nursery) as opened:
            opened.client.shutdown(socket.SHUT_WR)
            assert await receive(opened.server) == b""
            await trio.sleep(29)
            await send(opened.server, b"still here")
            assert await receive_exactly(opened.client, 10) == b"still here"
            began = trio.current_time()
            await opened.over.wait()
            assert opened.tunnel.ending is Ending.HALF_CLOSE_TIMEOUT
            assert 30 <= trio.current_time() - began <= 31


@pytest.mark.parametrize("early", [True, False])
async def test_a_client_hello_has_a_deadline(autojump_clock: trio.testing.MockClock, early: bool) -> None:
    async with running() as (relay, nursery):
        with line(relay, nursery, first=b"ab" if early else b"", gate=StartGate()) as opened:
            if not early:
                await trio.sleep(50)  # saying nothing at all is no handshake
                await send(opened.client, b"ab")
            began = trio.current_time()
            with trio.move_on_after(9):
                await opened.over.wait()
            await send(opened.client, b"c")  # one more byte does not move it
            await opened.over.wait()
            assert opened.tunnel.ending is Ending.HANDSHAKE_TIMEOUT
            assert 10 <= trio.current_time() - began <= 11


async def test_a_total_deadline_ends_a_busy_tunnel(autojump_clock: trio.testing.MockClock) -> None:
    async with running(Limits(total_timeout_s=50)) as (relay, nursery):
        with line(relay, nursery) as opened:
            began = trio.current_time()
            while opened.tunnel.ending is None:
                await send(opened.client, b"x")
                await trio.sleep(1)
            assert opened.tunnel.ending is Ending.TOTAL_TIMEOUT
            assert 50 <= trio.current_time() - began <= 52


async def test_H63_of_300_idle_tunnels_no_live_one_dies_and_no_dead_one_stays(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with running(Limits(idle_timeout_s=3_700)) as (relay, nursery):
        with ExitStack() as stack:
            lines = [stack.enter_context(line(relay, nursery)) for _ in range(300)]
            dead, talking, silent = lines[:100], lines[100:200], lines[200:]
            await trio.testing.wait_all_tasks_blocked()
            assert relay.open_tunnels == 300
            for opened in dead[:50]:
                abort(opened.client)
            for opened in dead[50:]:
                opened.client.close()
                opened.server.close()
            for _ in range(6):
                await trio.sleep(600)
                for opened in talking:
                    await send(opened.client, b"x")
                    assert await receive_exactly(opened.server, 1) == b"x"
            assert all(opened.tunnel.ending is not None for opened in dead)
            assert all(opened.tunnel.ending is None for opened in talking + silent)
            assert relay.open_tunnels == 200
            await trio.sleep(110)
            assert {opened.tunnel.ending for opened in silent} == {Ending.IDLE_TIMEOUT}
            assert all(opened.tunnel.ending is None for opened in talking)
            await trio.sleep(3_700)
            assert relay.open_tunnels == 0
