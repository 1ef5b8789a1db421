"""One exchange that goes wrong: whose fault it is, what may still be answered, and what was never passed on."""

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from gateway.egress.forward import (
    ClientGone,
    ClientProtocolError,
    ForwardError,
    Traffic,
    UpstreamError,
    forward_exchange,
)
from gateway.egress.http1 import Http1Limits, RequestHeadReader
from tests.gateway.egress.forwarding import (
    CHUNKED_OK,
    CHUNKED_OK_SENT,
    CHUNKED_POST,
    CHUNKED_POST_SENT,
    EVENTS,
    GET,
    OK,
    POST,
    VIA,
    arrived,
    exchange,
    expect,
    nothing_more,
    receive,
)

# Faults of the upstream


@pytest.mark.parametrize(
    ("request_head", "answer", "replayable"),
    [
        (GET, b"", True),
        (GET.replace(b"GET", b"DELETE"), b"", True),
        (GET, b"HTTP/1.1 200", False),
        (GET, b"HTTP/1.1 103 Early Hints\r\n\r\n", False),
        (GET.replace(b"GET", b"POST"), b"", False),
        (POST.replace(b"POST", b"PUT") + b"abcdef", b"", False),
    ],
)
@pytest.mark.parametrize("broken", [False, True])
async def test_an_upstream_that_closes_before_it_answers(
    request_head: bytes, answer: bytes, replayable: bool, broken: bool
) -> None:
    async with exchange(request_head) as running:
        await trio.testing.wait_all_tasks_blocked()
        await running.upstream.send_all(answer)
        await (running.upstream.aclose() if broken else running.upstream.send_eof())
        with pytest.raises(UpstreamError) as caught:
            await running.result()
        assert (caught.value.status, caught.value.response_started) == (502, False)
        assert caught.value.replayable is replayable


async def test_a_kept_connection_that_was_already_dead() -> None:
    client, near_client = trio.testing.memory_stream_pair()
    near_upstream, upstream = trio.testing.memory_stream_pair()
    await upstream.aclose()
    head = RequestHeadReader().feed(GET)
    assert head is not None
    traffic = Traffic()
    with pytest.raises(UpstreamError) as caught:
        await forward_exchange(head, near_client, b"", near_upstream, traffic=traffic)
    assert caught.value.replayable
    assert traffic == Traffic()
    await nothing_more(client)


class BrokenStream(trio.abc.Stream):
    """A connection that was reset."""

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        raise trio.BrokenResourceError

    async def wait_send_all_might_not_block(self) -> None:
        raise trio.BrokenResourceError

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        raise trio.BrokenResourceError

    async def aclose(self) -> None:
        """Nothing to close."""


async def test_an_upstream_that_was_reset() -> None:
    _, near_client = trio.testing.memory_stream_pair()
    head = RequestHeadReader().feed(GET)
    assert head is not None
    with pytest.raises(UpstreamError, match="broke the connection off") as caught:
        await forward_exchange(head, near_client, b"", BrokenStream())
    assert caught.value.replayable


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nX: a\rSet-Cookie: b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
        b"220 mail.example ESMTP\r\n",
        CHUNKED_OK + b"3\r\nabcd\r\n",
        CHUNKED_OK + b"0x3\r\nabc\r\n",
    ],
)
async def test_H25_an_answer_that_is_not_http_1(answer: bytes) -> None:
    async with exchange(GET) as running:
        await running.upstream.send_all(answer)
        with pytest.raises(UpstreamError) as caught:
            await running.result()
        assert (caught.value.status, caught.value.response_started) == (502, False)
        assert not caught.value.replayable
        await nothing_more(running.client)


async def test_H25_a_bad_chunk_after_good_ones_is_not_passed_on() -> None:
    async with exchange(GET) as running:
        await running.upstream.send_all(CHUNKED_OK + b"3\r\nabc\r\n")
        await expect(running.client, CHUNKED_OK_SENT + b"3\r\nabc\r\n")
        await running.upstream.send_all(b"3;\nabc\r\n")
        with pytest.raises(UpstreamError, match="bare LF") as caught:
            await running.result()
        assert caught.value.response_started
        await nothing_more(running.client)


@pytest.mark.parametrize("head", [CHUNKED_OK + b"5\r\nab", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab"])
async def test_an_answer_that_is_cut_short(head: bytes) -> None:
    async with exchange(GET) as running:
        await running.upstream.send_all(head)
        await running.upstream.send_eof()
        with pytest.raises(UpstreamError, match="ended inside") as caught:
            await running.result()
        assert (caught.value.status, caught.value.response_started) == (502, True)


# Faults of the client


@pytest.mark.parametrize("body", [b"3\r\nabcd\r\n", b"3;\n\r\n", b"0\r\nHost: b\r\n\r\n"])
@pytest.mark.parametrize("at_once", [False, True])
async def test_H25_a_malformed_request_body(body: bytes, at_once: bool) -> None:
    async with exchange(CHUNKED_POST + body if at_once else CHUNKED_POST) as running:
        if not at_once:
            await trio.testing.wait_all_tasks_blocked()
            await running.client.send_all(body)
        with pytest.raises(ClientProtocolError) as caught:
            await running.result()
        assert (caught.value.status, caught.value.response_started) == (400, False)
        await expect(running.upstream, b"" if at_once else CHUNKED_POST_SENT)
        await nothing_more(running.upstream)


async def test_a_malformed_request_body_after_the_answer_has_begun() -> None:
    async with exchange(CHUNKED_POST) as running:
        await running.upstream.send_all(EVENTS)
        await receive(running.client, len(EVENTS))
        await running.client.send_all(b"x\r\n")
        with pytest.raises(ClientProtocolError) as caught:
            await running.result()
        assert caught.value.response_started


@pytest.mark.parametrize("request_head", [POST + b"abc", CHUNKED_POST + b"3\r\nabc\r\n"])
async def test_a_request_body_that_is_cut_short(request_head: bytes) -> None:
    async with exchange(request_head) as running:
        await running.client.send_eof()
        with pytest.raises(ClientProtocolError, match="ended inside") as caught:
            await running.result()
        assert (caught.value.status, caught.value.response_started) == (400, False)
        assert str(caught.value).startswith("400: ")


async def test_a_client_that_leaves_during_the_answer() -> None:
    async with exchange(GET) as running:
        await running.client.aclose()
        await running.upstream.send_all(OK)
        with pytest.raises(ClientGone):
            await running.result()


async def test_a_client_that_was_reset_during_its_body() -> None:
    near_upstream, _ = trio.testing.memory_stream_pair()
    head = RequestHeadReader().feed(POST)
    assert head is not None
    with pytest.raises(ClientGone):
        await forward_exchange(head, BrokenStream(), b"abc", near_upstream)


# Time


async def test_an_upstream_that_does_not_answer(autojump_clock: trio.testing.MockClock) -> None:
    async with exchange(GET, first_byte_timeout_s=30, idle_timeout_s=5) as running:
        with pytest.raises(UpstreamError) as caught:
            await running.result()
        assert (caught.value.status, caught.value.response_started) == (504, False)
        assert not caught.value.replayable
        assert trio.current_time() == pytest.approx(30)


async def test_a_request_body_that_does_not_arrive(autojump_clock: trio.testing.MockClock) -> None:
    async with exchange(POST, first_byte_timeout_s=30, idle_timeout_s=5) as running:
        await trio.sleep(4)
        await running.client.send_all(b"abc")
        with pytest.raises(ClientProtocolError) as caught:
            await running.result()
        assert (caught.value.status, caught.value.response_started) == (408, False)
        assert trio.current_time() == pytest.approx(9)


async def test_an_upstream_that_does_not_take_the_request(autojump_clock: trio.testing.MockClock) -> None:
    async with exchange(POST + b"abc", pair=trio.testing.lockstep_stream_pair, idle_timeout_s=5) as running:
        with pytest.raises(UpstreamError) as caught:
            await running.result()
        assert (caught.value.status, caught.value.response_started) == (504, False)


async def test_silence_inside_an_answer(autojump_clock: trio.testing.MockClock) -> None:
    async with exchange(GET, first_byte_timeout_s=3, idle_timeout_s=60) as running:
        await trio.sleep(2)
        await running.upstream.send_all(EVENTS)
        for _ in range(5):
            await trio.sleep(59)
            await running.upstream.send_all(b"data: x\n\n")
        with pytest.raises(UpstreamError) as caught:
            await running.result()
        assert (caught.value.status, caught.value.response_started) == (504, True)
        assert trio.current_time() == pytest.approx(2 + 5 * 59 + 60)


async def test_a_limit_may_hold_for_the_first_byte_only(autojump_clock: trio.testing.MockClock) -> None:
    async with exchange(GET, first_byte_timeout_s=3) as running:
        await running.upstream.send_all(EVENTS)
        await trio.sleep(80_000)
        await running.upstream.send_all(b"data: x\n\n")
        await running.upstream.send_eof()
        assert (await running.result()).status == 200


@pytest.mark.parametrize("request_head", [GET, POST, POST + b"abcdef"])
async def test_cancellation_passes_through(request_head: bytes, autojump_clock: trio.testing.MockClock) -> None:
    client, near_client = trio.testing.memory_stream_pair()
    near_upstream, upstream = trio.testing.memory_stream_pair()
    reader = RequestHeadReader()
    head = reader.feed(request_head)
    assert head is not None
    with trio.move_on_after(1) as scope:
        await forward_exchange(head, near_client, reader.leftover, near_upstream, idle_timeout_s=5)
    assert scope.cancelled_caught
    await nothing_more(client)
    assert (await arrived(upstream)).endswith(VIA + b"\r\n" + reader.leftover)


async def test_connect_is_not_forwarded() -> None:
    head = RequestHeadReader().feed(b"CONNECT a:1 HTTP/1.1\r\n\r\n")
    assert head is not None
    with pytest.raises(ValueError, match="tunnel"):
        await forward_exchange(head, BrokenStream(), b"", BrokenStream())


# Any bytes at all


async def outcome_of(request: bytes, answer: bytes, sizes: list[int]) -> tuple[bytes, bytes, bool]:
    """What upstream and client receive, and whether the exchange succeeded; only ForwardError is raised."""
    async with exchange(request, limits=Http1Limits(read_bytes=7)) as running:
        position = 0
        for size in [*sizes, len(answer)]:
            await running.upstream.send_all(answer[position : position + size])
            position += size
            await trio.testing.wait_all_tasks_blocked()
        await running.upstream.send_eof()
        await running.client.send_eof()
        try:
            await running.result()
        except ForwardError:
            failed = True
        else:
            failed = False
    return await arrived(running.upstream), await arrived(running.client), failed


ANSWERS = st.lists(
    st.sampled_from(
        [
            b"HTTP/1.1 200 OK\r\n",
            b"HTTP/1.1 100 Continue\r\n\r\n",
            b"Content-Length: 3\r\n",
            b"Transfer-Encoding: chunked\r\n",
            b"\r\n",
            b"3\r\nabc\r\n",
            b"0\r\n\r\n",
            b"abc",
            b"\n",
            b"\0",
        ]
    ),
    max_size=8,
).map(b"".join)


@given(
    st.sampled_from([GET, POST + b"abcdef", CHUNKED_POST + b"0\r\n\r\n", GET.replace(b"1.1", b"1.0")]),
    ANSWERS,
    st.lists(st.integers(1, 30), max_size=5),
)
def test_any_answer(request_head: bytes, answer: bytes, sizes: list[int]) -> None:
    async def both() -> None:
        whole = await outcome_of(request_head, answer, [])
        cut = await outcome_of(request_head, answer, sizes)
        assert whole[0] == cut[0]
        if not whole[2]:
            assert whole == cut
        assert whole[2] == cut[2]

    trio.run(both)
