"""Sending, discarding and resetting on plain sockets."""

import socket

import pytest
import trio
import trio.testing

from gateway.egress.sockets import discard, reset, send_all
from tests.gateway.egress.loopback import receive_all, receive_exactly, tcp_pair

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
        reset(peer)
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
        reset(peer)
        await discard(ours, 2)
        await discard(ours, 2)


def test_a_reset_is_not_an_orderly_end() -> None:
    with tcp_pair() as (ours, peer):
        reset(ours)
        with pytest.raises(ConnectionResetError):
            peer.recv(1)


def test_a_reset_does_not_destroy_what_has_been_sent() -> None:
    with tcp_pair() as (ours, peer):
        ours.send(b"the answer")
        reset(ours)
        assert peer.recv(100) == b"the answer"


async def test_a_reset_with_bytes_on_their_way_is_an_ordinary_close() -> None:
    with tcp_pair() as (ours, peer):
        sent = 0
        while True:
            try:
                sent += ours.send(bytes(1 << 20))
            except BlockingIOError:
                break
        reset(ours)
        assert len(await receive_all(peer)) == sent


def test_resetting_what_is_not_connected() -> None:
    sock = socket.socket()
    reset(sock)
    assert sock.fileno() == -1
