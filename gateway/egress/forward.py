"""One plain-HTTP exchange: a request that policy allowed, its answer, and both bodies as they come.

Theory of operation. The caller has read the request head, judged it and connected; this module sends the head on,
rewritten, and moves the bodies. A request without a body runs in the caller's task alone. With a body there are
two tasks: *upload* (client to upstream) and *download* (upstream to client); each is the only reader of one stream and
the only writer of the other, so no lock is needed. Nothing is buffered beyond one read: a side that does not take
its bytes stops the other one's reads.

- The exchange ends with the download. A server may answer before it has read the whole request; what the client
  would still send is then of no use, so the upload is cancelled. The client learns it in time: if its body was not
  complete when the final response head arrived, that head says ``Connection: close``.
- An upstream that stops reading ends the upload, not the exchange: its answer may say why.
- Between the moment a decoder accepts bytes and the moment they are sent there is no await, so what was refused is
  never sent, and "complete" is known before the upstream can react to the last byte.
- Every expected failure is a ``ForwardError``. The first one wins and cancels the other task.

A long file, because the two tasks share one state and are only understood side by side.
"""

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import trio

from gateway.egress.http1 import (
    DEFAULT_LIMITS,
    FramingKind,
    Http1Limits,
    Piece,
    ProtocolError,
    RequestHead,
    ResponseHead,
    ResponseHeadReader,
    body_decoder,
    forwarded_request,
    forwarded_response,
)
from gateway.egress.http1.framing import BodyDecoder
from gateway.egress.sockets import Peer

__all__ = [
    "ClientGone",
    "ClientProtocolError",
    "ForwardError",
    "Outcome",
    "Traffic",
    "UpstreamError",
    "forward_exchange",
]

# RFC 9110 section 9.2.2. These may be sent again when a kept connection turns out to be dead.
_IDEMPOTENT = frozenset({b"GET", b"HEAD", b"OPTIONS", b"PUT", b"DELETE"})


class ForwardError(Exception):
    """An exchange that failed in one of the expected ways. Both connections must be closed.

    Args:
        status: what to answer the client if nothing of the response has been sent.
        detail: a fixed text for a person; quotes nothing.
        response_started: whether the final response's head has been sent, at least in part: no answer is possible then.
    """

    def __init__(self, status: int, detail: str, *, response_started: bool) -> None:
        super().__init__(status, detail)
        self.status = status
        self.detail = detail
        self.response_started = response_started

    def __str__(self) -> str:
        return f"{self.status}: {self.detail}"


class ClientProtocolError(ForwardError):
    """The client's body is malformed (400), cut short (400) or too slow (408)."""


class ClientGone(ForwardError):
    """The client has closed its connection: there is nobody to answer."""


class UpstreamError(ForwardError):
    """The upstream broke off, sent what is not HTTP/1 (502), or nothing in time (504).

    Args:
        status: 502 or 504.
        detail: a fixed text for a person.
        response_started: as in ``ForwardError``.
        replayable: no byte of an answer came, and the request is idempotent and had no body. If the connection was
            a kept one, the same call on a fresh one is safe (RFC 9110 section 9.2.2, RFC 9112 section 9.3.1).
    """

    def __init__(self, status: int, detail: str, *, response_started: bool, replayable: bool = False) -> None:
        super().__init__(status, detail, response_started=response_started)
        self.replayable = replayable


@dataclass(slots=True)
class Traffic:
    """Bytes moved so far, heads included. Kept by the caller, so that it is right after any failure."""

    up: int = 0
    "Sent to the upstream."
    down: int = 0
    "Sent to the client."


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How an exchange ended, and what may be done with the two connections."""

    status: int
    "The final response's status."
    client_reusable: bool
    "Read the next request, starting with ``client_leftover``; otherwise close."
    client_leftover: bytes = field(repr=False)
    "What the client sent after this request (with an upgrade: the new protocol's first bytes)."
    client_sending: bool
    "Its request body had not ended: close only after reading for a while, or a reset may destroy the answer."
    upstream_reusable: bool
    "The upstream connection is at the border between two exchanges; otherwise close it."
    upgraded: bool = False
    "101 was sent: relay both streams from here on, the two leftovers first."
    upstream_leftover: bytes = field(default=b"", repr=False)
    "What the upstream sent after the 101; empty without an upgrade."


async def forward_exchange(
    head: RequestHead,
    client: trio.abc.Stream,
    client_buffer: bytes,
    upstream: trio.abc.Stream,
    *,
    limits: Http1Limits = DEFAULT_LIMITS,
    traffic: Traffic | None = None,
    keep_client: bool = True,
    keep_upstream: bool = True,
    first_byte_timeout_s: float = math.inf,
    idle_timeout_s: float = math.inf,
    half_close_timeout_s: float = math.inf,
    client_peer: Callable[[], Peer] | None = None,
    client_check_s: float = math.inf,
) -> Outcome:
    """Send one request on and its answer back.

    Args:
        head: the client's request; not CONNECT. The caller has judged ``head.authority_text``.
        client: where the request came from.
        client_buffer: what has been read from the client behind the head (``RequestHeadReader.leftover``).
        upstream: a connection to the judged authority, fresh or at the border between two exchanges.
        limits: of heads, chunk headers and trailers.
        traffic: counts bytes; given by the caller so that it can be read after a failure.
        keep_client: False to announce that the client's connection ends with this exchange.
        keep_upstream: False to announce the same to the upstream.
        first_byte_timeout_s: from the complete request to the response's head, in seconds.
        idle_timeout_s: the longest silence at any other time, in seconds.
        half_close_timeout_s: the same once the client has finished sending, in seconds: it may be gone.
        client_peer: says what is known of the client without reading from it; None where nobody can.
        client_check_s: how often that is asked while the upstream is silent, in seconds.

    Returns:
        What happened, and what may be done with the connections.

    Raises:
        ClientProtocolError: the client's fault; answer ``error.status`` unless the response has started.
        UpstreamError: the upstream's fault; answer likewise.
        ClientGone: the client closed.
        ValueError: a CONNECT head.

    Closes neither stream. Cancelled, it leaves both in an unknown state: close them.

    Source: RFC 9110 sections 7, 10.1.1, 15.2; RFC 9112 sections 6 to 9.
    """
    if head.is_connect:
        raise ValueError("CONNECT opens a tunnel: there is no request to forward")
    exchange = _Exchange(
        head,
        client,
        client_buffer,
        upstream,
        limits=limits,
        traffic=traffic if traffic is not None else Traffic(),
        keep_client=keep_client,
        keep_upstream=keep_upstream,
        first_byte_timeout_s=first_byte_timeout_s,
        idle_timeout_s=idle_timeout_s,
        half_close_timeout_s=half_close_timeout_s,
        client_peer=client_peer,
        client_check_s=client_check_s,
    )
    return await exchange.run()


class _Exchange:
    """The state that upload and download share; every change of it is synchronous."""

    def __init__(
        self,
        head: RequestHead,
        client: trio.abc.Stream,
        client_buffer: bytes,
        upstream: trio.abc.Stream,
        *,
        limits: Http1Limits,
        traffic: Traffic,
        keep_client: bool,
        keep_upstream: bool,
        first_byte_timeout_s: float,
        idle_timeout_s: float,
        half_close_timeout_s: float,
        client_peer: Callable[[], Peer] | None,
        client_check_s: float,
    ) -> None:
        self._head = head
        self._client = client
        self._client_buffer = client_buffer
        self._upstream = upstream
        self._limits = limits
        self._traffic = traffic
        self._keep_client = keep_client and head.keep_alive
        self._keep_upstream = keep_upstream
        self._first_byte_timeout_s = first_byte_timeout_s
        self._idle_timeout_s = idle_timeout_s
        self._half_close_timeout_s = half_close_timeout_s
        self._client_peer = client_peer
        self._client_check_s = client_check_s if client_peer is not None else math.inf
        self._request_body = body_decoder(head.framing, limits)
        self._request_sent = False
        self._waits_for_client = False
        self._answered = False  # any byte from the upstream
        self._response_started = False
        self._watchdog = trio.CancelScope()
        self._failure: ForwardError | None = None
        self._outcome: Outcome | None = None

    async def run(self) -> Outcome:
        with self._watchdog:
            self._progress()
            if self._request_body.complete:
                self._request_body.leftover = self._client_buffer
                await self._guard(self._send_bodiless_request)
            else:
                await self._exchange_bodies()
        if self._outcome is not None:
            return self._outcome
        raise self._failure or self._timed_out()

    async def _send_bodiless_request(self) -> None:
        await self._upload()
        await self._download()

    async def _exchange_bodies(self) -> None:
        async with trio.open_nursery() as nursery:

            async def upload() -> None:
                await self._guard(self._upload)
                if self._failure is not None:
                    nursery.cancel_scope.cancel()

            nursery.start_soon(upload)
            await self._guard(self._download)
            nursery.cancel_scope.cancel()

    async def _guard(self, step: Callable[[], Awaitable[None]]) -> None:
        """Run one task's work; keep the first expected failure of the two."""
        try:
            await step()
        except ForwardError as error:
            self._failure = self._failure or error

    # Upload

    async def _upload(self) -> None:
        head = forwarded_request(self._head, keep_upstream=self._keep_upstream)
        body = self._request_body
        sent = await self._send_upstream(head + (b"" if body.complete else self._feed_request(self._client_buffer)))
        while sent and not body.complete:
            wire = self._feed_request(await self._receive_client())
            sent = not wire or await self._send_upstream(wire)
        self._request_sent = sent
        self._progress()

    def _feed_request(self, data: bytes) -> bytes:
        try:
            return _join(self._request_body.feed(data))
        except ProtocolError as error:
            raise self._client_error(error) from None

    async def _receive_client(self) -> bytes:
        self._waits_for_client = True
        try:
            data = await self._client.receive_some(self._limits.read_bytes)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise self._client_gone() from error
        self._waits_for_client = False
        self._progress()
        if not data:
            try:
                self._request_body.feed_eof()
            except ProtocolError as error:
                raise self._client_error(error) from None
        return bytes(data)

    async def _send_upstream(self, data: bytes) -> bool:
        """Whether the upstream took it. If not, it may still have answered."""
        try:
            await self._upstream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return False
        self._traffic.up += len(data)
        self._progress()
        return True

    # Download

    async def _download(self) -> None:
        response, data = await self._receive_final_head()
        if response.status == 101:
            await self._finish_upgrade(response, data)
            return
        body = body_decoder(response.framing, self._limits)
        keep_client = (
            self._keep_client and self._request_body.complete and response.framing.kind is not FramingKind.UNTIL_CLOSE
        )
        head = forwarded_response(response, client_minor=self._head.minor, keep_client=keep_client)
        if body.complete:
            body.leftover = data
            wire = head
        else:
            wire = head + self._feed_response(body, data)
        self._response_started = True
        await self._send_client(wire)
        while not body.complete:
            data = await self._receive_upstream()
            if data:
                wire = self._feed_response(body, data)
                if wire:
                    await self._send_client(wire)
            else:
                try:
                    body.feed_eof()
                except ProtocolError as error:
                    raise self._upstream_error(502, error.detail) from None
        self._outcome = Outcome(
            status=response.status,
            client_reusable=keep_client,
            client_leftover=self._request_body.leftover,
            client_sending=not self._request_body.complete,
            # Bytes behind the response were not asked for: the next request must not take them for its answer.
            upstream_reusable=(
                self._keep_upstream and self._request_sent and response.keep_alive and not body.leftover
            ),
        )

    async def _receive_final_head(self) -> tuple[ResponseHead, bytes]:
        """The final response's head (or 101) and what was read behind it; interim ones are passed on."""
        data = b""
        for _ in range(self._limits.max_interim_responses + 1):
            response, data = await self._receive_head(data)
            if not response.is_interim:
                return response, data
            if self._head.minor == 1:  # RFC 9110 section 15.2: never to an HTTP/1.0 client
                await self._send_client(forwarded_response(response, client_minor=1, keep_client=True))
        raise self._upstream_error(502, "it sent too many interim responses")

    async def _receive_head(self, data: bytes) -> tuple[ResponseHead, bytes]:
        reader = ResponseHeadReader(self._head.method, self._limits)
        try:
            while (response := reader.feed(data)) is None:
                data = await self._receive_upstream()
                if not data:
                    raise self._upstream_error(502, "it closed the connection without a complete answer")
        except ProtocolError as error:
            raise self._upstream_error(502, error.detail) from None
        return response, reader.leftover

    async def _finish_upgrade(self, response: ResponseHead, data: bytes) -> None:
        if response.upgrade is None or response.upgrade != self._head.upgrade:
            raise self._upstream_error(502, "it switched to a protocol that was not asked for")
        self._response_started = True
        await self._send_client(forwarded_response(response, client_minor=1, keep_client=True))
        self._outcome = Outcome(
            status=101,
            client_reusable=False,
            client_leftover=self._request_body.leftover,
            client_sending=False,
            upstream_reusable=False,
            upgraded=True,
            upstream_leftover=data,
        )

    def _feed_response(self, body: BodyDecoder, data: bytes) -> bytes:
        try:
            pieces = body.feed(data)
        except ProtocolError as error:
            raise self._upstream_error(502, error.detail) from None
        if self._head.minor == 0:  # it does not know the chunked coding
            pieces = [piece for piece in pieces if piece.is_payload]
        return _join(pieces)

    async def _receive_upstream(self) -> bytes:
        while True:
            with trio.move_on_after(self._client_check_s):
                try:
                    data = await self._upstream.receive_some(self._limits.read_bytes)
                except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                    raise self._upstream_error(502, "it broke the connection off") from error
                self._answered = self._answered or bool(data)
                self._progress()
                return bytes(data)
            self._look_at_client()

    def _look_at_client(self) -> None:
        """Notice a client that went away while nothing is sent to it. The upload, where there is one, does that."""
        if self._client_peer is None or not self._request_body.complete:
            return
        peer = self._client_peer()
        if peer is Peer.GONE:
            raise self._client_gone()
        if peer is Peer.ENDED:
            due = trio.current_time() + self._half_close_timeout_s
            self._watchdog.deadline = min(self._watchdog.deadline, due)

    async def _send_client(self, data: bytes) -> None:
        try:
            await self._client.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise self._client_gone() from error
        self._traffic.down += len(data)
        self._progress()

    # Time and failures

    def _progress(self) -> None:
        """Something moved: start the silence anew."""
        waits_for_head = self._request_sent and not self._response_started
        timeout_s = self._first_byte_timeout_s if waits_for_head else self._idle_timeout_s
        if timeout_s != math.inf:
            self._watchdog.deadline = trio.current_time() + timeout_s
        elif self._watchdog.deadline != math.inf:
            self._watchdog.deadline = math.inf

    def _timed_out(self) -> ForwardError:
        if self._waits_for_client and not self._response_started:
            return ClientProtocolError(408, "the request body did not arrive in time", response_started=False)
        return self._upstream_error(504, "nothing arrived in time")

    def _client_error(self, error: ProtocolError) -> ClientProtocolError:
        return ClientProtocolError(error.status, error.detail, response_started=self._response_started)

    def _client_gone(self) -> ClientGone:
        return ClientGone(400, "the client closed the connection", response_started=self._response_started)

    def _upstream_error(self, status: int, detail: str) -> UpstreamError:
        return UpstreamError(
            status,
            detail,
            response_started=self._response_started,
            replayable=(
                status == 502
                and not self._answered
                and self._head.method in _IDEMPOTENT
                and self._head.framing.kind is FramingKind.NONE
            ),
        )


def _join(pieces: list[Piece]) -> bytes:
    return pieces[0].data if len(pieces) == 1 else b"".join([piece.data for piece in pieces])
