"""The HTTP/1 parsers: any bytes as a request, a response, a chunked body, credentials or a host.

The first byte chooses the parser, the second how the rest is cut; the properties are those of the tests.
"""

from tests.gateway.egress.http1.properties import (
    check_chunked,
    check_credentials,
    check_replies,
    check_request,
    check_response,
)

SEEDS = [
    b"\x00\x03CONNECT pypi.org:443 HTTP/1.1\r\nHost: pypi.org\r\nProxy-Authorization: Basic dDpx\r\n\r\n\x16\x03",
    b"\x00\x07\r\nGET http://a:80/b?c HTTP/1.0\r\nTE: trailers\r\n\r\n",
    b"\x00\x05POST http://a/ HTTP/1.1\r\nHost: A.\r\nConnection: X, close\r\nX: y\r\nContent-Length: 3\r\n\r\nabc",
    b"\x00\x02PUT http://[::1]/ HTTP/1.1\r\nHost: [::1]\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"\x00\x01GET http://a/ HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: h2c, websocket\r\n\r\n",
    b"\x00\x01PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x01\x03HTTP/1.1 200 OK\r\nContent-Length: 3\r\nSet-Cookie: a=b\r\n\r\nabc",
    b"\x01\x03HTTP/1.1 101 S\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    b"\x02\x03HTTP/1.0 304\r\nTransfer-Encoding: chunked\r\n\r\n",
    b'\x03\x023;a="b"\r\nabc\r\n0\r\nETag: x\r\n\r\nGET',
    b"\x04\x00Basic dDpxcXFx",
    b"\x05\x00evil.example:443",
]


def fuzz(data: bytes) -> None:
    """Run one parser on one input."""
    kind, step, rest = data[:1], data[1:2], data[2:]
    sizes = [1 + step[0] % 40] * 50 if step else []
    match kind[0] % 6 if kind else 0:
        case 0:
            check_request(rest, sizes)
        case 1:
            check_response(rest, b"GET", sizes)
        case 2:
            check_response(rest, b"HEAD", sizes)
        case 3:
            check_chunked(rest, sizes)
        case 4:
            check_credentials(rest)
        case _:
            check_replies(rest.decode("utf-8", "surrogateescape"))
