"""Where a body ends, and decoders that check it without rewriting it (RFC 9112 sections 6 and 7).

A decoder is fed what arrives and gives back *pieces*: the same bytes, cut at the borders between framing and
payload. A forwarder that sends on every piece passes the body through as it came; one that needs only the payload
(an HTTP/1.0 client, inspection) takes the pieces marked as payload. No byte of framing is given back before the
whole line that it belongs to has been found valid, so that nobody downstream sees a line that we would refuse.
"""

import re
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol, assert_never

from gateway.egress.http1.errors import Http1Limits, ProtocolError

__all__ = [
    "CHUNKED",
    "NO_BODY",
    "UNTIL_CLOSE",
    "BodyDecoder",
    "ChunkedDecoder",
    "CloseDecoder",
    "Framing",
    "FramingKind",
    "LengthDecoder",
    "Piece",
    "body_decoder",
    "known_length",
]


class FramingKind(Enum):
    """How the end of a body is found."""

    NONE = "none"
    LENGTH = "length"
    CHUNKED = "chunked"
    UNTIL_CLOSE = "until close"


@dataclass(frozen=True, slots=True)
class Framing:
    """How a message's body is delimited; ``length`` in bytes matters for LENGTH only."""

    kind: FramingKind
    length: int = 0


NO_BODY = Framing(FramingKind.NONE)
CHUNKED = Framing(FramingKind.CHUNKED)
UNTIL_CLOSE = Framing(FramingKind.UNTIL_CLOSE)


def known_length(length: int) -> Framing:
    """The framing of a body of ``length`` bytes."""
    return Framing(FramingKind.LENGTH, length)


class Piece(NamedTuple):
    """Bytes of a body as they came: payload, or the framing round it."""

    data: bytes
    is_payload: bool


class BodyDecoder(Protocol):
    """Finds the end of one body."""

    complete: bool
    "Whether the whole body has been seen."
    leftover: bytes
    "What followed the body in the last input; set once it is complete."

    def feed(self, data: bytes) -> list[Piece]:
        """Take input.

        Args:
            data: the next bytes; not to be called once the body is complete.

        Returns:
            What is valid so far, in order.

        Raises:
            ProtocolError: 400. The decoder is of no use afterwards.
        """
        ...

    def feed_eof(self) -> None:
        """Say that no more input comes.

        Raises:
            ProtocolError: 400 where that cuts the body short.
        """
        ...


def body_decoder(framing: Framing, limits: Http1Limits) -> BodyDecoder:
    """A fresh decoder for one body."""
    match framing.kind:
        case FramingKind.NONE | FramingKind.LENGTH:
            return LengthDecoder(framing.length)
        case FramingKind.CHUNKED:
            return ChunkedDecoder(limits)
        case FramingKind.UNTIL_CLOSE:
            return CloseDecoder()
    assert_never(framing.kind)


class LengthDecoder:
    """A body of known length; one of 0 bytes is complete from the start, and ``leftover`` is then the caller's."""

    __slots__ = ("_remaining", "complete", "leftover")

    def __init__(self, length: int) -> None:
        self._remaining = length
        self.complete = length == 0
        self.leftover = b""

    def feed(self, data: bytes) -> list[Piece]:
        """See ``BodyDecoder.feed``."""
        body = data[: self._remaining]
        self._remaining -= len(body)
        if not self._remaining:
            self.complete = True
            self.leftover = data[len(body) :]
        return [Piece(body, True)] if body else []

    def feed_eof(self) -> None:
        """See ``BodyDecoder.feed_eof``."""
        if self._remaining:
            raise ProtocolError(400, "the connection ended inside a body of known length")


class CloseDecoder:
    """A body that ends with its connection (responses only)."""

    __slots__ = ("complete", "leftover")

    def __init__(self) -> None:
        self.complete = False
        self.leftover = b""

    def feed(self, data: bytes) -> list[Piece]:
        """See ``BodyDecoder.feed``."""
        return [Piece(data, True)] if data else []

    def feed_eof(self) -> None:
        """See ``BodyDecoder.feed_eof``; here it completes the body."""
        self.complete = True


_CRLF = b"\r\n"
_CR = 0x0D
_MAX_CHUNK_BYTES = 2**63 - 1
"The next reader may keep the size in a signed 64-bit number."


class _Expect(Enum):
    SIZE_LINE = "size line"
    DATA = "data"
    DATA_END = "CRLF after data"
    TRAILER = "trailer"


_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_QUOTED = rb'"[\t \x21\x23-\x5b\x5d-\x7e]*"'
_EXTENSION = rb"[ \t]*;[ \t]*" + _TOKEN + rb"(?:=(?:" + _TOKEN + rb"|" + _QUOTED + rb"))?"
_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,16})(?:" + _EXTENSION + rb")*")
"chunk-size and chunk-ext (RFC 9112 section 7.1), without quoted pairs and white space round the equals sign."

_TRAILER_LINE = re.compile(rb"(" + _TOKEN + rb"):[\t \x21-\x7e\x80-\xff]*")

_FORBIDDEN_TRAILERS = frozenset(
    b"authorization cache-control connection content-encoding content-length content-range content-type cookie expect"
    b" expires host keep-alive location max-forwards pragma proxy-authenticate proxy-authorization proxy-connection"
    b" range set-cookie te trailer transfer-encoding upgrade vary www-authenticate".split()
)
"Framing, routing, credentials and control data (RFC 9110 section 6.5.1): some recipients merge trailers into the head."


class ChunkedDecoder:
    """The chunked coding, strictly: hexadecimal digits, CRLF, tokens; nothing else.

    Args:
        limits: the longest size line and trailer section.
    """

    __slots__ = ("_expect", "_held", "_limits", "_remaining", "_trailer_bytes", "complete", "leftover")

    def __init__(self, limits: Http1Limits) -> None:
        self._limits = limits
        self._expect = _Expect.SIZE_LINE
        self._held = b""  # a line that is not complete yet
        self._remaining = 0  # bytes of the current chunk
        self._trailer_bytes = 0
        self.complete = False
        self.leftover = b""

    def feed(self, data: bytes) -> list[Piece]:
        """See ``BodyDecoder.feed``."""
        pieces: list[Piece] = []
        if self._held:
            data = self._held + data
            self._held = b""
        position = 0
        while position < len(data) and not self.complete:
            if self._expect is _Expect.DATA:
                end = min(position + self._remaining, len(data))
                self._remaining -= end - position
                if not self._remaining:
                    self._expect = _Expect.DATA_END
                pieces.append(Piece(data[position:end], True))
            else:
                end = self._line_end(data, position)
                if end < 0:
                    self._held = data[position:]
                    break
                self._on_line(data[position : end - 2])
                pieces.append(Piece(data[position:end], False))
            position = end
        if self.complete:
            self.leftover = data[position:]
        return pieces

    def feed_eof(self) -> None:
        """See ``BodyDecoder.feed_eof``."""
        if not self.complete:
            raise ProtocolError(400, "the connection ended inside a chunked body")

    def _line_end(self, data: bytes, start: int) -> int:
        """Where the line at ``start`` ends, its CRLF included; -1 while that has not arrived."""
        if self._expect is _Expect.DATA_END:
            end = data[start : start + 2]
            if not _CRLF.startswith(end):
                raise ProtocolError(400, "chunk data is not followed by CRLF")
            return start + 2 if end == _CRLF else -1
        if self._expect is _Expect.SIZE_LINE:
            stop = start + self._limits.max_chunk_line_bytes + 2
        else:
            stop = start + self._limits.max_trailer_bytes - self._trailer_bytes
        line_feed = data.find(b"\n", start, stop)
        if line_feed < 0:
            if len(data) >= stop:
                raise ProtocolError(400, "a chunk header or the trailers are too long")
            return -1
        if line_feed == start or data[line_feed - 1] != _CR:
            raise ProtocolError(400, "a line of the chunked coding ends in a bare LF")
        return line_feed + 1

    def _on_line(self, line: bytes) -> None:
        match self._expect:
            case _Expect.SIZE_LINE:
                size_line = _SIZE_LINE.fullmatch(line)
                if size_line is None:
                    raise ProtocolError(400, "a chunk header is not a hexadecimal size and extensions")
                self._remaining = int(size_line[1], 16)
                if self._remaining > _MAX_CHUNK_BYTES:
                    raise ProtocolError(400, "a chunk size does not fit into 63 bits")
                self._expect = _Expect.DATA if self._remaining else _Expect.TRAILER
            case _Expect.DATA_END:
                self._expect = _Expect.SIZE_LINE
            case _:
                self._on_trailer(line)

    def _on_trailer(self, line: bytes) -> None:
        self._trailer_bytes += len(line) + 2
        if not line:
            self.complete = True
            return
        trailer = _TRAILER_LINE.fullmatch(line)
        if trailer is None:
            raise ProtocolError(400, "a trailer line is not a header field")
        if trailer[1].lower() in _FORBIDDEN_TRAILERS:
            raise ProtocolError(400, "a trailer field that may only stand in the head")
