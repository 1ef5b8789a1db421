"""Response heads: what an upstream says is sent on only if it can be read in one way."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.egress.http1 import Framing, FramingKind, ProtocolError, ResponseHead, ResponseHeadReader
from tests.gateway.egress.http1.properties import check_response

FRAGMENTS = st.sampled_from(
    [
        b"HTTP/1.1 200 OK",
        b"HTTP/1.0 200",
        b"HTTP/1.1 101 Switching Protocols",
        b"HTTP/1.1 204 ",
        b"\r\n",
        b"\r\n\r\n",
        b"\n",
        b"\r",
        b":",
        b"Content-Length: 5",
        b"Transfer-Encoding: chunked",
        b"Connection: upgrade",
        b"Connection: close, transfer-encoding",
        b"Upgrade: websocket",
        b"Set-Cookie: a=b",
    ]
)
MESSAGES = st.one_of(st.binary(max_size=500), st.lists(FRAGMENTS, max_size=15).map(b"".join))
NONE, CHUNKED, UNTIL_CLOSE = (
    Framing(kind) for kind in (FramingKind.NONE, FramingKind.CHUNKED, FramingKind.UNTIL_CLOSE)
)
FIVE = Framing(FramingKind.LENGTH, 5)


def response(*lines: bytes) -> bytes:
    return b"".join(line + b"\r\n" for line in lines) + b"\r\n"


def parse(data: bytes, method: bytes = b"GET") -> ResponseHead:
    kind, head, _ = check_response(data, method, (3, 1, 7, 20))
    assert kind == "head", head
    assert isinstance(head, ResponseHead)
    return head


@pytest.mark.parametrize(
    ("method", "lines", "framing"),
    [
        (b"GET", (b"HTTP/1.1 200 OK", b"Content-Length: 5"), FIVE),
        (b"GET", (b"HTTP/1.1 200 OK", b"Transfer-Encoding: chunked"), CHUNKED),
        (b"GET", (b"HTTP/1.1 200 OK", b"Transfer-Encoding: Chunked"), CHUNKED),
        (b"GET", (b"HTTP/1.1 200 OK",), UNTIL_CLOSE),
        (b"HEAD", (b"HTTP/1.1 200 OK",), NONE),
        (b"HEAD", (b"HTTP/1.1 200 OK", b"Content-Length: 5"), NONE),
        (b"HEAD", (b"HTTP/1.1 200 OK", b"Transfer-Encoding: chunked"), NONE),
        (b"GET", (b"HTTP/1.1 204 No Content",), NONE),
        (b"GET", (b"HTTP/1.1 204 No Content", b"Content-Length: 5"), NONE),
        (b"GET", (b"HTTP/1.1 304 Not Modified", b"Content-Length: 5"), NONE),
        (b"GET", (b"HTTP/1.1 100 Continue",), NONE),
        (b"GET", (b"HTTP/1.1 205 Reset", b"Content-Length: 5"), FIVE),
    ],
)
def test_framing(method: bytes, lines: tuple[bytes, ...], framing: Framing) -> None:
    assert parse(response(*lines), method).framing == framing


@pytest.mark.parametrize(
    ("lines", "keep"),
    [
        ((b"HTTP/1.1 204",), True),
        ((b"HTTP/1.1 200 OK", b"Content-Length: 0"), True),
        ((b"HTTP/1.1 200 OK", b"Content-Length: 0", b"Connection: X, close"), False),
        ((b"HTTP/1.0 200 OK", b"Content-Length: 0", b"Connection: keep-alive"), False),
        ((b"HTTP/1.1 200 OK",), False),
    ],
)
def test_keep_alive(lines: tuple[bytes, ...], keep: bool) -> None:
    assert parse(response(*lines)).keep_alive is keep


@pytest.mark.parametrize(
    ("line", "status", "reason"),
    [
        (b"HTTP/1.1 200 OK", 200, b"OK"),
        (b"HTTP/1.1 200 ", 200, b""),
        (b"HTTP/1.1 200", 200, b""),
        (b"HTTP/1.0 404 Nicht da, \xfc", 404, b"Nicht da, \xfc"),
        (b"HTTP/1.1 999 Request denied", 999, b"Request denied"),
    ],
)
def test_status_lines(line: bytes, status: int, reason: bytes) -> None:
    head = parse(response(line))
    assert (head.status, head.reason) == (status, reason)


def test_interim_responses() -> None:
    assert parse(response(b"HTTP/1.1 100 Continue")).is_interim
    assert parse(response(b"HTTP/1.1 103 Early Hints")).is_interim
    assert not parse(response(b"HTTP/1.1 101 Switching")).is_interim
    assert not parse(response(b"HTTP/1.1 200 OK")).is_interim


@pytest.mark.parametrize(
    ("lines", "upgrade"),
    [
        ((b"HTTP/1.1 101 S", b"Connection: Upgrade", b"Upgrade: WebSocket"), b"websocket"),
        ((b"HTTP/1.1 101 S", b"Connection: Upgrade", b"Upgrade: h2c"), None),
        ((b"HTTP/1.1 101 S", b"Connection: Upgrade", b"Upgrade: websocket, h2c"), None),
        ((b"HTTP/1.1 101 S", b"Connection: Upgrade"), None),
        ((b"HTTP/1.1 101 S", b"Upgrade: websocket"), None),
        ((b"HTTP/1.1 200 S", b"Connection: Upgrade", b"Upgrade: websocket"), None),
    ],
)
def test_upgrades(lines: tuple[bytes, ...], upgrade: bytes | None) -> None:
    assert parse(response(*lines)).upgrade == upgrade


@pytest.mark.parametrize(
    "data",
    [
        response(b"HTTP/1.1 200 OK", b"Content-Length: 5", b"Content-Length: 5"),
        response(b"HTTP/1.1 200 OK", b"Content-Length: 5", b"Transfer-Encoding: chunked"),
        response(b"HTTP/1.1 200 OK", b"Content-Length: 5, 5"),
        response(b"HTTP/1.1 200 OK", b"Content-Length: +5"),
        response(b"HTTP/1.1 204 No Content", b"Content-Length: x"),
        response(b"HTTP/1.1 200 OK", b"Transfer-Encoding: gzip, chunked"),
        response(b"HTTP/1.1 200 OK", b"Transfer-Encoding: identity"),
        response(b"HTTP/1.0 200 OK", b"Transfer-Encoding: chunked"),
        response(b"HTTP/1.1 200 OK", b"Set-Cookie: a\rX: b"),
        response(b"HTTP/1.1 200 OK", b"Set-Cookie: a\nX: b"),
        response(b"HTTP/1.1 200 OK", b"Set-Cookie: a\0b"),
        response(b"HTTP/1.1 200 OK", b"Set-Cookie: a", b" b"),
        response(b"HTTP/1.1 200 OK", b"Set-Cookie : a"),
        response(b"HTTP/1.1 200 OK\rX: y"),
        response(b"HTTP/1.1 200  OK\x01"),
        response(b"HTTP/1.1  200 OK"),
        response(b"HTTP/1.1 099 OK"),
        response(b"HTTP/1.1 20 OK"),
        response(b"HTTP/1.1 2000 OK"),
        response(b"HTTP/1.1 +20 OK"),
        response(b"HTTP/2.0 200 OK"),
        response(b"HTTP/1.2 200 OK"),
        response(b"http/1.1 200 OK"),
        response(b"HTTP 200 OK"),
        response(b"ICY 200 OK"),
        b"\r\nHTTP/1.1 200 OK\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\n\n",
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 9 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nA: " + b"b" * 500,
    ],
)
def test_an_ambiguous_answer_is_a_bad_gateway(data: bytes) -> None:
    kind, error, _ = check_response(data, b"GET", (5, 1, 9))
    assert kind == "error"
    assert isinstance(error, tuple)
    assert error[0] == 502


def test_bytes_behind_the_head_are_left_over() -> None:
    reader = ResponseHeadReader(b"GET")
    started = [reader.started]
    assert reader.feed(b"HTTP/1.1 200 OK\r\n") is None
    started.append(reader.started)
    assert started == [False, True]
    assert reader.feed(b"\r\nbody") is not None
    assert reader.leftover == b"body"


def test_the_repr_hides_header_values() -> None:
    head = parse(response(b"HTTP/1.1 200 OK", b"Set-Cookie: SECRET"))
    assert repr(head) == "<ResponseHead 200 HTTP/1.1 until close [Set-Cookie]>"


def test_errors_of_the_reader_are_always_502() -> None:
    with pytest.raises(ProtocolError) as caught:
        ResponseHeadReader(b"GET").feed(response(b"HTTP/1.1 200 OK", b"Transfer-Encoding: gzip"))
    assert caught.value.status == 502


@given(MESSAGES, st.sampled_from([b"GET", b"HEAD"]), st.lists(st.integers(1, 60), max_size=10))
@example(b"HTTP/1.1 204 \r\nContent-Length: 5\r\n\r\n", b"GET", [])
@example(b"HTTP/1.1 200 OK\r\nConnection: via, content-length\r\nContent-Length: 5\r\n\r\n", b"GET", [])
def test_any_bytes(data: bytes, method: bytes, sizes: list[int]) -> None:
    check_response(data, method, sizes)
