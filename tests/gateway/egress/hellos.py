"""ClientHellos for tests: real ones from OpenSSL, and ones put together field by field."""

import ssl
from collections.abc import Sequence
from contextlib import suppress

SERVER_NAME = 0


def real_hello(server_name: str | None) -> bytes:
    """Return what OpenSSL sends first, to a name or to nobody in particular."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    outgoing = ssl.MemoryBIO()
    connection = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=server_name)
    with suppress(ssl.SSLWantReadError):
        connection.do_handshake()
    return outgoing.read()


def vector(prefix: int, data: bytes) -> bytes:
    """Return data behind its length."""
    return len(data).to_bytes(prefix, "big") + data


def server_names(*names: tuple[int, bytes]) -> bytes:
    """Return the data of a server_name extension."""
    return vector(2, b"".join(bytes((kind,)) + vector(2, name) for kind, name in names))


def message(extensions: Sequence[tuple[int, bytes]] | None, *, behind: bytes = b"", kind: int = 1) -> bytes:
    """Return a handshake message; None for one without an extensions field."""
    body = b"\x03\x03" + bytes(32) + vector(1, bytes(32)) + vector(2, b"\x13\x01") + vector(1, b"\0")
    if extensions is not None:
        body += vector(2, b"".join(number.to_bytes(2, "big") + vector(2, data) for number, data in extensions))
    return bytes((kind,)) + vector(3, body + behind)


def records(data: bytes, size: int = 16_384, *, kind: int = 0x16, version: bytes = b"\x03\x01") -> bytes:
    """Return a message cut into records of a size."""
    return b"".join(
        bytes((kind,)) + version + vector(2, data[start : start + size]) for start in range(0, len(data), size)
    )


def hello(name: bytes) -> bytes:
    """Return a whole, small ClientHello that names a host."""
    return records(message([(10, b"\0\2\0\x1d"), (SERVER_NAME, server_names((0, name)))]))
