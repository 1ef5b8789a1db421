"""Hostile or broken peers: no two heads mixed up, no half answer called whole, nobody waited for who is gone."""

import socket

import pytest
import trio
import trio.testing

from gateway.egress.limits import Limits
from tests.gateway.egress.loopback import abort, listen, port_of, receive, receive_all, receive_exactly, send
from tests.gateway.egress.name_server import FakeResolver
from tests.gateway.egress.world import OK, Handler, World, get, read_head, world

pytestmark = pytest.mark.usefixtures("no_leaks")

TOKEN = "t" * 43
CREDENTIALS = f"Proxy-Authorization: Bearer {TOKEN}"


async def settle(w: World, count: int) -> None:
    """Wait until the record has so many lines."""
    with trio.fail_after(5):
        while len(w.recorder.events) < count:  # noqa: ASYNC110 - the record has no event for it
            await trio.sleep(0.005)


async def ending(client: socket.socket) -> tuple[bytes, str]:
    """Everything up to the end of a connection, and how it ended."""
    data = bytearray()
    try:
        while piece := await receive(client):
            data += piece
    except ConnectionResetError:
        return bytes(data), "reset"
    return bytes(data), "end"


# Heads


def pieces(authority: str) -> tuple[bytes, bytes]:
    """A request and the start of a second head; and what, read alone, is a head too but ends that one."""
    first = get(authority, extra=[CREDENTIALS])
    begun = f"CONNECT {authority} HTTP/1.1\r\n{CREDENTIALS}\r\nX-Pad: ".encode()
    return first + begun, f"CONNECT {authority} HTTP/1.1\r\n\r\n".encode()


async def test_the_end_of_a_head_is_not_remembered_as_a_head_with_the_credentials_of_its_start() -> None:
    answered = trio.Event()

    async def slow(sock: socket.socket) -> None:
        if await read_head(sock):
            await answered.wait()
            await send(sock, OK)
            await receive_all(sock)

    async with world(token=TOKEN) as w:
        port = await w.origin(slow)
        start, rest = pieces(f"ok.example:{port}")
        with await w.connect() as client:
            await send(client, start)
            await settle(w, 1)
            await send(client, rest)
            answered.set()
            assert (await read_head(client)).startswith(b"HTTP/1.1 200 OK")
            assert await receive_exactly(client, 2) == b"hi"
            assert (await read_head(client)).startswith(b"HTTP/1.1 200 Connection established")
        assert (await w.exchange(rest)).startswith(b"HTTP/1.1 407 ")


async def test_a_head_that_has_begun_does_not_vanish_before_one_that_is_known() -> None:
    answered = trio.Event()
    heads: list[bytes] = []

    async def slow(sock: socket.socket) -> None:
        while head := await read_head(sock):
            heads.append(head)
            await answered.wait()
            await send(sock, OK)

    async with world() as w:
        port = await w.origin(slow)
        authority = f"ok.example:{port}"
        known = f"CONNECT {authority} HTTP/1.1\r\n\r\n"
        with await w.tunnel(authority):
            pass
        with await w.connect() as first:
            await send(first, known.encode())
            await read_head(first)
        await settle(w, 4)
        with await w.connect() as client:
            await send(client, get(authority) + get(authority, "/two", extra=["X-Pad: "])[:-4])
            await settle(w, 5)
            await send(client, known.encode())
            answered.set()
            await read_head(client)
            assert await receive_exactly(client, 2) == b"hi"
            assert (await read_head(client)).startswith(b"HTTP/1.1 200 OK")
        assert heads[-1].startswith(b"GET /two HTTP/1.1\r\n")


# Kept upstream connections


async def test_a_kept_upstream_that_has_ended_is_not_used_for_a_request_that_cannot_be_repeated() -> None:
    closed = trio.Event()

    async def once(sock: socket.socket) -> None:
        await read_head(sock)
        await send(sock, OK)
        sock.close()
        closed.set()

    async with world() as w:
        port = await w.origin(once)
        with await w.connect() as client:
            await send(client, get(f"ok.example:{port}"))
            await read_head(client)
            await receive_exactly(client, 2)
            await closed.wait()
            await send(client, get(f"ok.example:{port}").replace(b"GET", b"POST"))
            assert (await read_head(client)).startswith(b"HTTP/1.1 200 OK")


async def test_an_answer_that_nobody_asked_for_is_not_the_next_one_s() -> None:
    received, poisoned = trio.Event(), trio.Event()

    async def poison(sock: socket.socket) -> None:
        await read_head(sock)
        await send(sock, OK)
        await received.wait()
        await send(sock, b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nPOISON")
        poisoned.set()
        await receive_all(sock)

    async with world() as w:
        port = await w.origin(poison)
        with await w.connect() as client:
            for _ in range(2):
                await send(client, get(f"ok.example:{port}"))
                assert b"Content-Length: 2\r\n" in await read_head(client)
                assert await receive_exactly(client, 2) == b"hi"
                received.set()
                await poisoned.wait()


# Answers that are cut off


def breaking(answer: bytes, *, by_reset: bool) -> Handler:
    async def handler(sock: socket.socket) -> None:
        await read_head(sock)
        await send(sock, answer)
        if by_reset:
            await trio.sleep(0.05)  # else the reset overtakes the answer
            abort(sock)

    return handler


@pytest.mark.parametrize(
    ("version", "answer", "by_reset"),
    [
        ("1.1", b"HTTP/1.1 200 OK\r\n\r\npart", True),
        ("1.0", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n", False),
        ("1.1", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n", False),
        ("1.1", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart", False),
    ],
)
async def test_an_answer_that_is_cut_off_does_not_end_in_order(version: str, answer: bytes, by_reset: bool) -> None:
    async with world() as w:
        port = await w.origin(breaking(answer, by_reset=by_reset))
        with await w.connect() as client:
            await send(client, get(f"ok.example:{port}").replace(b"HTTP/1.1", f"HTTP/{version}".encode()))
            data, end = await ending(client)
            assert b"part" in data
            assert end == "reset"
        await settle(w, 2)
        assert w.recorder.network[-1][2] == "upstream_error"


@pytest.mark.parametrize("limits", [Limits(idle_timeout_s=5), Limits(total_timeout_s=5)], ids=["idle", "total"])
async def test_a_tunnel_whose_time_is_up_does_not_end_in_order(
    limits: Limits, autojump_clock: trio.testing.MockClock
) -> None:
    ends: list[str] = []

    async def part(sock: socket.socket) -> None:
        await send(sock, b"part")
        ends.append((await ending(sock))[1])

    async with world(limits=limits) as w:
        port = await w.origin(part)
        with await w.tunnel(f"ok.example:{port}") as client:
            assert await ending(client) == (b"part", "reset")
        await until_closed(w)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert ends == ["reset"]


@pytest.mark.parametrize("plain", [True, False])
async def test_what_an_abort_cuts_off_does_not_end_in_order(plain: bool) -> None:
    async def part(sock: socket.socket) -> None:
        if plain:
            await read_head(sock)
            await send(sock, b"HTTP/1.1 200 OK\r\n\r\n")
        await send(sock, b"part")
        await ending(sock)

    async with world() as w:
        port = await w.origin(part)
        with await w.connect() as client:
            authority = f"ok.example:{port}"
            await send(client, get(authority) if plain else f"CONNECT {authority} HTTP/1.1\r\n\r\n".encode())
            await read_head(client)
            assert await receive_exactly(client, 4) == b"part"
            w.server.abort()
            assert await ending(client) == (b"", "reset")


# Endings in the record


async def test_cancelling_an_exchange_with_two_tasks_is_recorded_as_such() -> None:
    async def receive_forever(sock: socket.socket) -> None:
        await receive_all(sock)

    async with world() as w:
        port = await w.origin(receive_forever)
        with await w.connect() as client:
            await send(client, get(f"ok.example:{port}", extra=["Content-Length: 9"]) + b"body")
            await settle(w, 1)
            await trio.testing.wait_all_tasks_blocked(0.01)
            w.server.abort()
            await ending(client)
        await settle(w, 2)
        assert w.recorder.network[-1][2] == "cancelled"


async def test_cancelling_a_race_of_addresses_is_recorded_as_such() -> None:
    with listen(backlog=0) as full:
        port = port_of(full)
        fillers = [socket.socket() for _ in range(3)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        async with world(resolver=FakeResolver({"ok.example": ("127.0.0.1", "127.0.0.2")})) as w:
            with await w.connect() as client:
                await send(client, f"CONNECT ok.example:{port} HTTP/1.1\r\n\r\n".encode())
                await trio.testing.wait_all_tasks_blocked(0.05)
                w.server.abort()
                await ending(client)
            await settle(w, 2)
            assert w.recorder.network[-1][2] == "cancelled"
        for filler in fillers:
            filler.close()


# Clients that went away


async def test_H66_a_client_that_vanished_from_a_silent_stream_is_noticed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with world(limits=Limits(client_check_s=10)) as w:
        port = await w.origin(event_stream)
        with await w.connect() as client:
            await send(client, get(f"ok.example:{port}"))
            await read_head(client)
            await trio.testing.wait_all_tasks_blocked()
            abort(client)
        began = trio.current_time()
        await until_closed(w)
        assert trio.current_time() - began <= 12
        assert w.recorder.network[-1][2] == "client_reset"


async def test_H66_a_client_that_has_finished_sending_is_waited_for_but_not_for_hours(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with world(limits=Limits(client_check_s=10, half_close_timeout_s=60)) as w:
        port = await w.origin(event_stream)
        with await w.connect() as client:
            await send(client, get(f"ok.example:{port}"))
            await read_head(client)
            client.shutdown(socket.SHUT_WR)
            began = trio.current_time()
            await until_closed(w)
            assert 60 <= trio.current_time() - began < 75


async def event_stream(sock: socket.socket) -> None:
    await read_head(sock)
    await send(sock, b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
    await ending(sock)


async def until_closed(w: World) -> None:
    while w.server.stats.active:  # noqa: ASYNC110 - nor has the count of connections
        await trio.sleep(1)


async def test_H66_events_go_on_after_the_client_has_finished_sending() -> None:
    async with world(limits=Limits(client_check_s=0.01)) as w:
        go = trio.Event()

        async def late(sock: socket.socket) -> None:
            await read_head(sock)
            await go.wait()
            await send(sock, OK)

        port = await w.origin(late)
        with await w.connect() as client:
            await send(client, get(f"ok.example:{port}"))
            client.shutdown(socket.SHUT_WR)
            await trio.sleep(0.1)
            go.set()
            assert (await receive_all(client)).endswith(b"hi")
