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

    __slots__ = ("_fragment_left", "_header", "_message", "_total", "max_bytes")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes: Final = max_bytes
        self._header = bytearray()
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
            if data[0] != HANDSHAKE_RECORD:
                return NOT_TLS
        self._total += len(data)
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


class _Cursor:
    """Takes length-prefixed vectors from a message (RFC 8446 section 3.4)."""

    __slots__ = ("data", "position")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    @property
    def left(self) -> int:
        return len(self.data) - self.position

    def take(self, count: int) -> bytes:
        end = self.position + count
        if end > len(self.data):
            raise HelloError("the ClientHello ends inside a field")
        piece = self.data[self.position : end]
        self.position = end
        return piece

    def vector(self, prefix: int) -> bytes:
        return self.take(int.from_bytes(self.take(prefix), "big"))


def _server_name(body: bytes) -> str | None:
    """Return the host name of a ClientHello body (RFC 8446 section 4.1.2), None without the extension."""
    hello = _Cursor(body)
    hello.take(2 + 32)  # legacy_version, random
    hello.vector(1)  # legacy_session_id
    hello.vector(2)  # cipher_suites
    hello.vector(1)  # legacy_compression_methods
    if not hello.left:  # before TLS 1.3 the extensions may be left out (RFC 5246 section 7.4.1.2)
        return None
    extensions = _Cursor(hello.vector(2))
    if hello.left:
        raise HelloError("bytes behind the extensions of the ClientHello")
    found: bytes | None = None
    while extensions.left:
        kind = int.from_bytes(extensions.take(2), "big")
        data = extensions.vector(2)
        if kind == SERVER_NAME:
            if found is not None:  # RFC 8446 section 4.2: one extension of a type
                raise HelloError("two server_name extensions")
            found = data
    return None if found is None else _host_name(found)


def _host_name(extension: bytes) -> str:
    """Return the one host name of a server_name extension (RFC 6066 section 3)."""
    outer = _Cursor(extension)
    names = _Cursor(outer.vector(2))
    if outer.left:
        raise HelloError("bytes behind the list of server names")
    host: bytes | None = None
    while names.left:
        kind = names.take(1)[0]
        name = names.vector(2)
        if kind != HOST_NAME:
            raise HelloError(f"a server name of the unknown type {kind}")
        if host is not None:  # RFC 6066 section 3: one name of a type
            raise HelloError("two server names")
        host = name
    if not host:
        raise HelloError("an empty server name")
    try:
        return host.decode("ascii")
    except UnicodeDecodeError:
        raise HelloError("a server name that is not ASCII") from None
