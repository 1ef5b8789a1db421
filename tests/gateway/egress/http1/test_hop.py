"""What is sent on: hop-by-hop fields out, ours in, everything else as it was and in its order."""

import pytest

from gateway.egress.http1 import forwarded_request, forwarded_response, parse_request_head, parse_response_head

VIA = b"Via: 1.1 iterion-sandbox"


def request(
    *lines: bytes, first: bytes = b"GET http://a.example/b HTTP/1.1", keep_upstream: bool = True
) -> list[bytes]:
    head = parse_request_head(b"\r\n".join((first, b"Host: a.example", *lines)))
    return split(forwarded_request(head, keep_upstream=keep_upstream))


def response(
    *lines: bytes, first: bytes = b"HTTP/1.1 200 OK", method: bytes = b"GET", minor: int = 1, keep: bool = True
) -> list[bytes]:
    head = parse_response_head(b"\r\n".join((first, *lines)), method)
    return split(forwarded_response(head, client_minor=minor, keep_client=keep))


def split(head: bytes) -> list[bytes]:
    *lines, empty, last = head.split(b"\r\n")
    assert (empty, last) == (b"", b"")
    return lines


def test_a_request_is_sent_in_origin_form() -> None:
    assert request(b"Accept:  */* ", b"x-Foo: 1", b"X-FOO: 2") == [
        b"GET /b HTTP/1.1",
        b"Host: a.example",
        b"Accept: */*",
        b"x-Foo: 1",
        b"X-FOO: 2",
        VIA,
    ]


def test_host_is_written_from_the_target() -> None:
    head = parse_request_head(b"GET http://A.example:80/ HTTP/1.1\r\nhost: a.example.")
    assert split(forwarded_request(head)) == [b"GET / HTTP/1.1", b"Host: A.example:80", VIA]


def test_an_http_1_0_request_without_host_gets_one() -> None:
    head = parse_request_head(b"GET http://a/ HTTP/1.0\r\nExpect: 100-continue\r\nExpires: 0")
    assert split(forwarded_request(head)) == [
        b"GET / HTTP/1.1",
        b"Host: a",
        b"Expires: 0",
        b"Via: 1.0 iterion-sandbox",
    ]


def test_H26_hop_by_hop_fields_are_removed_and_ours_added_afterwards() -> None:
    assert request(
        b"Connection: Proxy-Authorization, X-Foo",
        b"Connection: Via",
        b"Proxy-Authorization: Bearer SECRET",
        b"Proxy-Connection: keep-alive",
        b"Keep-Alive: timeout=5",
        b"X-Foo: 1",
        b"X-Bar: 2",
        b"Via: 1.1 other",
        b"Proxy-Authenticate: Basic",
        b"HTTP2-Settings: A",
        b"TE: gzip",
    ) == [b"GET /b HTTP/1.1", b"Host: a.example", b"X-Bar: 2", VIA]


@pytest.mark.parametrize(
    "option", [b"Host", b"Content-Length", b"Transfer-Encoding", b"Connection", b"close, content-length, host"]
)
def test_H26_connection_cannot_remove_host_or_framing(option: bytes) -> None:
    lines = request(b"Connection: " + option, b"Content-Length: 007")
    assert lines == [b"GET /b HTTP/1.1", b"Host: a.example", b"Content-Length: 7", VIA]
    lines = request(b"Connection: " + option, b"Transfer-Encoding: chunked")
    assert lines == [b"GET /b HTTP/1.1", b"Host: a.example", b"Transfer-Encoding: chunked", VIA]
    assert response(b"Connection: " + option, b"Content-Length: 007") == [
        b"HTTP/1.1 200 OK",
        b"Content-Length: 7",
        VIA,
    ]


def test_no_address_of_the_sandbox_is_added() -> None:
    assert not [line for line in request() if b"forward" in line.lower()]


def test_trailers_are_asked_for_where_the_client_does() -> None:
    assert request(b"TE: trailers, deflate", b"Connection: TE")[2:] == [b"TE: trailers", b"Connection: TE", VIA]


def test_a_websocket_upgrade_is_passed_on() -> None:
    lines = request(b"Connection: Upgrade", b"Upgrade: h2c, websocket", b"Sec-WebSocket-Key: x", keep_upstream=False)
    assert lines[2:] == [b"Sec-WebSocket-Key: x", b"Upgrade: websocket", b"Connection: Upgrade", VIA]


def test_H27_h2c_is_left_out() -> None:
    lines = request(b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABk")
    assert lines == [b"GET /b HTTP/1.1", b"Host: a.example", VIA]


def test_the_last_request_on_an_upstream_connection_says_so() -> None:
    assert request(keep_upstream=False)[2:] == [b"Connection: close", VIA]
    assert request(b"TE: trailers", keep_upstream=False)[2:] == [b"TE: trailers", b"Connection: close, TE", VIA]


def test_a_response_is_sent_on() -> None:
    assert response(
        b"Server: x",
        b"Connection: keep-alive, X-Foo",
        b"Keep-Alive: timeout=5",
        b"X-Foo: 1",
        b"Set-Cookie: a=b",
        b"Set-Cookie: c=d",
        b"Transfer-Encoding: Chunked",
        b"Trailer: ETag",
        b"Upgrade: h2c",
        first=b"HTTP/1.1 200 Fine",
    ) == [
        b"HTTP/1.1 200 Fine",
        b"Server: x",
        b"Set-Cookie: a=b",
        b"Set-Cookie: c=d",
        b"Trailer: ETag",
        b"Transfer-Encoding: chunked",
        VIA,
    ]


def test_a_response_that_ends_the_connection_says_so() -> None:
    assert response(keep=False) == [b"HTTP/1.1 200 OK", b"Connection: close", VIA]
    assert response(first=b"HTTP/1.0 404", keep=False)[0] == b"HTTP/1.1 404 "


def test_an_interim_response_ends_nothing() -> None:
    assert response(b"Link: </a>", first=b"HTTP/1.1 103 Early Hints", keep=False) == [
        b"HTTP/1.1 103 Early Hints",
        b"Link: </a>",
        VIA,
    ]


def test_an_http_1_0_client_gets_no_transfer_encoding() -> None:
    assert response(b"Transfer-Encoding: chunked", minor=0, keep=False) == [
        b"HTTP/1.1 200 OK",
        b"Connection: close",
        VIA,
    ]
    assert response(b"Content-Length: 5", minor=0, keep=False)[1] == b"Content-Length: 5"


def test_no_length_stands_where_there_can_be_no_body() -> None:
    assert response(b"Content-Length: 5", first=b"HTTP/1.1 204 No Content") == [b"HTTP/1.1 204 No Content", VIA]
    assert response(b"Content-Length: 5", first=b"HTTP/1.1 304 Not Modified")[1] == b"Content-Length: 5"
    assert response(b"Content-Length: 5", method=b"HEAD")[1] == b"Content-Length: 5"


def test_a_switch_to_websocket_is_passed_on() -> None:
    assert response(
        b"Connection: upgrade", b"Upgrade: WebSocket", b"Sec-WebSocket-Accept: x", first=b"HTTP/1.1 101 Switching"
    ) == [
        b"HTTP/1.1 101 Switching",
        b"Sec-WebSocket-Accept: x",
        b"Upgrade: websocket",
        b"Connection: Upgrade",
        VIA,
    ]
