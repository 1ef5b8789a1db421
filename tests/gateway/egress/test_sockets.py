"""Sending, discarding and resetting on plain sockets."""

import socket
from functools import partial

import pytest
import trio
import trio.testing

from gateway.egress.sockets import Peer, cut, cut_now, discard, is_untouched, peer_of, send_all
from tests.gateway.egress.loopback import abort, receive_all, receive_exactly, tcp_pair

pytestmark = pytest.mark.usefixtures("no_leaks")


async def test_small_data_is_sent_at_once() -> None:
    with tcp_pair() as (ours, peer):
        await send_all(ours, b"hello", 1)
        assert peer.recv(100) == b"hello"


async def test_data_that_does_not_fit_waits_for_a_reader() -> None:
    data = bytes(range(256)) * 65_536
    with tcp_pair() as (ours, peer):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_all, ours, data, 10)
            assert await receive_exactly(peer, len(data)) == data


async def test_a_peer_that_takes_nothing_is_given_up(autojump_clock: trio.testing.MockClock) -> None:
    with tcp_pair() as (ours, _peer):
        with pytest.raises(TimeoutError):
            await send_all(ours, bytes(1 << 25), 10)
        assert trio.current_time() == pytest.approx(10)


async def test_a_peer_that_is_gone_is_an_error() -> None:
    with tcp_pair() as (ours, peer):
        abort(peer)
        with pytest.raises(ConnectionResetError):
            await send_all(ours, b"x", 1)


async def test_discarding_ends_our_side_and_reads_the_other_to_its_end() -> None:
    with tcp_pair() as (ours, peer):
        peer.send(b"unread")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(discard, ours, 10)
            assert await receive_all(peer) == b""
            peer.send(b"more")
            peer.close()


async def test_discarding_has_an_end(autojump_clock: trio.testing.MockClock) -> None:
    with tcp_pair() as (ours, peer):
        peer.send(b"unread")
        await discard(ours, 2)
        assert trio.current_time() == pytest.approx(2)


async def test_discarding_from_a_peer_that_is_gone() -> None:
    with tcp_pair() as (ours, peer):
        abort(peer)
        await discard(ours, 2)
        await discard(ours, 2)


async def test_what_is_cut_ends_in_a_reset_behind_its_bytes() -> None:
    with tcp_pair() as (ours, peer):
        ours.send(b"half an answer")
        await cut(ours, timeout_s=10)
        assert ours.fileno() == -1
        assert peer.recv(100) == b"half an answer"
        with pytest.raises(ConnectionResetError):
            peer.recv(1)


async def test_what_is_cut_waits_for_a_slow_reader() -> None:
    with tcp_pair() as (ours, peer):
        sent = 0
        while True:
            try:
                sent += ours.send(bytes(1 << 20))
            except BlockingIOError:
                break
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(cut, ours, timeout_s=10))
            assert await receive_exactly(peer, sent) == bytes(sent)
        with pytest.raises(ConnectionResetError):
            peer.recv(1)


async def test_a_reader_that_takes_nothing_is_not_waited_for_long(autojump_clock: trio.testing.MockClock) -> None:
    with tcp_pair() as (ours, peer), tcp_pair() as (other, _):
        while True:
            try:
                ours.send(bytes(1 << 20))
            except BlockingIOError:
                break
        await cut(ours, other, timeout_s=2)
        assert trio.current_time() == pytest.approx(2, abs=0.1)
        assert ours.fileno() == other.fileno() == -1
        while True:  # what had arrived is still there, and then it is no orderly end
            try:
                assert peer.recv(1 << 20)
            except ConnectionResetError:
                break


async def test_cutting_what_is_gone() -> None:
    with tcp_pair() as (ours, peer):
        abort(peer)
        await cut(ours, timeout_s=2)
        cut_now(ours)
        await cut(ours, timeout_s=2)


async def test_a_peer_is_seen_without_reading() -> None:
    with tcp_pair() as (ours, peer):
        assert (peer_of(ours), is_untouched(ours)) == (Peer.PRESENT, True)
        peer.send(b"x")
        assert (peer_of(ours), is_untouched(ours)) == (Peer.PRESENT, False)
        peer.shutdown(socket.SHUT_WR)
        assert peer_of(ours) is Peer.ENDED
        abort(peer)
        assert peer_of(ours) is Peer.GONE
        assert ours.recv(10) == b"x"


async def test_a_cancelled_cut_is_a_cut() -> None:
    with tcp_pair() as (ours, peer), trio.CancelScope() as scope:
        while True:
            try:
                ours.send(bytes(1 << 20))
            except BlockingIOError:
                break
        scope.cancel()
        try:
            await cut(ours, timeout_s=2)
        finally:
            assert peer_of(peer) is Peer.GONE


async def test_cutting_what_is_closed() -> None:
    sock = socket.socket()
    sock.close()
    await cut(sock, timeout_s=2)


async def test_cutting_does_not_wait_for_a_peer_that_reset_what_was_sent() -> None:
    with tcp_pair() as (ours, peer):
        peer.close()
        assert ours.send(b"too late") == len(b"too late")
        await trio.lowlevel.wait_readable(ours)  # the reset, to what was sent to nobody
        with trio.fail_after(1):
            await cut(ours, timeout_s=10)
