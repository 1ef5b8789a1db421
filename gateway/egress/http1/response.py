"""Response heads from an upstream, as strictly as requests: whatever passes is sent on to the client."""

import re
from dataclasses import dataclass

from gateway.egress.http1.errors import DEFAULT_LIMITS, Http1Limits, ProtocolError
from gateway.egress.http1.fields import Fields, Headers, content_framing, list_members, parse_fields, split_head
from gateway.egress.http1.framing import NO_BODY, UNTIL_CLOSE, Framing, FramingKind
from gateway.egress.http1.head_buffer import HeadBuffer

__all__ = ["ResponseHead", "ResponseHeadReader", "parse_response_head"]

# The reason may be missing with its space: many servers leave it out.
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: ([\t \x21-\x7e\x80-\xff]*))?")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ResponseHead:
    """One response's head. Its repr shows no header value."""

    status: int
    reason: bytes
    minor: int
    "HTTP/1.0 or HTTP/1.1."
    headers: Headers
    framing: Framing
    "How the body that follows is delimited; NONE for HEAD, 1xx, 204 and 304, whatever the fields say."
    declared: Framing | None
    "What Content-Length or Transfer-Encoding say, body or not."
    keep_alive: bool
    "Whether the upstream will take another request on this connection, once the body has been read."
    connection: frozenset[bytes]
    "Lower-case options of the Connection header."
    upgrade: bytes | None
    "``websocket`` where a 101 switches to that."

    @property
    def is_interim(self) -> bool:
        """Whether another response to the same request follows (RFC 9110 section 15.2)."""
        return self.status < 200 and self.status != 101

    def __repr__(self) -> str:
        names = b", ".join(name for name, _ in self.headers).decode("ascii")
        return f"<ResponseHead {self.status} HTTP/1.{self.minor} {self.framing.kind.value} [{names}]>"


class ResponseHeadReader:
    """Reads one response head; use a fresh one for the next, and feed it ``leftover`` first.

    Args:
        method: the request's method: the answer to HEAD has no body.
        limits: how long the head and its lines may be.
    """

    __slots__ = ("_buffer", "_limits", "_method")

    def __init__(self, method: bytes, limits: Http1Limits = DEFAULT_LIMITS) -> None:
        self._method = method
        self._limits = limits
        self._buffer = HeadBuffer(limits.max_head_bytes, frozenset(b"H"), skip_crlf=False)

    @property
    def started(self) -> bool:
        """Whether any byte of a head has arrived."""
        return self._buffer.started

    @property
    def leftover(self) -> bytes:
        """What followed the head. Empty until then."""
        return self._buffer.leftover

    def feed(self, data: bytes) -> ResponseHead | None:
        """Take input.

        Args:
            data: the next bytes.

        Returns:
            The head, once it is complete.

        Raises:
            ProtocolError: always 502, which is what the client is to be told.
        """
        try:
            head = self._buffer.feed(data)
            return None if head is None else parse_response_head(head, self._method, self._limits)
        except ProtocolError as error:
            raise ProtocolError(502, error.detail) from None


def parse_response_head(head: bytes, method: bytes, limits: Http1Limits = DEFAULT_LIMITS) -> ResponseHead:
    """Parse a complete head.

    Args:
        head: everything before the empty line; holds no bare LF (``ResponseHeadReader`` sees to that).
        method: the request's method.
        limits: how many lines there may be, and how long.

    Returns:
        The head.

    Raises:
        ProtocolError: with the status a request with the same fault would get.
    """
    lines = split_head(head, limits)
    line = _STATUS_LINE.fullmatch(lines[0])
    if line is None:
        raise ProtocolError(400, "the first line is not an HTTP/1 status line")
    minor, status = line[1][0] - 0x30, int(line[2])
    headers, fields = parse_fields(lines[1:])
    declared = content_framing(fields, minor, exact=False)
    options = list_members(fields[b"connection"]) if b"connection" in fields else frozenset()
    framing = _body_framing(method, status, declared)
    return ResponseHead(
        status=status,
        reason=line[3] or b"",
        minor=minor,
        headers=headers,
        framing=framing,
        declared=declared,
        keep_alive=minor == 1 and b"close" not in options and framing.kind is not FramingKind.UNTIL_CLOSE,
        connection=options,
        upgrade=_upgrade(status, fields, options),
    )


def _body_framing(method: bytes, status: int, declared: Framing | None) -> Framing:
    """RFC 9112 section 6.3."""
    if method == b"HEAD" or status < 200 or status in (204, 304):
        return NO_BODY
    return UNTIL_CLOSE if declared is None else declared


def _upgrade(status: int, fields: Fields, options: frozenset[bytes]) -> bytes | None:
    if status != 101 or b"upgrade" not in options:
        return None
    return b"websocket" if list_members(fields.get(b"upgrade", ())) == {b"websocket"} else None
