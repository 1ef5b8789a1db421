"""One client connection: read a head, authenticate, judge, then a tunnel or one plain exchange after another.

Theory of operation
-------------------
A session is one task that owns the client's socket and at most one upstream socket. It works on the raw,
non-blocking sockets and tries before it waits: in the common case (a client that has already sent its CONNECT, an
upstream that is at hand) everything up to the 200 happens in one turn of the scheduler.

What must hold between the steps:

* every request is judged, also on a kept connection, and also when it goes to the same host again;
* ``network_allowed`` is handed to the record before the 200 or the request is sent, ``network_blocked`` before the
  refusal is, and each ``network_allowed`` is followed by one ``network_closed``, whatever happens in between;
* a kept upstream connection is used again only for the same authority under the same policy, and only if nothing
  has come over it in between: an end would fail the next request, bytes would be taken for its answer;
* what was cut off ends in a reset: a message that is delimited by its end must not look complete.

The file is longer than most, so that the order of these steps can be read in one place.
"""

import socket
from functools import partial
from typing import Final, Protocol

import trio

from gateway.egress.audit import Audit, Passage
from gateway.egress.connect import LivePolicy, Route
from gateway.egress.forward import ClientProtocolError, ForwardError, Outcome, Traffic, UpstreamError, forward_exchange
from gateway.egress.http1 import Http1Limits, ProtocolError, RequestHead, RequestHeadReader, replies, token_matches
from gateway.egress.limits import Limits
from gateway.egress.resolver import Resolver
from gateway.egress.server_name import ServerNameGate
from gateway.egress.sockets import cut, cut_now, discard, is_untouched, peer_of, send_all
from gateway.egress.tunnel import Ending, Relay, Tunnel
from policy.rules import Reason

__all__ = ["Services", "Session"]

READ_BYTES: Final = 16_384
KNOWN_HEADS: Final = 256
KNOWN_HEAD_BYTES: Final = 1_024
ACCESS_DENIED_ALERT: Final = bytes((0x15, 3, 3, 0, 2, 2, 49))
"A TLS record with the fatal alert access_denied (RFC 8446 section 6.2)."

AUDIT_UNAVAILABLE: Final = "audit_unavailable"
CANCELLED: Final = "cancelled"
CLIENT_ERROR: Final = "client_error"
CLIENT_RESET: Final = "client_reset"
COMPLETED: Final = "completed"
INTERNAL_ERROR: Final = "internal_error"
STALE: Final = "upstream_stale"
"A kept upstream connection had died; the request was sent again on a fresh one."
UPSTREAM_ERROR: Final = "upstream_error"

BAD_CREDENTIALS: Final = "bad_credentials"
MALFORMED: Final = "malformed_request"


class Services(Protocol):
    """What a session needs of its server; read anew for each request, for the policy may be replaced."""

    @property
    def policy(self) -> LivePolicy: ...
    @property
    def resolver(self) -> Resolver: ...
    @property
    def audit(self) -> Audit: ...
    @property
    def relay(self) -> Relay: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def http1_limits(self) -> Http1Limits: ...
    @property
    def known_heads(self) -> dict[bytes, RequestHead]: ...
    @property
    def token_bytes(self) -> bytes | None: ...


class _Upstream:
    """An open upstream connection for plain requests, and the route that it was opened by."""

    __slots__ = ("route", "sock", "stream")

    def __init__(self, route: Route) -> None:
        assert route.sock is not None
        self.route = route
        self.sock = route.sock
        self.stream = trio.SocketStream(trio.socket.from_stdlib_socket(route.sock))


class Session:
    """Serves one client connection.

    Args:
        client: accepted, non-blocking; stays the caller's, who closes it.
        number: of this connection, for the record.
        services: the server's.
    """

    __slots__ = ("_audit", "_client", "_kept", "_limits", "_number", "_services", "_stream")

    def __init__(self, client: socket.socket, number: int, services: Services) -> None:
        self._client = client
        self._number = number
        self._services = services
        self._limits = services.limits
        self._audit = services.audit
        self._stream: trio.SocketStream | None = None
        self._kept: _Upstream | None = None

    async def run(self) -> None:
        """Serve until the connection is over.

        Raises:
            OSError: the client is gone.

        Cancellation ends what is under way, records it, and closes the upstream socket.
        """
        limits = self._limits
        buffered = b""
        timeout_s = limits.head_timeout_s
        try:
            while True:
                reader = RequestHeadReader(self._services.http1_limits)
                head = await self._read_head(reader, buffered, timeout_s)
                if head is None or not await self._accepted(head):
                    return
                if head.is_connect:
                    await self._connect(head, reader.leftover)
                    return
                following = await self._forward(head, reader.leftover)
                if following is None:
                    return
                buffered = following
                timeout_s = limits.keep_alive_timeout_s
        finally:
            self._drop_kept()

    # Reading and refusing

    async def _read_head(self, reader: RequestHeadReader, data: bytes, timeout_s: float) -> RequestHead | None:
        """Return the next head; None when there is none, and the client has had its answer if one is due."""
        begun = bool(data)
        try:
            head = reader.feed(data) if begun else None
            if head is not None:
                return head
            try:
                data = self._client.recv(READ_BYTES)
            except BlockingIOError:
                pass
            else:
                # Only a read that holds a head from its first byte on may be known by its bytes.
                if not begun and (known := self._services.known_heads.get(data)) is not None:
                    return known
                head = reader.feed(data) if data else None
                if head is not None or not data:
                    if not begun:
                        self._remember(head, data, reader.leftover)
                    return head
            with trio.move_on_after(timeout_s) as scope:
                return await self._wait_for_head(reader, scope)
        except ProtocolError as error:
            self._audit.blocked(self._number, code=MALFORMED, reason=error.detail)
            await self._reply(replies.bad_request(error))
            return None
        if reader.started:
            await self._reply(replies.request_timeout())
        return None

    def _remember(self, head: RequestHead | None, data: bytes, leftover: bytes) -> None:
        """Keep what a whole read was parsed to, if that was one CONNECT head: clients repeat them to the byte.

        No other heads: theirs hold the client's secrets, a CONNECT head holds our token at most.
        """
        if head is None or not head.is_connect or leftover or len(data) > KNOWN_HEAD_BYTES:
            return
        known = self._services.known_heads
        if len(known) >= KNOWN_HEADS:
            del known[next(iter(known))]  # the oldest
        known[data] = head

    async def _wait_for_head(self, reader: RequestHeadReader, scope: trio.CancelScope) -> RequestHead | None:
        started = False
        while True:
            if not started and reader.started:
                started = True
                scope.deadline = min(scope.deadline, trio.current_time() + self._limits.head_timeout_s)
            await trio.lowlevel.wait_readable(self._client)
            try:
                data = self._client.recv(READ_BYTES)
            except BlockingIOError:
                continue
            head = reader.feed(data) if data else None
            if head is not None or not data:
                return head

    async def _accepted(self, head: RequestHead) -> bool:
        """Whether the request may be judged: it has the token, and the record takes lines. Else it is answered."""
        token = self._services.token_bytes
        head_only = head.method == b"HEAD"
        if token is not None and not token_matches(head.proxy_authorization, token):
            if head.proxy_authorization is None:
                self._audit.stats.challenged += 1  # many clients send their credentials only when asked
            else:
                self._audit.blocked(
                    self._number,
                    code=BAD_CREDENTIALS,
                    reason="the credentials are not this run's",
                    host=head.authority_text,
                )
            await self._reply(replies.proxy_authentication_required(head_only=head_only))
            return False
        if not self._audit.recorder.healthy:
            self._audit.stats.unavailable += 1
            await self._reply(self._audit_unavailable(head_only=head_only))
            return False
        return True

    async def _reply(self, data: bytes) -> None:
        """Send the connection's last answer and see to it that it arrives."""
        await send_all(self._client, data, self._limits.write_timeout_s)
        await discard(self._client, self._limits.linger_timeout_s)

    def _audit_unavailable(self, *, head_only: bool) -> bytes:
        return replies.unavailable(
            "connections cannot be recorded at the moment",
            retry_after_s=self._limits.retry_after_s,
            head_only=head_only,
        )

    # Judging

    async def _open(self, route: Route, protocol: str, *, head_only: bool) -> bool:
        """Take a route; when it leads nowhere, record that, answer the client, and return False."""
        if route.denied is None:
            try:
                await route.open(self._services.resolver, self._limits)
            except BaseException as error:  # it was allowed, and now it is over
                outcome = CANCELLED if _is_cancellation(error) else INTERNAL_ERROR
                self._audit.allowed(self._number, route, protocol).close(outcome)
                raise
        denied, failure = route.denied, route.failure
        if denied is not None:
            self._audit.denied(self._number, route)
            if denied is Reason.INVALID_HOST:
                await self._reply(replies.bad_request(ProtocolError(400, "the host or port is not valid")))
            else:
                await self._reply(replies.blocked(str(route.authority), denied, head_only=head_only))
            return False
        if failure is not None:
            self._audit.allowed(self._number, route, protocol).close(failure.code)
            if failure.status == 503:
                answer = replies.unavailable(failure.detail, retry_after_s=self._limits.retry_after_s)
            elif failure.status == 504:
                answer = replies.gateway_timeout(failure.detail, head_only=head_only)
            else:
                answer = replies.bad_gateway(failure.detail, head_only=head_only)
            await self._reply(answer)
            return False
        return True

    async def _recorded(self, passage: Passage, *, head_only: bool) -> bool:
        """Whether the line of an allowed connection has been written; else the client gets a 503."""
        try:
            if await self._audit.recorder.settled(self._limits.audit_timeout_s):
                return True
        except trio.Cancelled:
            passage.close(CANCELLED)
            raise
        passage.close(AUDIT_UNAVAILABLE)
        self._audit.stats.unavailable += 1
        await self._reply(self._audit_unavailable(head_only=head_only))
        return False

    # Tunnels

    async def _connect(self, head: RequestHead, first: bytes) -> None:
        """Serve CONNECT: ``first`` is what the client sent behind the head, the tunnel's first bytes."""
        route = Route(self._services.policy, head.authority_text)
        if not await self._open(route, "connect", head_only=False):
            return
        upstream = route.sock
        assert upstream is not None
        gate = ServerNameGate(route.authority.host, self._limits.max_client_hello_bytes)
        tunnel = Tunnel(self._client, upstream, gate)
        passage = None
        outcome = INTERNAL_ERROR
        try:
            passage = self._audit.allowed(self._number, route, "connect")
            if not self._audit.recorder.healthy and not await self._recorded(passage, head_only=False):
                return
            await send_all(self._client, replies.CONNECTION_ESTABLISHED, self._limits.write_timeout_s)
            await self._services.relay.carry(tunnel, first)
            assert tunnel.ending is not None
            outcome = tunnel.ending
            if tunnel.refusal is not None:
                outcome = tunnel.refusal.code
                await self._refuse_tunnel(route, tunnel)
            else:
                await self._end_tunnel(tunnel)
        except trio.Cancelled:
            outcome = CANCELLED
            cut_now(self._client)
            cut_now(upstream)
            raise
        except OSError:
            outcome = CLIENT_RESET
            raise
        finally:
            upstream.close()
            if passage is not None:
                passage.close(outcome, tunnel.bytes_up, tunnel.bytes_down)

    async def _end_tunnel(self, tunnel: Tunnel) -> None:
        """Let nobody take what was cut off for an orderly end."""
        if tunnel.ending is not Ending.COMPLETED:
            await cut(tunnel.client, tunnel.upstream, timeout_s=self._limits.linger_timeout_s)

    async def _refuse_tunnel(self, route: Route, tunnel: Tunnel) -> None:
        assert tunnel.refusal is not None
        authority = route.authority
        self._audit.blocked(
            self._number,
            code=tunnel.refusal.code,
            reason=tunnel.refusal.detail,
            host=str(authority.host),
            port=authority.port,
            addresses=tuple(map(str, route.addresses)),
        )
        if not tunnel.bytes_down:  # the client still waits for a ServerHello: an alert tells it why there is none
            await self._reply(ACCESS_DENIED_ALERT)

    # Plain requests

    async def _forward(self, head: RequestHead, first: bytes) -> bytes | None:
        """Serve one plain request; return what was read of the next one, None where there will be none."""
        head_only = head.method == b"HEAD"
        while True:
            route = Route(self._services.policy, head.authority_text)
            upstream = self._take_kept(route)
            kept = upstream is not None
            if upstream is None:
                if not await self._open(route, "http", head_only=head_only):
                    return None
                upstream = _Upstream(route)
            try:
                passage = self._audit.allowed(self._number, route, "http")
                if not self._audit.recorder.healthy and not await self._recorded(passage, head_only=head_only):
                    return None
                result = await self._exchange(head, first, upstream, passage, kept=kept)
                if isinstance(result, Outcome) and result.upstream_reusable:
                    self._kept = upstream
            finally:
                if self._kept is not upstream:
                    upstream.sock.close()
            if result is not None:
                break
        if isinstance(result, Outcome):
            if result.client_reusable:
                return result.client_leftover
            if not result.upgraded:
                await discard(self._client, self._limits.linger_timeout_s)
        elif result.response_started:
            await cut(self._client, timeout_s=self._limits.linger_timeout_s)
        else:
            await self._reply(_forward_failed(result, head_only=head_only))
        return None

    async def _exchange(
        self, head: RequestHead, first: bytes, upstream: _Upstream, passage: Passage, *, kept: bool
    ) -> Outcome | ForwardError | None:
        """Forward once and record the end; None where it must be done again on a fresh connection."""
        limits = self._limits
        traffic = Traffic()
        tunnel: Tunnel | None = None
        outcome = INTERNAL_ERROR
        if self._stream is None:
            self._stream = trio.SocketStream(trio.socket.from_stdlib_socket(self._client))
        try:
            result = await forward_exchange(
                head,
                self._stream,
                first,
                upstream.stream,
                limits=self._services.http1_limits,
                traffic=traffic,
                first_byte_timeout_s=limits.idle_timeout_s,
                idle_timeout_s=limits.idle_timeout_s,
                half_close_timeout_s=limits.half_close_timeout_s,
                client_peer=partial(peer_of, self._client),
                client_check_s=limits.client_check_s,
            )
            if result.upgraded:
                tunnel = Tunnel(self._client, upstream.sock)
                await self._services.relay.carry(tunnel, result.client_leftover, result.upstream_leftover)
                assert tunnel.ending is not None
                outcome = tunnel.ending
                await self._end_tunnel(tunnel)
            else:
                outcome = COMPLETED
            return result
        except UpstreamError as error:
            if kept and error.replayable:
                outcome = STALE
                return None
            outcome = UPSTREAM_ERROR
            return error
        except ForwardError as error:
            outcome = CLIENT_ERROR if isinstance(error, ClientProtocolError) else CLIENT_RESET
            return error
        except BaseException as error:
            if _is_cancellation(error):
                outcome = CANCELLED
            cut_now(self._client)
            cut_now(upstream.sock)
            raise
        finally:
            up, down = (tunnel.bytes_up, tunnel.bytes_down) if tunnel is not None else (0, 0)
            passage.close(outcome, traffic.up + up, traffic.down + down)

    def _take_kept(self, route: Route) -> _Upstream | None:
        """Return the kept upstream connection if the route may use it, and close it if not."""
        kept = self._kept
        if kept is None or route.denied is not None:
            return None
        is_same = kept.route.policy is route.policy and kept.route.authority == route.authority
        if not is_same or not is_untouched(kept.sock):
            self._drop_kept()
            return None
        self._kept = None
        route.follow(kept.route)
        return kept

    def _drop_kept(self) -> None:
        if self._kept is not None:
            self._kept.sock.close()
            self._kept = None


def _is_cancellation(error: BaseException) -> bool:
    """Whether an exception is a cancellation, also one that came out of a nursery with several tasks in it."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_cancellation, error.exceptions))
    return isinstance(error, trio.Cancelled)


def _forward_failed(error: ForwardError, *, head_only: bool) -> bytes:
    if isinstance(error, UpstreamError) and error.status == 504:
        return replies.gateway_timeout(error.detail, head_only=head_only)
    if isinstance(error, UpstreamError):
        return replies.bad_gateway(error.detail, head_only=head_only)
    return replies.bad_request(ProtocolError(error.status, error.detail), head_only=head_only)
