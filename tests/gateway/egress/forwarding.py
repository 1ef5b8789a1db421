"""An exchange over in-memory streams, and messages with the form in which they must come out."""

import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio
import trio.testing

from gateway.egress.forward import ForwardError, Outcome, Traffic, forward_exchange
from gateway.egress.http1 import DEFAULT_LIMITS, Http1Limits, RequestHeadReader

VIA = b"Via: 1.1 iterion-sandbox\r\n"
GET = b"GET http://a/b HTTP/1.1\r\nHost: a\r\n\r\n"
GET_SENT = b"GET /b HTTP/1.1\r\nHost: a\r\n" + VIA + b"\r\n"
POST = b"POST http://a/b HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\n"
POST_SENT = b"POST /b HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n" + VIA + b"\r\n"
CHUNKED_POST = b"POST http://a/b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNKED_POST_SENT = b"POST /b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n" + VIA + b"\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
OK_SENT = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n" + VIA + b"\r\nhi"
CHUNKED_OK = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNKED_OK_SENT = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n" + VIA + b"\r\n"
EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"

Pair = Callable[[], tuple[trio.abc.HalfCloseableStream, trio.abc.HalfCloseableStream]]


class Exchange:
    """An exchange in progress: the far ends of both connections, and in the end its result."""

    def __init__(self, client: trio.abc.HalfCloseableStream, upstream: trio.abc.HalfCloseableStream) -> None:
        self.client = client
        self.upstream = upstream
        self.traffic = Traffic()
        self.outcome: Outcome | None = None
        self.error: ForwardError | None = None
        self._done = trio.Event()

    async def run(self, work: Callable[[], Awaitable[Outcome]]) -> None:
        try:
            self.outcome = await work()
        except ForwardError as error:
            self.error = error
        finally:
            self._done.set()

    async def result(self) -> Outcome:
        await self._done.wait()
        if self.error is not None:
            raise self.error
        assert self.outcome is not None
        return self.outcome


@asynccontextmanager
async def exchange(
    request: bytes,
    *,
    pair: Pair = trio.testing.memory_stream_pair,
    limits: Http1Limits = DEFAULT_LIMITS,
    keep: bool = True,
    first_byte_timeout_s: float = math.inf,
    idle_timeout_s: float = math.inf,
) -> AsyncIterator[Exchange]:
    """Forward ``request`` (a head, and what came with it in the same read)."""
    client, near_client = pair()
    near_upstream, upstream = pair()
    running = Exchange(client, upstream)
    reader = RequestHeadReader()
    head = reader.feed(request)
    assert head is not None

    async def work() -> Outcome:
        return await forward_exchange(
            head,
            near_client,
            reader.leftover,
            near_upstream,
            limits=limits,
            traffic=running.traffic,
            keep_client=keep,
            keep_upstream=keep,
            first_byte_timeout_s=first_byte_timeout_s,
            idle_timeout_s=idle_timeout_s,
        )

    async with trio.open_nursery() as nursery:
        nursery.start_soon(running.run, work)
        yield running
        nursery.cancel_scope.cancel()


async def receive(stream: trio.abc.ReceiveStream, size: int) -> bytes:
    """Exactly ``size`` bytes, or what came before the end."""
    data = b""
    while len(data) < size:
        part = await stream.receive_some(size - len(data))
        if not part:
            break
        data += part
    return data


async def expect(stream: trio.abc.ReceiveStream, data: bytes) -> None:
    """Receive exactly ``data``."""
    assert await receive(stream, len(data)) == data


async def arrived(stream: trio.abc.ReceiveStream) -> bytes:
    """All that can be received once nothing moves any more."""
    data = bytearray()

    async def collect() -> None:
        while part := await stream.receive_some():
            data.extend(part)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(collect)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    return bytes(data)


async def nothing_more(stream: trio.abc.ReceiveStream) -> None:
    """Check that there is nothing to receive, nor will be."""
    assert await arrived(stream) == b""
