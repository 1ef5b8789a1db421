"""The ClientHello reader: any bytes as the beginning of a tunnel, as they are and inside well-formed records."""

from tests.gateway.egress.hello_properties import check_every_way
from tests.gateway.egress.hellos import hello, message, real_hello, records, server_names, vector

SEEDS = [
    b"\x00" + hello(b"example.com"),
    b"\x00" + real_hello("example.com"),
    b"\x00" + records(message([(0, server_names((0, b"a.example")))]), 3),
    b"\x00SSH-2.0-OpenSSH_9.2\r\n",
    b"\x01" + message([(0, server_names((0, b"a.example"))), (10, b"\0\2\0\x1d")])[4:],
]


def fuzz(data: bytes) -> None:
    """Read one beginning of a tunnel, cut in every way."""
    kind, rest = data[:1], data[1:2_000]
    if kind == b"\x01":
        check_every_way(records(b"\x01" + vector(3, rest), 1 + len(rest) % 97))
    else:
        check_every_way(rest)
