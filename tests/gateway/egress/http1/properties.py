"""What must hold for any bytes at all; one function per parser, for Hypothesis, the fuzzer and the examples."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

import pytest

from gateway.egress.http1 import (
    FramingKind,
    Http1Limits,
    ProtocolError,
    RequestHead,
    RequestHeadReader,
    ResponseHead,
    ResponseHeadReader,
    body_decoder,
    forwarded_request,
    forwarded_response,
    token_matches,
)
from gateway.egress.http1.framing import CHUNKED
from gateway.egress.http1.replies import blocked, printable

SMALL = Http1Limits(max_head_bytes=400, max_line_bytes=150, max_fields=8, max_chunk_line_bytes=20, max_trailer_bytes=60)
"Limits low enough to be reached."

CLIENT_STATUSES = {400, 431, 501, 505}

T = TypeVar("T")
Head = TypeVar("Head", covariant=True)
Result = tuple[str, object, bytes]


class Reader(Protocol[Head]):
    """Either head reader."""

    @property
    def leftover(self) -> bytes: ...

    def feed(self, data: bytes) -> Head | None: ...


def cut(data: bytes, sizes: Iterable[int]) -> Iterator[bytes]:
    """``data`` in parts of the given sizes; the rest in one."""
    position = 0
    for size in sizes:
        if position >= len(data):
            return
        yield data[position : position + size]
        position += size
    yield data[position:]


def ways_to_cut(data: bytes, sizes: Sequence[int]) -> list[list[bytes]]:
    """Whole, byte by byte, and as asked."""
    return [[data], [data[i : i + 1] for i in range(len(data))], list(cut(data, sizes))]


def read_head(reader: Reader[object], parts: Sequence[bytes]) -> Result:
    """What a reader makes of parts: a head and what follows it, an error, or nothing yet."""
    try:
        for index, part in enumerate(parts):
            head = reader.feed(part)
            if head is not None:
                return "head", head, reader.leftover + b"".join(parts[index + 1 :])
    except ProtocolError as error:
        return "error", (error.status, error.detail), b""
    return "incomplete", None, b""


def same_for_every_cut(data: bytes, sizes: Sequence[int], run: Callable[[Sequence[bytes]], T]) -> T:
    """The result of ``run``, which must not depend on how the input arrives."""
    first, *others = [run(parts) for parts in ways_to_cut(data, sizes)]
    for other in others:
        assert other == first
    return first


def check_request(data: bytes, sizes: Sequence[int] = (), limits: Http1Limits = SMALL) -> Result:
    """Any bytes as a request head."""
    result = same_for_every_cut(data, sizes, lambda parts: read_head(RequestHeadReader(limits), parts))
    kind, value, leftover = result
    if kind == "error":
        assert isinstance(value, tuple)
        assert value[0] in CLIENT_STATUSES
    if kind == "head":
        assert isinstance(value, RequestHead)
        assert data.endswith(b"\r\n\r\n" + leftover)
        _check_request_head(value)
    return result


def _check_request_head(head: RequestHead) -> None:
    assert head.authority_text.isascii()
    assert head.authority_text.isprintable()
    assert head.authority_text.rpartition(":")[2].isdigit()
    for _, value in head.headers:
        assert not set(value) & set(b"\r\n\0")
        if len(value) > 40:  # long enough not to stand in the repr by chance
            assert value.decode("latin-1") not in repr(head)
    if head.is_connect:
        assert head.framing.kind is FramingKind.NONE
        return
    line, fields = parse_plainly(forwarded_request(head))
    assert line == b" ".join((head.method, head.origin_target, b"HTTP/1.1"))
    assert head.origin_target[:1] in (b"/", b"*")
    assert [value for name, value in fields if name == b"host"] == [head.host_field]
    check_hop_by_hop(fields, head.connection)
    check_framing_fields(fields, head.framing.kind, head.framing.length)


def check_response(data: bytes, method: bytes = b"GET", sizes: Sequence[int] = ()) -> Result:
    """Any bytes as a response head."""
    result = same_for_every_cut(data, sizes, lambda parts: read_head(ResponseHeadReader(method, SMALL), parts))
    kind, value, leftover = result
    if kind == "error":
        assert isinstance(value, tuple)
        assert value[0] == 502
    if kind == "head":
        assert isinstance(value, ResponseHead)
        assert data.endswith(b"\r\n\r\n" + leftover)
        _check_response_head(value)
    return result


def _check_response_head(head: ResponseHead) -> None:
    for minor in (0, 1):
        line, fields = parse_plainly(forwarded_response(head, client_minor=minor, keep_client=False))
        assert line.startswith(b"HTTP/1.1 %d " % head.status)
        check_hop_by_hop(fields, head.connection)
        coded = [value for name, value in fields if name == b"transfer-encoding"]
        assert not (minor == 0 and coded)
        if minor == 1 and head.framing.kind in (FramingKind.LENGTH, FramingKind.CHUNKED):
            check_framing_fields(fields, head.framing.kind, head.framing.length)
        if head.framing.kind is FramingKind.UNTIL_CLOSE:
            check_framing_fields(fields, FramingKind.NONE, 0)


def parse_plainly(head: bytes) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """A head as a careless reader sees it, who takes every CR and LF for the end of a line."""
    assert head.endswith(b"\r\n\r\n")
    lines = head[:-4].split(b"\r\n")
    assert head[:-4].replace(b"\r", b"\n").count(b"\n") == 2 * (len(lines) - 1)
    fields = [line.partition(b":") for line in lines[1:]]
    assert all(colon and name and name.strip() == name for name, colon, _ in fields)
    return lines[0], [(name.lower(), value.strip(b" \t")) for name, _, value in fields]


def check_hop_by_hop(fields: Sequence[tuple[bytes, bytes]], connection: frozenset[bytes]) -> None:
    """What belongs to the other leg is gone, and what we add is there."""
    names = [name for name, _ in fields]
    gone = {b"proxy-authorization", b"proxy-connection", b"proxy-authenticate", b"keep-alive", b"http2-settings"}
    ours = {b"host", b"content-length", b"transfer-encoding", b"connection", b"te", b"upgrade", b"via"}
    assert not set(names) & (gone | (connection - ours))
    assert (b"via", b"1.0 iterion-sandbox") in fields or (b"via", b"1.1 iterion-sandbox") in fields
    assert names.count(b"connection") <= 1
    assert {value for name, value in fields if name == b"te"} <= {b"trailers"}
    assert {value for name, value in fields if name == b"upgrade"} <= {b"websocket"}


def check_framing_fields(fields: Sequence[tuple[bytes, bytes]], kind: FramingKind, length: int) -> None:
    """The framing fields say what was parsed, once."""
    found = [(name, value) for name, value in fields if name in (b"content-length", b"transfer-encoding")]
    match kind:
        case FramingKind.LENGTH:
            assert found == [(b"content-length", b"%d" % length)]
        case FramingKind.CHUNKED:
            assert found == [(b"transfer-encoding", b"chunked")]
        case _:
            assert found == []


def decode_chunked(parts: Sequence[bytes], limits: Http1Limits = SMALL) -> tuple[str, object, bytes, bytes, bytes]:
    """How decoding ended, the error, all bytes given back, the payload among them, what followed the body."""
    decoder = body_decoder(CHUNKED, limits)
    wire, payload = b"", b""
    for index, part in enumerate(parts):
        try:
            pieces = decoder.feed(part)
        except ProtocolError as error:
            return "error", (error.status, error.detail), b"", b"", b""
        wire += b"".join(piece.data for piece in pieces)
        payload += b"".join(piece.data for piece in pieces if piece.is_payload)
        if decoder.complete:
            decoder.feed_eof()
            return "complete", None, wire, payload, decoder.leftover + b"".join(parts[index + 1 :])
    with pytest.raises(ProtocolError, match="inside a chunked body"):
        decoder.feed_eof()
    return "incomplete", None, wire, payload, b""


def check_chunked(data: bytes, sizes: Sequence[int] = ()) -> tuple[str, object, bytes, bytes, bytes]:
    """Any bytes as a chunked body."""
    result = same_for_every_cut(data, sizes, decode_chunked)
    kind, value, wire, payload, leftover = result
    if kind == "error":
        assert isinstance(value, tuple)
        assert value[0] == 400
    else:
        assert data.startswith(wire)
    if kind == "complete":
        assert wire + leftover == data
        assert payload == dechunk_plainly(wire)
    return result


def dechunk_plainly(wire: bytes) -> bytes:
    """The payload as a careless reader sees it, who cuts sizes at the first semicolon and lines at any LF."""
    payload = b""
    while True:
        line, _, wire = wire.partition(b"\n")
        size = int(line.partition(b";")[0].strip(), 16)
        if not size:
            return payload
        payload += wire[:size]
        assert wire[size : size + 2] == b"\r\n"
        wire = wire[size + 2 :]


def check_replies(text: str) -> None:
    """Any text as a host."""
    assert printable(text).isascii()
    assert printable(text).isprintable() or not text
    head, _, body = blocked(text, "invalid_host").partition(b"\r\n\r\n")
    _, fields = parse_plainly(head + b"\r\n\r\n")
    assert (b"content-length", b"%d" % len(body)) in fields
    assert body.endswith(b" (invalid_host)\n")
    assert body.decode("ascii").strip().isprintable()


def check_credentials(value: bytes) -> None:
    """Any bytes as credentials: they never match a token that nobody could have guessed."""
    assert not token_matches(value, b"6c1f0e5ad2b94788" * 4)
