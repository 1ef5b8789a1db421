"""Which addresses does this host have? A dump of the kernel's table by rtnetlink (RFC 3549, rtnetlink(7))."""

import socket
import struct
import sys
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address
from typing import Final

__all__ = ["host_addresses", "parse_addresses"]

IPAddress = IPv4Address | IPv6Address

RTM_NEWADDR: Final = 20
RTM_GETADDR: Final = 22
NLM_F_REQUEST: Final = 0x1
NLM_F_DUMP: Final = 0x300
NLMSG_DONE: Final = 3
NLMSG_ERROR: Final = 2
IFA_ADDRESS: Final = 1
IFA_LOCAL: Final = 2
MESSAGE_HEADER: Final = struct.Struct("=IHHII")  # length, type, flags, sequence, port
ADDRESS_HEADER: Final = struct.Struct("=BBBBI")  # family, prefix length, flags, scope, interface
ATTRIBUTE_HEADER: Final = struct.Struct("=HH")  # length, type
RECEIVE_BYTES: Final = 1 << 16


def host_addresses() -> frozenset[IPAddress]:
    """Return every address of every interface in this network namespace, loopback included.

    Raises:
        OSError: the kernel does not answer rtnetlink.
    """
    request = MESSAGE_HEADER.pack(
        MESSAGE_HEADER.size + ADDRESS_HEADER.size, RTM_GETADDR, NLM_F_REQUEST | NLM_F_DUMP, 1, 0
    ) + ADDRESS_HEADER.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
    found: set[IPAddress] = set()
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink:
        netlink.settimeout(5.0)  # the kernel answers at once; this only keeps a broken one from hanging us
        netlink.send(request)
        done = False
        while not done:
            addresses, done = parse_addresses(netlink.recv(RECEIVE_BYTES))
            found |= addresses
    return frozenset(found)


def parse_addresses(data: bytes) -> tuple[set[IPAddress], bool]:
    """Read one datagram of an address dump: the addresses in it, and whether it is the last.

    Raises:
        OSError: the kernel reports an error.
    """
    found: set[IPAddress] = set()
    for kind, body in _messages(data):
        if kind == NLMSG_DONE:
            return found, True
        if kind == NLMSG_ERROR:
            code = -int.from_bytes(body[:4], sys.byteorder, signed=True)
            raise OSError(code, "rtnetlink refused to list the addresses")
        if kind == RTM_NEWADDR and len(body) >= ADDRESS_HEADER.size:
            family = body[0]
            for attribute, value in _attributes(body[ADDRESS_HEADER.size :]):
                # On a point-to-point link IFA_ADDRESS is the peer's and IFA_LOCAL ours: neither may be dialled.
                if attribute in (IFA_ADDRESS, IFA_LOCAL):
                    if family == socket.AF_INET and len(value) == 4:
                        found.add(IPv4Address(value))
                    elif family == socket.AF_INET6 and len(value) == 16:
                        found.add(IPv6Address(value))
    return found, False


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position + MESSAGE_HEADER.size <= len(data):
        length, kind, _, _, _ = MESSAGE_HEADER.unpack_from(data, position)
        if length < MESSAGE_HEADER.size:
            return
        yield kind, data[position + MESSAGE_HEADER.size : position + length]
        position += (length + 3) & ~3


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position + ATTRIBUTE_HEADER.size <= len(data):
        length, kind = ATTRIBUTE_HEADER.unpack_from(data, position)
        if length < ATTRIBUTE_HEADER.size:
            return
        yield kind, data[position + ATTRIBUTE_HEADER.size : position + length]
        position += (length + 3) & ~3
