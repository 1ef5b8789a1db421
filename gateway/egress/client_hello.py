"""What server name does a TLS client ask for? A sans-IO reader of the ClientHello.

In pass-through mode this is all the gateway sees of TLS. Feed it what the client sends, in pieces of any size;
the bytes themselves stay with the caller, who passes them on unchanged once the answer is good.

What is judged is the *outer* ClientHello. With Encrypted Client Hello (RFC 9849) the inner name is
invisible to everybody but the server; the outer name is the one the connection is judged by, exactly as every
observer on the path sees it. A second ClientHello (after HelloRetryRequest) may not change the name
(RFC 8446 section 4.1.2), servers enforce that, and it is not looked at again.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

__all__ = ["ClientHelloReader", "HelloError", "HelloKind", "HelloResult"]

HANDSHAKE_RECORD: Final = 0x16  # RFC 8446 section 5.1
OTHER_RECORDS: Final = frozenset({0x14, 0x15, 0x17, 0x18})  # RFC 8446 section 5.1, RFC 6520: no connection starts so
SSL2_HEADER: Final = 0x80  # the high bit of a two-byte record header; RFC 5246 appendix E.2
CLIENT_HELLO: Final = 1  # RFC 8446 section 4
MAX_RECORD_BYTES: Final = 1 << 14  # RFC 8446 section 5.1: a plaintext fragment
SERVER_NAME: Final = 0  # RFC 6066 section 3
HOST_NAME: Final = 0  # RFC 6066 section 3


class HelloKind(StrEnum):
    """What the first bytes of a tunnel are."""

    NOT_TLS = "not_tls"
    TLS = "tls"


class HelloError(ValueError):
    """The tunnel begins like TLS, but not with a ClientHello that can be read; ``detail`` says why."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


@dataclass(frozen=True, slots=True, kw_only=True)
class HelloResult:
    """The answer. ``server_name`` is as the client wrote it, None when it named nobody."""

    kind: HelloKind
    server_name: str | None = None


NOT_TLS: Final = HelloResult(kind=HelloKind.NOT_TLS)


class ClientHelloReader:
    """Collects one ClientHello over records and pieces (RFC 8446 sections 4.1.2 and 5.1).

    Args:
        max_bytes: the most that is read, record headers included.
    """

    __slots__ = ("_fragment_left", "_header", "_lead", "_message", "_total", "max_bytes")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes: Final = max_bytes
        self._header = bytearray()
        self._lead = b""
        self._message = bytearray()
        self._fragment_left = 0
        self._total = 0

    def feed(self, data: bytes | bytearray | memoryview) -> HelloResult | None:
        """Take the next bytes; return the answer, or None while more are needed.

        Raises:
            HelloError: this is not a ClientHello, or it is longer than ``max_bytes``.
        """
        if not self._total:
            if not data:
                return None
            if self._lead or data[0] != HANDSHAKE_RECORD:
                self._lead += bytes(data[: 5 - len(self._lead)])
                return NOT_TLS if _is_other_protocol(self._lead) else None
            if len(data) <= self.max_bytes and (whole := _whole_message(data)) is not None:
                return HelloResult(kind=HelloKind.TLS, server_name=_server_name(whole))
        room = self.max_bytes - self._total
        self._total += len(data)
        data = data[:room]
        position = 0
        while position < len(data):
            if not self._fragment_left:
                take = 5 - len(self._header)
                self._header += data[position : position + take]
                position += take
                if len(self._header) < 5:
                    break
                self._fragment_left = _fragment_length(self._header)
                self._header.clear()
            piece = data[position : position + self._fragment_left]
            self._message += piece
            self._fragment_left -= len(piece)
            position += len(piece)
            if (result := self._complete()) is not None:
                return result
        if self._total > self.max_bytes:
            raise HelloError(f"the ClientHello is longer than {self.max_bytes} bytes")
        return None

    @property
    def is_hello(self) -> bool:
        """Whether what has come so far is the start of a ClientHello, and not just of anything at all."""
        return self._total > 0

    def _complete(self) -> HelloResult | None:
        message = self._message
        if message and message[0] != CLIENT_HELLO:
            raise HelloError(f"the first handshake message has type {message[0]}, not 1 (ClientHello)")
        if len(message) < 4:
            return None
        length = int.from_bytes(message[1:4], "big")
        if length > self.max_bytes:
            raise HelloError(f"the ClientHello says it is {length} bytes long")
        if len(message) < 4 + length:
            return None
        return HelloResult(kind=HelloKind.TLS, server_name=_server_name(bytes(message[4 : 4 + length])))


def _is_other_protocol(lead: bytes) -> bool:
    """Return whether up to five first bytes are not those of TLS in another wrapping; False while undecided.

    Servers exist that take a ClientHello in the format of SSL 2.0, which has no server name (RFC 5246 appendix E.2;
    OpenSSL 3.0 does), and might skip a record of another type before the ClientHello.

    Raises:
        HelloError: they are.
    """
    if lead[0] in OTHER_RECORDS:
        if lead[1:2] == b"\x03":
            raise HelloError(f"the first TLS record has type {lead[0]}, not 22 (handshake)")
        return len(lead) > 1
    if lead[0] & SSL2_HEADER and lead[2:3] in (b"", bytes((CLIENT_HELLO,))):
        if lead[3:4] == b"\x03" or lead[3:5] == b"\x00\x02":
            raise HelloError("a ClientHello in the format of SSL 2.0, which names no server")
        return len(lead) > 3 and lead[3:] != b"\x00"
    return True


def _whole_message(data: bytes | bytearray | memoryview) -> bytes | None:
    """Return the ClientHello's body where all of it came at once, in one record of its own: nearly always."""
    if len(data) < 9 or data[1] != 3 or data[5] != CLIENT_HELLO or data[6]:
        return None
    length = data[7] << 8 | data[8]
    if data[3] << 8 | data[4] != length + 4 or length + 4 > MAX_RECORD_BYTES or len(data) < length + 9:
        return None
    return bytes(data[9 : 9 + length])


def _fragment_length(header: bytearray) -> int:
    """Return the length in a record header: type, legacy version, length (RFC 8446 section 5.1)."""
    if header[0] != HANDSHAKE_RECORD:
        raise HelloError(f"a record of type {header[0]} inside the ClientHello")
    if header[1] != 3:
        raise HelloError(f"record version {header[1]}.{header[2]} is not TLS")
    length = header[3] << 8 | header[4]
    if not 0 < length <= MAX_RECORD_BYTES:
        raise HelloError(f"a handshake record of {length} bytes")
    return length


TRUNCATED: Final = "the ClientHello ends inside a field"


def _server_name(body: bytes) -> str | None:
    """Return the host name of a ClientHello body (RFC 8446 section 4.1.2), None without the extension.

    Every tunnel passes here before its first byte does, so this walks the length-prefixed vectors (RFC 8446
    section 3.4) by index. Reading past the end raises IndexError; slices are checked against it by the walk itself:
    each vector must end where its container ends, or before it.
    """
    try:
        at = 2 + 32  # legacy_version, random
        at += 1 + body[at]  # legacy_session_id
        at += 2 + (body[at] << 8 | body[at + 1])  # cipher_suites
        at += 1 + body[at]  # legacy_compression_methods
        end = len(body)
        if at == end:  # before TLS 1.3 the extensions may be left out (RFC 5246 section 7.4.1.2)
            return None
        at += 2
        if at + (body[at - 2] << 8 | body[at - 1]) != end:
            raise HelloError("the extensions do not end where the ClientHello ends")
        found: bytes | None = None
        while at < end:
            first = at + 4
            after = first + (body[at + 2] << 8 | body[at + 3])
            if not body[at] and body[at + 1] == SERVER_NAME:
                if found is not None:  # RFC 8446 section 4.2: one extension of a type
                    raise HelloError("two server_name extensions")
                found = body[first:after]
            at = after
    except IndexError:
        raise HelloError(TRUNCATED) from None
    if at != end:
        raise HelloError(TRUNCATED)
    return None if found is None else _host_name(found)


def _host_name(extension: bytes) -> str:
    """Return the one host name of a server_name extension (RFC 6066 section 3)."""
    end = len(extension)
    if end < 2 or end != 2 + (extension[0] << 8 | extension[1]):
        raise HelloError("the list of server names does not fill its extension")
    host: bytes | None = None
    at = 2
    while at < end:
        if at + 3 > end:
            raise HelloError(TRUNCATED)
        first = at + 3
        after = first + (extension[at + 1] << 8 | extension[at + 2])
        if after > end:
            raise HelloError(TRUNCATED)
        if extension[at] != HOST_NAME:
            raise HelloError(f"a server name of the unknown type {extension[at]}")
        if host is not None:  # RFC 6066 section 3: one name of a type
            raise HelloError("two server names")
        host = extension[first:after]
        at = after
    if not host:
        raise HelloError("an empty server name")
    try:
        return host.decode("ascii")
    except UnicodeDecodeError:
        raise HelloError("a server name that is not ASCII") from None
