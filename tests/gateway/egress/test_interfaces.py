"""Which addresses this host has: parsing without a kernel, then with this one."""

import errno
import struct
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.egress.interfaces import host_addresses, parse_addresses


def netlink(kind: int, body: bytes) -> bytes:
    padding = b"\0" * (-len(body) % 4)
    return struct.pack("=IHHII", 16 + len(body), kind, 2, 1, 0) + body + padding


def address_message(family: int, *attributes: tuple[int, bytes]) -> bytes:
    body = struct.pack("=BBBBI", family, 24, 0, 0, 1)
    for kind, value in attributes:
        body += struct.pack("=HH", 4 + len(value), kind) + value + b"\0" * (-len(value) % 4)
    return netlink(20, body)


def test_addresses_of_both_families_and_both_ends_of_a_link() -> None:
    data = (
        address_message(2, (1, bytes((10, 0, 0, 1))), (2, bytes((10, 0, 0, 2))), (3, b"eth0\0"))
        + address_message(10, (1, IPv6Address("2001:db8::1").packed))
        + netlink(3, bytes(4))
    )
    found, done = parse_addresses(data)
    assert done
    assert found == {IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2"), IPv6Address("2001:db8::1")}


def test_a_dump_may_go_on_in_the_next_datagram() -> None:
    assert parse_addresses(address_message(2, (1, bytes((10, 0, 0, 1))))) == ({IPv4Address("10.0.0.1")}, False)


def test_an_error_of_the_kernel_is_raised() -> None:
    with pytest.raises(OSError, match="rtnetlink") as caught:
        parse_addresses(netlink(2, struct.pack("=i", -errno.EPERM) + bytes(16)))
    assert caught.value.errno == errno.EPERM


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 15,
        struct.pack("=IHHII", 4, 20, 0, 1, 0),
        netlink(20, b"\2\0"),
        netlink(99, bytes(20)),
        netlink(20, struct.pack("=BBBBI", 2, 24, 0, 0, 1) + struct.pack("=HH", 2, 1)),
        address_message(2, (1, b"\x0a\0")),
        address_message(10, (1, b"\x0a\0\0\1")),
        address_message(7, (1, b"\x0a\0\0\1")),
    ],
)
def test_what_cannot_be_read_is_skipped(data: bytes) -> None:
    assert parse_addresses(data) == (set(), False)


@pytest.mark.real
def test_this_host_has_a_loopback_address() -> None:
    assert IPv4Address("127.0.0.1") in host_addresses()


@given(st.binary(max_size=120))
def test_any_datagram_is_read_or_is_an_error_of_the_kernel(data: bytes) -> None:
    with suppress(OSError):
        parse_addresses(data)
