"""One exchange: what each side sees, byte for byte, and what is left usable afterwards.

Longer than other files because each case is a whole conversation; faults and time are in test_forward_faults.py.
"""

import pytest
import trio
import trio.testing

from gateway.egress.forward import Outcome, Traffic, UpstreamError, forward_exchange
from gateway.egress.http1 import Http1Limits, RequestHeadReader, replies
from tests.gateway.egress.forwarding import (
    CHUNKED_OK,
    CHUNKED_OK_SENT,
    CHUNKED_POST,
    CHUNKED_POST_SENT,
    EVENTS,
    GET,
    GET_SENT,
    OK,
    OK_SENT,
    POST,
    POST_SENT,
    VIA,
    exchange,
    expect,
    nothing_more,
    receive,
)

# Whole exchanges


async def test_a_request_and_its_answer() -> None:
    async with exchange(GET + b"GET http://c/") as running:
        await expect(running.upstream, GET_SENT)
        await running.upstream.send_all(OK)
        await expect(running.client, OK_SENT)
        assert await running.result() == Outcome(
            status=200,
            client_reusable=True,
            client_leftover=b"GET http://c/",
            client_sending=False,
            upstream_reusable=True,
        )
        assert running.traffic == Traffic(up=len(GET_SENT), down=len(OK_SENT))
        await nothing_more(running.upstream)
        await nothing_more(running.client)


async def test_traffic_need_not_be_counted() -> None:
    client, near_client = trio.testing.memory_stream_pair()
    near_upstream, upstream = trio.testing.memory_stream_pair()
    head = RequestHeadReader().feed(GET)
    assert head is not None
    await upstream.send_all(OK)
    assert (await forward_exchange(head, near_client, b"", near_upstream)).status == 200
    await expect(client, OK_SENT)


async def test_a_body_of_known_length_and_the_next_request_behind_it() -> None:
    async with exchange(POST + b"abc") as running:
        await expect(running.upstream, POST_SENT + b"abc")
        await running.client.send_all(b"defGET")
        await expect(running.upstream, b"def")
        await running.upstream.send_all(OK)
        await expect(running.client, OK_SENT)
        outcome = await running.result()
        assert outcome.client_reusable
        assert outcome.upstream_reusable
        assert outcome.client_leftover == b"GET"


async def test_chunks_and_trailers_pass_both_ways_as_they_came() -> None:
    request_body = b'3;a="b"\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n'
    response_body = b"005\r\nhello\r\n0\r\nETag: x\r\nServer-Timing: y\r\n\r\n"
    async with exchange(CHUNKED_POST + request_body[:2]) as running:
        await expect(running.upstream, CHUNKED_POST_SENT)
        await nothing_more(running.upstream)
        for byte in request_body[2:]:
            await running.client.send_all(bytes([byte]))
            await trio.testing.wait_all_tasks_blocked()
        await expect(running.upstream, request_body)
        for byte in CHUNKED_OK + response_body:
            await running.upstream.send_all(bytes([byte]))
            await trio.testing.wait_all_tasks_blocked()
        await expect(running.client, CHUNKED_OK_SENT + response_body)
        outcome = await running.result()
        assert (outcome.client_reusable, outcome.upstream_reusable) == (True, True)


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        (b"HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n"),
        (b"HEAD", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"),
        (b"GET", b"HTTP/1.1 204 No Content\r\n"),
        (b"GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n"),
        (b"GET", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n"),
    ],
)
async def test_answers_without_a_body(method: bytes, answer: bytes) -> None:
    async with exchange(GET.replace(b"GET", method)) as running:
        await running.upstream.send_all(answer + b"\r\n")
        await expect(running.client, answer + VIA + b"\r\n")
        outcome = await running.result()
        assert (outcome.client_reusable, outcome.upstream_reusable) == (True, True)


async def test_an_answer_that_ends_with_its_connection() -> None:
    async with exchange(GET) as running:
        await running.upstream.send_all(b"HTTP/1.0 200 OK\r\n\r\nhello")
        await expect(running.client, b"HTTP/1.1 200 OK\r\nConnection: close\r\nVia: 1.0 iterion-sandbox\r\n\r\nhello")
        await running.upstream.send_all(b" there")
        await expect(running.client, b" there")
        await running.upstream.aclose()
        outcome = await running.result()
        assert (outcome.client_reusable, outcome.upstream_reusable) == (False, False)
        assert not outcome.client_sending


async def test_an_http_1_0_client_gets_the_payload_alone() -> None:
    async with exchange(b"GET http://a/b HTTP/1.0\r\n\r\n") as running:
        await expect(running.upstream, GET_SENT.replace(b"Via: 1.1", b"Via: 1.0"))
        await running.upstream.send_all(b"HTTP/1.1 103 Early Hints\r\n\r\n" + CHUNKED_OK + b"3\r\nabc\r\n")
        await expect(running.client, b"HTTP/1.1 200 OK\r\nConnection: close\r\n" + VIA + b"\r\nabc")
        await running.upstream.send_all(b"2\r\nde\r\n0\r\nETag: x\r\n\r\n")
        await expect(running.client, b"de")
        outcome = await running.result()
        assert (outcome.client_reusable, outcome.upstream_reusable) == (False, True)
        await nothing_more(running.client)


async def test_both_connections_can_be_said_to_end() -> None:
    async with exchange(GET, keep=False) as running:
        await expect(running.upstream, GET_SENT.replace(VIA, b"Connection: close\r\n" + VIA))
        await running.upstream.send_all(OK)
        await expect(running.client, OK_SENT.replace(VIA, b"Connection: close\r\n" + VIA))
        outcome = await running.result()
        assert (outcome.client_reusable, outcome.upstream_reusable) == (False, False)


@pytest.mark.parametrize(
    ("request_option", "response_option", "client", "upstream"),
    [
        (b"close", b"keep-alive", False, True),
        (b"keep-alive", b"close", True, False),
        (b"close", b"close", False, False),
    ],
)
async def test_the_two_connections_are_kept_independently(
    request_option: bytes, response_option: bytes, client: bool, upstream: bool
) -> None:
    async with exchange(GET[:-2] + b"Connection: " + request_option + b"\r\n\r\n") as running:
        await running.upstream.send_all(OK.replace(b"\r\n\r\n", b"\r\nConnection: " + response_option + b"\r\n\r\n"))
        outcome = await running.result()
        assert (outcome.client_reusable, outcome.upstream_reusable) == (client, upstream)


async def test_what_follows_an_answer_spoils_the_upstream_connection() -> None:
    async with exchange(GET) as running:
        await running.upstream.send_all(OK + b"HTTP/1.1 200 OK\r\n")
        await expect(running.client, OK_SENT)
        outcome = await running.result()
        assert (outcome.client_reusable, outcome.upstream_reusable) == (True, False)
        await nothing_more(running.client)


# Interim responses


async def test_the_client_waits_for_100_before_it_sends_its_body() -> None:
    async with exchange(POST.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n")) as running:
        await expect(running.upstream, b"POST /b HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n")
        await running.upstream.send_all(b"HTTP/1.1 100 Continue\r\n\r\n")
        await expect(running.client, b"HTTP/1.1 100 Continue\r\n" + VIA + b"\r\n")
        await running.client.send_all(b"abcdef")
        await expect(running.upstream, b"Content-Length: 6\r\n" + VIA + b"\r\nabcdef")
        await running.upstream.send_all(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + OK)
        await expect(running.client, b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n" + VIA + b"\r\n" + OK_SENT)
        assert (await running.result()).client_reusable


async def test_a_refused_expectation_ends_the_connection() -> None:
    # Whether the client will send its body all the same is not known: RFC 9110 section 10.1.1
    async with exchange(POST.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n")) as running:
        await running.upstream.send_all(b"HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n")
        await expect(running.client, b"HTTP/1.1 417 No\r\nContent-Length: 0\r\nConnection: close\r\n" + VIA + b"\r\n")
        outcome = await running.result()
        assert (outcome.client_reusable, outcome.upstream_reusable) == (False, False)
        assert outcome.client_sending


async def test_interim_responses_without_end() -> None:
    async with exchange(GET, limits=Http1Limits(max_interim_responses=2)) as running:
        await running.upstream.send_all(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 3)
        with pytest.raises(UpstreamError, match="too many interim") as caught:
            await running.result()
        assert not caught.value.response_started


# Both directions at once


async def test_an_answer_before_the_body_has_ended() -> None:
    async with exchange(POST + b"abc") as running:
        await expect(running.upstream, POST_SENT + b"abc")
        await running.upstream.send_all(OK)
        await expect(running.client, OK_SENT.replace(VIA, b"Connection: close\r\n" + VIA))
        outcome = await running.result()
        assert (outcome.client_reusable, outcome.upstream_reusable) == (False, False)
        assert outcome.client_sending


async def test_the_answer_of_an_upstream_that_stops_reading() -> None:
    async with exchange(POST) as running:
        await expect(running.upstream, POST_SENT)
        await running.upstream.send_all(b"HTTP/1.1 413 Too Large\r\nContent-Length: 4\r\n\r\nno")
        assert isinstance(running.upstream, trio.StapledStream)
        await running.upstream.receive_stream.aclose()
        await running.client.send_all(b"abcdef")
        await trio.testing.wait_all_tasks_blocked()
        await running.upstream.send_all(b"!!")
        await expect(
            running.client, b"HTTP/1.1 413 Too Large\r\nContent-Length: 4\r\nConnection: close\r\n" + VIA + b"\r\nno!!"
        )
        assert not (await running.result()).upstream_reusable


async def test_a_conversation_in_one_exchange() -> None:
    async with exchange(CHUNKED_POST, pair=trio.testing.lockstep_stream_pair) as running:
        await expect(running.upstream, CHUNKED_POST_SENT)
        await running.upstream.send_all(CHUNKED_OK)
        await expect(running.client, CHUNKED_OK_SENT.replace(VIA, b"Connection: close\r\n" + VIA))
        for number in range(5):
            chunk = b"1\r\n%d\r\n" % number
            await running.client.send_all(chunk)
            await expect(running.upstream, chunk)
            await running.upstream.send_all(chunk)
            await expect(running.client, chunk)
        await running.client.send_all(b"0\r\n\r\n")
        await expect(running.upstream, b"0\r\n\r\n")
        await running.upstream.send_all(b"0\r\n\r\n")
        await expect(running.client, b"0\r\n\r\n")
        assert (await running.result()).upstream_reusable


async def test_large_bodies_both_ways_at_once() -> None:
    size = 3_000_000
    body = bytes(range(256)) * (size // 256 + 1)
    head = b"POST http://a/b HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % size
    sent_head = POST_SENT.replace(b"6", b"%d" % size)
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size
    async with exchange(head, pair=trio.testing.lockstep_stream_pair) as running, trio.open_nursery() as nursery:
        nursery.start_soon(running.client.send_all, body[:size])
        await expect(running.upstream, sent_head)
        await running.upstream.send_all(answer)
        nursery.start_soon(running.upstream.send_all, body[1 : size + 1])
        received: list[bytes] = []

        async def collect() -> None:
            await receive(running.client, len(answer + VIA + b"Connection: close\r\n"))
            received.append(await receive(running.client, size))

        nursery.start_soon(collect)
        assert await receive(running.upstream, size) == body[:size]
        await running.result()
        nursery.cancel_scope.deadline = trio.current_time() + 10
    assert received == [body[1 : size + 1]]


async def test_a_client_that_does_not_read_stops_the_upstream(autojump_clock: trio.testing.MockClock) -> None:
    async with exchange(GET, pair=trio.testing.lockstep_stream_pair, limits=Http1Limits(read_bytes=100)) as running:
        await expect(running.upstream, GET_SENT)
        sent = 0
        with trio.move_on_after(1):
            while True:
                await running.upstream.send_all(EVENTS if not sent else b"x" * 100)
                sent += 100
        assert sent <= 300


async def test_an_upstream_that_does_not_read_stops_the_client(autojump_clock: trio.testing.MockClock) -> None:
    head = b"POST http://a/b HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n"
    async with exchange(head, pair=trio.testing.lockstep_stream_pair, limits=Http1Limits(read_bytes=100)) as running:
        sent = 0
        with trio.move_on_after(1):
            while True:
                await running.client.send_all(b"x" * 100)
                sent += 100
        assert sent <= 200


async def test_H66_each_event_arrives_when_it_is_sent() -> None:
    async with exchange(GET) as running:
        await running.upstream.send_all(EVENTS)
        await expect(running.client, EVENTS[:-2] + b"Connection: close\r\n" + VIA + b"\r\n")
        for number in range(5):
            event = b"data: %d\n\n" % number
            await running.upstream.send_all(event)
            await expect(running.client, event)


async def test_H66_each_event_in_a_chunk_arrives_when_it_is_sent() -> None:
    async with exchange(GET) as running:
        await running.upstream.send_all(CHUNKED_OK)
        await expect(running.client, CHUNKED_OK_SENT)
        for number in range(5):
            event = b"9\r\ndata: %d\n\n\r\n" % number
            await running.upstream.send_all(event)
            await expect(running.client, event)


async def test_a_client_that_has_shut_its_write_side_still_gets_its_answer() -> None:
    async with exchange(GET) as running:
        await running.client.send_eof()
        await expect(running.upstream, GET_SENT)
        await running.upstream.send_all(OK)
        await expect(running.client, OK_SENT)
        assert (await running.result()).status == 200


# Upgrades

WEBSOCKET = b"GET http://a/b HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"


async def test_a_websocket_is_handed_over_with_what_was_read() -> None:
    async with exchange(WEBSOCKET + b"early") as running:
        await expect(running.upstream, GET_SENT.replace(VIA, b"Upgrade: websocket\r\nConnection: Upgrade\r\n" + VIA))
        await running.upstream.send_all(
            b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x02hi"
        )
        await expect(
            running.client,
            b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" + VIA + b"\r\n",
        )
        assert await running.result() == Outcome(
            status=101,
            client_reusable=False,
            client_leftover=b"early",
            client_sending=False,
            upstream_reusable=False,
            upgraded=True,
            upstream_leftover=b"\x81\x02hi",
        )


async def test_an_upgrade_may_be_declined() -> None:
    async with exchange(WEBSOCKET) as running:
        await running.upstream.send_all(OK)
        outcome = await running.result()
        assert (outcome.upgraded, outcome.client_reusable) == (False, True)


@pytest.mark.parametrize(
    ("request_head", "protocol"), [(GET, b"websocket"), (GET, b"h2c"), (WEBSOCKET, b"h2c"), (POST, b"websocket")]
)
async def test_H27_a_switch_nobody_asked_for(request_head: bytes, protocol: bytes) -> None:
    async with exchange(request_head) as running:
        await running.upstream.send_all(
            b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: " + protocol + b"\r\n\r\n"
        )
        with pytest.raises(UpstreamError, match="not asked for") as caught:
            await running.result()
        assert (caught.value.status, caught.value.response_started) == (502, False)


# Several requests on one connection


async def serve(client: trio.abc.Stream, upstreams: dict[str, trio.abc.Stream]) -> None:
    """The shortest session: every request is judged by itself, against the hosts that there are."""
    leftover = b""
    while True:
        reader = RequestHeadReader()
        head = reader.feed(leftover)
        while head is None:
            data = await client.receive_some()
            if not data:
                return
            head = reader.feed(bytes(data))
        if head.authority_text not in upstreams:
            await client.send_all(replies.blocked(head.authority_text, "not_in_allowlist"))
            await client.aclose()
            return
        outcome = await forward_exchange(head, client, reader.leftover, upstreams[head.authority_text])
        assert outcome.client_reusable
        leftover = outcome.client_leftover


async def test_H22_pipelined_requests_are_judged_one_by_one() -> None:
    client, near_client = trio.testing.memory_stream_pair()
    near_good, good = trio.testing.memory_stream_pair()
    await client.send_all(
        POST.replace(b"//a/", b"//good/").replace(b"Host: a", b"Host: good")
        + b"abcdef"
        + b"GET http://evil/ HTTP/1.1\r\nHost: evil\r\n\r\n"
    )
    await good.send_all(OK)
    await serve(near_client, {"good:80": near_good})
    await near_good.aclose()
    answers = await receive(client, 10_000)
    assert answers.startswith(OK_SENT + b"HTTP/1.1 403 Forbidden\r\n")
    assert answers.endswith(b"blocked by sandbox network policy: evil:80 (not_in_allowlist)\n")
    assert await receive(good, 10_000) == POST_SENT.replace(b"Host: a", b"Host: good") + b"abcdef"


async def test_each_request_of_a_connection_goes_to_its_own_host() -> None:
    client, near_client = trio.testing.memory_stream_pair()
    pairs = {f"{name}:80": trio.testing.memory_stream_pair() for name in "ab"}
    for name in b"a", b"b", b"b", b"a":
        await client.send_all(GET.replace(b"//a/", b"//" + name + b"/").replace(b"Host: a", b"Host: " + name))
    await client.send_eof()

    async def answer(authority: str, origin: trio.abc.Stream) -> None:
        for _ in range(2):
            await expect(origin, GET_SENT.replace(b"Host: a", b"Host: " + authority[0].encode()))
            await origin.send_all(OK)
        await nothing_more(origin)

    async with trio.open_nursery() as nursery:
        for authority, (_, far) in pairs.items():
            nursery.start_soon(answer, authority, far)
        await serve(near_client, {authority: near for authority, (near, _) in pairs.items()})
    await expect(client, OK_SENT * 4)
