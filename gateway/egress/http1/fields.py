"""Header fields: their grammar, and what Content-Length, Transfer-Encoding and Connection say together.

Strict on purpose. Every leniency of RFC 9112 (folding, white space before the colon, repeated lengths) is a way to
make two parsers see two messages, and this parser decides what another one will be sent.
"""

import re
from collections.abc import Iterable, Mapping

from gateway.egress.http1.errors import Http1Limits, ProtocolError
from gateway.egress.http1.framing import CHUNKED, Framing, known_length

__all__ = ["TOKEN_BYTES", "Fields", "Headers", "content_framing", "list_members", "parse_fields", "split_head"]

Headers = tuple[tuple[bytes, bytes], ...]
"Names as they were written, values without the white space round them, in order."

Fields = Mapping[bytes, list[bytes]]
"The values of the fields that steer a message, by lower-case name."

TOKEN_BYTES = b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
"RFC 9110 section 5.6.2."

_TEXT_BYTES = bytes({*range(0x20, 0x7F), *range(0x80, 0x100), *b"\t\r\n"})
"field-vchar, obs-text, SP, HTAB (RFC 9110 section 5.5), and the line ends that are judged apart."

_STEERING = frozenset(
    {
        b"connection",
        b"content-length",
        b"expect",
        b"host",
        b"max-forwards",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"transfer-encoding",
        b"upgrade",
    }
)

_LENGTH = re.compile(rb"[0-9]{1,18}")
"At most 18 digits: within a signed 64-bit number, whoever reads it next."


def split_head(head: bytes, limits: Http1Limits) -> list[bytes]:
    """Cut a head into lines.

    Args:
        head: everything before the empty line; holds no bare LF.
        limits: how many lines there may be, and how long.

    Returns:
        The first line, then one header line each.

    Raises:
        ProtocolError: 400 for control characters and a bare CR, 431 for too many or too long lines.
    """
    if head.translate(None, _TEXT_BYTES):
        raise ProtocolError(400, "the head holds a control character")
    lines = head.split(b"\r\n")
    if head.count(b"\r") != len(lines) - 1:
        raise ProtocolError(400, "the head holds a CR that is not followed by LF")
    if len(lines) - 1 > limits.max_fields:
        raise ProtocolError(431, f"the head has more than {limits.max_fields} header lines")
    if len(head) > limits.max_line_bytes and max(map(len, lines)) > limits.max_line_bytes:
        raise ProtocolError(431, f"a line of the head is longer than {limits.max_line_bytes} bytes")
    return lines


def parse_fields(lines: Iterable[bytes]) -> tuple[Headers, dict[bytes, list[bytes]]]:
    """Parse header lines (RFC 9112 section 5) that hold no control characters.

    Args:
        lines: one header line each, without its CRLF.

    Returns:
        All fields in order, and the values of those that steer the message.

    Raises:
        ProtocolError: 400 for a line that is not ``name: value``, folded lines included.
    """
    headers: list[tuple[bytes, bytes]] = []
    steering: dict[bytes, list[bytes]] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not name or name.translate(None, TOKEN_BYTES):
            raise ProtocolError(400, _what_is_wrong(line, name, colon))
        value = value.strip(b" \t")
        headers.append((name, value))
        lower = name.lower()
        if lower in _STEERING:
            steering.setdefault(lower, []).append(value)
    return tuple(headers), steering


def _what_is_wrong(line: bytes, name: bytes, colon: bytes) -> str:
    if line[:1] in (b" ", b"\t"):
        return "a header line starts with white space (obsolete line folding)"
    if not colon:
        return "a header line has no colon"
    if name[-1:] in (b" ", b"\t"):
        return "a header line has white space before its colon"
    return "a header name is empty or not a token"


def content_framing(fields: Fields, minor: int, *, exact: bool) -> Framing | None:
    """What Content-Length and Transfer-Encoding say about the body (RFC 9112 section 6).

    Args:
        fields: the steering fields.
        minor: the minor version of the message that carries them.
        exact: refuse another spelling of ``chunked``. Coding names are case-insensitive, but no client writes it
            otherwise by accident, while some old servers do.

    Returns:
        The framing, or None where neither field is present.

    Raises:
        ProtocolError: 400 for anything that two readers could understand differently, 501 for other codings.
    """
    codings = fields.get(b"transfer-encoding")
    lengths = fields.get(b"content-length")
    if codings is not None:
        if lengths is not None:
            raise ProtocolError(400, "Content-Length and Transfer-Encoding together")
        if minor == 0:
            raise ProtocolError(400, "Transfer-Encoding in an HTTP/1.0 message")
        if len(codings) != 1:
            raise ProtocolError(400, "more than one Transfer-Encoding")
        if (codings[0] if exact else codings[0].lower()) != b"chunked":
            raise ProtocolError(501, "Transfer-Encoding is not exactly: chunked")
        return CHUNKED
    if lengths is None:
        return None
    if len(lengths) != 1:
        raise ProtocolError(400, "more than one Content-Length")
    if not _LENGTH.fullmatch(lengths[0]):
        raise ProtocolError(400, "Content-Length is not a number of 1 to 18 digits")
    return known_length(int(lengths[0]))


def list_members(values: Iterable[bytes]) -> frozenset[bytes]:
    """The members of a comma-separated list (RFC 9110 section 5.6.1), lower-case; empty ones are dropped."""
    return frozenset(member for value in values for part in value.split(b",") if (member := part.strip(b" \t").lower()))
