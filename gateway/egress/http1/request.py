"""Request heads as a proxy gets them: CONNECT and absolute-form (RFC 9112 section 3.2), strictly."""

import re
from dataclasses import dataclass

from gateway.egress.http1.errors import DEFAULT_LIMITS, Http1Limits, ProtocolError
from gateway.egress.http1.fields import (
    TOKEN_BYTES,
    Fields,
    Headers,
    content_framing,
    list_members,
    parse_fields,
    split_head,
)
from gateway.egress.http1.framing import NO_BODY, Framing
from gateway.egress.http1.head_buffer import HeadBuffer
from policy.host import InvalidHost, parse_authority

__all__ = ["RequestHead", "RequestHeadReader", "parse_request_head"]

_HTTP_PORT = 80
_MAX_PORT = 65_535

# Methods are tokens. Lower-case ones do not exist, but some servers take `get` for GET.
_METHOD_BYTES = bytes(set(TOKEN_BYTES) - set(b"abcdefghijklmnopqrstuvwxyz"))

_REQUEST_LINE = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Z]+) ([\x21-\x7e]+) HTTP/1\.([01])")
_ANY_VERSION = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Z]+ [\x21-\x7e]+ HTTP/[0-9]\.[0-9]")

# What stands before the port is the policy's to judge: it refuses what is no host and records that it did.
_CONNECT_TARGET = re.compile(rb"([^/?#@\\]+):([1-9][0-9]{0,4})")
_ABSOLUTE_TARGET = re.compile(rb"[Hh][Tt][Tt][Pp]://([^/?#]*)(/[^?#]*)?(\?[^#]*)?")
_SCHEME = re.compile(rb"([A-Za-z][A-Za-z0-9+.\-]*):")
_AUTHORITY = re.compile(rb"(\[[^\[\]\\]*\]|[^\[\]:\\]+)(?::([1-9][0-9]{0,4}))?")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RequestHead:
    """One request's head. Its repr shows no target path and no header value: either may hold a secret."""

    method: bytes
    target: bytes
    "As it was sent: ``host:port`` for CONNECT, else an absolute URL."
    minor: int
    "HTTP/1.0 or HTTP/1.1."
    headers: Headers
    authority_text: str
    "``host:port`` for policy, as the client spelt it; the port is always there (80 is added to a URL without)."
    host_field: bytes
    "The target's authority as it was sent: what a forwarded request's Host must say."
    origin_target: bytes
    "What a forwarded request's target must say (origin-form, or ``*``); empty for CONNECT."
    framing: Framing
    keep_alive: bool
    "Whether the client is willing to send another request on this connection."
    connection: frozenset[bytes]
    "Lower-case options of the Connection header."
    upgrade: bytes | None
    "``websocket`` where the client asks for that; None for none and for protocols that are not passed on."
    expect_continue: bool
    "The client may wait for 100 (Continue) before it sends the body."
    accepts_trailers: bool
    "The client sent ``TE: trailers``."
    proxy_authorization: bytes | None
    "The value of Proxy-Authorization; None if absent, or repeated (which of them counts?)."

    @property
    def is_connect(self) -> bool:
        """Whether this asks for a tunnel."""
        return self.method == b"CONNECT"

    def __repr__(self) -> str:
        names = b", ".join(name for name, _ in self.headers).decode("ascii")
        return f"<RequestHead {self.method.decode('ascii')} {self.authority_text} HTTP/1.{self.minor} [{names}]>"


class RequestHeadReader:
    """Reads one request head; use a fresh one for the next, and feed it ``leftover`` first.

    Args:
        limits: how long the head and its lines may be.
    """

    __slots__ = ("_buffer", "_limits")

    def __init__(self, limits: Http1Limits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self._buffer = HeadBuffer(limits.max_head_bytes, _FIRST_BYTES, skip_crlf=True)

    @property
    def started(self) -> bool:
        """Whether a head has begun: an end of input is then an error of the client's, else a normal close."""
        return self._buffer.started

    @property
    def leftover(self) -> bytes:
        """What followed the head: the body, the tunnel's first bytes or the next request. Empty until then."""
        return self._buffer.leftover

    def feed(self, data: bytes) -> RequestHead | None:
        """Take input.

        Args:
            data: the next bytes.

        Returns:
            The head, once it is complete.

        Raises:
            ProtocolError: 400, 431, 501 or 505.
        """
        head = self._buffer.feed(data)
        return None if head is None else parse_request_head(head, self._limits)


_FIRST_BYTES = frozenset(_METHOD_BYTES)


def parse_request_head(head: bytes, limits: Http1Limits = DEFAULT_LIMITS) -> RequestHead:
    """Parse a complete head.

    Args:
        head: everything before the empty line; holds no bare LF (``RequestHeadReader`` sees to that).
        limits: how many lines there may be, and how long.

    Returns:
        The head.

    Raises:
        ProtocolError: 400, 431, 501 or 505.
    """
    lines = split_head(head, limits)
    line = _REQUEST_LINE.fullmatch(lines[0])
    if line is None:
        raise _bad_request_line(lines[0])
    method, target, minor = line[1], line[2], line[3][0] - 0x30
    headers, fields = parse_fields(lines[1:])
    if len(fields.get(b"host", ())) > 1:
        raise ProtocolError(400, "more than one Host")
    framing = content_framing(fields, minor, exact=True)
    options = list_members(fields[b"connection"]) if b"connection" in fields else frozenset()
    if method == b"CONNECT":
        authority_text = _connect_authority(target, fields, framing)
        host_field, origin_target = target, b""
    else:
        authority_text, host_field, origin_target = _absolute_target(method, target, fields, minor)
    credentials = fields.get(b"proxy-authorization")
    return RequestHead(
        method=method,
        target=target,
        minor=minor,
        headers=headers,
        authority_text=authority_text,
        host_field=host_field,
        origin_target=origin_target,
        framing=framing or NO_BODY,
        keep_alive=minor == 1 and b"close" not in options and not _proxy_connection_close(fields),
        connection=options,
        upgrade=_upgrade(fields, options, minor, framing),
        expect_continue=minor == 1 and [value.lower() for value in fields.get(b"expect", ())] == [b"100-continue"],
        accepts_trailers=minor == 1 and b"te" in fields and b"trailers" in list_members(fields[b"te"]),
        proxy_authorization=credentials[0] if credentials is not None and len(credentials) == 1 else None,
    )


def _bad_request_line(line: bytes) -> ProtocolError:
    if _ANY_VERSION.fullmatch(line):
        if line == b"PRI * HTTP/2.0":
            return ProtocolError(505, "HTTP/2 is not spoken to this proxy: use HTTP/1.1")
        return ProtocolError(505, "the HTTP version is neither 1.0 nor 1.1")
    return ProtocolError(400, "the first line is not: METHOD target HTTP/1.1")


def _port_fits(port: bytes | None) -> bool:
    return port is None or int(port) <= _MAX_PORT


def _connect_authority(target: bytes, fields: Fields, framing: Framing | None) -> str:
    match = _CONNECT_TARGET.fullmatch(target)
    if match is None or not _port_fits(match[2]):
        raise ProtocolError(400, "a CONNECT target is host:port, without a user, scheme or path")
    if framing is not None:
        raise ProtocolError(400, "CONNECT has no body: neither Content-Length nor Transfer-Encoding")
    for host in fields.get(b"host", ()):
        # Clients send Host with the target's port, or without any (undici, aiohttp, Java).
        if host not in (target, match[1]) and not _same_authority(host, target, int(match[2])):
            raise ProtocolError(400, "Host and the CONNECT target differ")
    return target.decode("ascii")


def _absolute_target(method: bytes, target: bytes, fields: Fields, minor: int) -> tuple[str, bytes, bytes]:
    """The authority for policy, the Host to send, and the target to send."""
    match = _ABSOLUTE_TARGET.fullmatch(target)
    if match is None:
        raise ProtocolError(400, _bad_target(target))
    if method == b"TRACE":
        raise ProtocolError(501, "TRACE is not forwarded: its answer would show what the proxy adds")
    if method == b"PRI":
        raise ProtocolError(400, "PRI is not a method: HTTP/2 is not spoken to this proxy")
    if b"@" in match[1]:
        raise ProtocolError(400, "the URL holds a user name: send an Authorization header instead")
    authority = _AUTHORITY.fullmatch(match[1])
    if authority is None or not _port_fits(authority[2]):
        raise ProtocolError(400, "the URL's host or port is malformed")
    hosts = fields.get(b"host")
    if hosts is None:
        if minor == 1:
            raise ProtocolError(400, "an HTTP/1.1 request has no Host")
    elif hosts[0] != match[1] and not _same_authority(hosts[0], match[1], _HTTP_PORT):
        raise ProtocolError(400, "Host and the request target differ")
    text = match[1].decode("ascii")
    path, query = match[2] or b"", match[3] or b""
    if method == b"OPTIONS":
        if b"0" in fields.get(b"max-forwards", ()):
            raise ProtocolError(400, "the proxy does not answer OPTIONS for itself")
        if not path and not query:  # RFC 9112 section 3.2.4
            path = b"*"
    return text if authority[2] else f"{text}:{_HTTP_PORT}", match[1], (path or b"/") + query


def _bad_target(target: bytes) -> str:
    if b"#" in target:
        return "the target holds a fragment"
    if target.startswith(b"/"):
        return "this is a proxy: the target must be a whole URL (http://host/path)"
    if target == b"*":
        return "this is a proxy: it does not answer for itself (target *)"
    scheme = _SCHEME.match(target)
    if scheme is not None and scheme[1].lower() in (b"https", b"wss"):
        return "use CONNECT for https: this proxy does not speak TLS for its clients"
    return "the target is not an http:// URL; use CONNECT for other protocols"


def _same_authority(first: bytes, second: bytes, default_port: int) -> bool:
    try:
        return parse_authority(first.decode("ascii"), default_port=default_port) == parse_authority(
            second.decode("ascii"), default_port=default_port
        )
    except (InvalidHost, UnicodeDecodeError):
        return False


def _proxy_connection_close(fields: Fields) -> bool:
    return b"proxy-connection" in fields and b"close" in list_members(fields[b"proxy-connection"])


def _upgrade(fields: Fields, options: frozenset[bytes], minor: int, framing: Framing | None) -> bytes | None:
    """The upgrade to pass on: WebSocket or none.

    A server that does not want to switch ignores Upgrade (RFC 9110 section 7.8), and so may we. ``h2c`` is dropped
    for good: after the switch, later requests for other hosts would pass unjudged. Dropped rather than refused,
    because Java's HttpClient offers it with every request and is content with HTTP/1.1.
    """
    if b"upgrade" not in options or b"upgrade" not in fields or minor == 0 or framing is not None:
        return None
    return b"websocket" if b"websocket" in list_members(fields[b"upgrade"]) else None
