"""Which special-purpose range an IP address belongs to.

The table is ours because `ipaddress.is_global` answers another question: it is True for 168.63.129.16, 224.0.0.1 and
fec0::1, and it knows nothing of cloud metadata services or of IPv4 addresses embedded in IPv6 ones.

A range may sit inside another (169.254.169.254 in 169.254.0.0/16); the longest prefix wins. At import the nested ranges
are flattened into disjoint intervals, so that one bisection classifies an address.

An IPv6 address that carries an IPv4 address (NAT64, 6to4, Teredo, ISATAP, IPv4-compatible...) may be delivered to that
IPv4 address by a translator or tunnel on the way. It gets the worse class of the two.

Sources: IANA IPv4 and IPv6 Special-Purpose Address Registries, IANA IPv4 and IPv6 Address Space Registries, and the
metadata pages of the cloud providers named in the rows.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Final

from policy.host import IPAddress

IPNetwork = IPv4Network | IPv6Network


class AddressClass(StrEnum):
    """What an address is for, from the policy's point of view."""

    PUBLIC = "public"
    LOOPBACK = "loopback"
    LINK_LOCAL = "link_local"
    METADATA = "metadata"
    UNSPECIFIED = "unspecified"
    MULTICAST = "multicast"
    RESERVED = "reserved"
    PRIVATE = "private"
    UNIQUE_LOCAL = "unique_local"
    CGNAT = "cgnat"

    @property
    def is_always_refused(self) -> bool:
        """Whether only an IP or CIDR rule can let traffic to such an address through."""
        return _SEVERITY[self] >= _SEVERITY[AddressClass.RESERVED]

    @property
    def is_internal(self) -> bool:
        """Whether the address belongs to somebody's own network: private, unique local or carrier-grade NAT."""
        return 0 < _SEVERITY[self] < _SEVERITY[AddressClass.RESERVED]


# Which class to report when an address has two (its own and that of the IPv4 address in it): the higher one.
_SEVERITY: Final = {
    AddressClass.PUBLIC: 0,
    AddressClass.CGNAT: 1,
    AddressClass.UNIQUE_LOCAL: 2,
    AddressClass.PRIVATE: 3,
    AddressClass.RESERVED: 4,
    AddressClass.MULTICAST: 5,
    AddressClass.UNSPECIFIED: 6,
    AddressClass.LINK_LOCAL: 7,
    AddressClass.LOOPBACK: 8,
    AddressClass.METADATA: 9,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecialRange:
    """One row of the table: a range, its class and where that is written down."""

    network: IPNetwork
    address_class: AddressClass
    source: str


def _row(network: str, address_class: AddressClass, source: str) -> SpecialRange:
    return SpecialRange(network=ip_network(network), address_class=address_class, source=source)


_C = AddressClass

SPECIAL_RANGES: Final[tuple[SpecialRange, ...]] = (
    # IANA IPv4 Special-Purpose Address Registry, in its order.
    _row("0.0.0.0/0", _C.PUBLIC, "IPv4 unicast; what follows is carved out of it"),
    _row("0.0.0.0/8", _C.RESERVED, "This network, RFC 791"),
    _row("0.0.0.0/32", _C.UNSPECIFIED, "This host on this network, RFC 1122; Linux connects it to loopback"),
    _row("10.0.0.0/8", _C.PRIVATE, "Private-Use, RFC 1918"),
    _row("100.64.0.0/10", _C.CGNAT, "Shared Address Space, RFC 6598"),
    _row("127.0.0.0/8", _C.LOOPBACK, "Loopback, RFC 1122"),
    _row("169.254.0.0/16", _C.LINK_LOCAL, "Link Local, RFC 3927"),
    _row("172.16.0.0/12", _C.PRIVATE, "Private-Use, RFC 1918"),
    # The anycast addresses of 192.0.0.0/24 (PCP, TURN) are globally reachable by the registry, but they name the
    # network's own middleboxes, which no host name has a reason to point to.
    _row("192.0.0.0/24", _C.RESERVED, "IETF Protocol Assignments, RFC 6890"),
    _row("192.0.2.0/24", _C.RESERVED, "Documentation (TEST-NET-1), RFC 5737"),
    _row("192.31.196.0/24", _C.PUBLIC, "AS112-v4, RFC 7535; globally reachable"),
    _row("192.52.193.0/24", _C.PUBLIC, "AMT, RFC 7450; globally reachable"),
    _row("192.88.99.0/24", _C.RESERVED, "Deprecated 6to4 Relay Anycast, RFC 7526"),
    _row("192.168.0.0/16", _C.PRIVATE, "Private-Use, RFC 1918"),
    _row("192.175.48.0/24", _C.PUBLIC, "Direct Delegation AS112 Service, RFC 7534; globally reachable"),
    _row("198.18.0.0/15", _C.RESERVED, "Benchmarking, RFC 2544"),
    _row("198.51.100.0/24", _C.RESERVED, "Documentation (TEST-NET-2), RFC 5737"),
    _row("203.0.113.0/24", _C.RESERVED, "Documentation (TEST-NET-3), RFC 5737"),
    _row("240.0.0.0/4", _C.RESERVED, "Reserved, RFC 1112"),
    _row("255.255.255.255/32", _C.RESERVED, "Limited Broadcast, RFC 8190"),
    # IANA IPv4 Multicast Address Space Registry.
    _row("224.0.0.0/4", _C.MULTICAST, "Multicast, RFC 5771"),
    # IANA IPv6 Address Space Registry: everything outside the ranges below is reserved by the IETF.
    _row("::/0", _C.RESERVED, "Reserved by IETF, RFC 4291"),
    _row("2000::/3", _C.PUBLIC, "Global Unicast, RFC 4291"),
    _row("fc00::/7", _C.UNIQUE_LOCAL, "Unique Local Unicast, RFC 4193"),
    _row("fe80::/10", _C.LINK_LOCAL, "Link-Scoped Unicast, RFC 4291"),
    _row("fec0::/10", _C.RESERVED, "Site-Local Unicast, deprecated, RFC 3879"),
    _row("ff00::/8", _C.MULTICAST, "Multicast, RFC 4291"),
    # IANA IPv6 Special-Purpose Address Registry, in its order.
    _row("::1/128", _C.LOOPBACK, "Loopback Address, RFC 4291"),
    _row("::/128", _C.UNSPECIFIED, "Unspecified Address, RFC 4291"),
    _row("64:ff9b::/96", _C.PUBLIC, "IPv4-IPv6 Translation, RFC 6052; the IPv4 address in it decides"),
    _row("64:ff9b:1::/48", _C.RESERVED, "Local-use IPv4/IPv6 Translation, RFC 8215"),
    _row("100::/64", _C.RESERVED, "Discard-Only Address Block, RFC 6666"),
    _row("100:0:0:1::/64", _C.RESERVED, "Dummy IPv6 Prefix, RFC 9780"),
    # As in IPv4: the anycast addresses and the identifiers that are never routed (ORCHIDv2, drone IDs) stay refused.
    _row("2001::/23", _C.RESERVED, "IETF Protocol Assignments, RFC 2928"),
    _row("2001::/32", _C.RESERVED, "TEREDO, RFC 4380"),
    _row("2001:2::/48", _C.RESERVED, "Benchmarking, RFC 5180"),
    _row("2001:3::/32", _C.PUBLIC, "AMT, RFC 7450; globally reachable"),
    _row("2001:4:112::/48", _C.PUBLIC, "AS112-v6, RFC 7535; globally reachable"),
    _row("2001:10::/28", _C.RESERVED, "Deprecated ORCHID, RFC 4843"),
    _row("2001:20::/28", _C.RESERVED, "ORCHIDv2, RFC 7343"),
    _row("2001:30::/28", _C.RESERVED, "Drone Remote ID Protocol Entity Tags, RFC 9374"),
    _row("2001:db8::/32", _C.RESERVED, "Documentation, RFC 3849"),
    _row("2002::/16", _C.PUBLIC, "6to4, RFC 3056; the IPv4 address in it decides"),
    _row("2620:4f:8000::/48", _C.PUBLIC, "Direct Delegation AS112 Service, RFC 7534; globally reachable"),
    _row("3fff::/20", _C.RESERVED, "Documentation, RFC 9637"),
    _row("5f00::/16", _C.RESERVED, "Segment Routing (SRv6) SIDs, RFC 9602"),
    # Services of the cloud and the cluster that hand credentials to whoever can reach them.
    _row("169.254.169.254/32", _C.METADATA, "Instance metadata of AWS, Google Cloud, Azure, Oracle, DigitalOcean..."),
    _row("169.254.170.2/32", _C.METADATA, "AWS ECS task metadata and credentials"),
    _row("169.254.170.23/32", _C.METADATA, "AWS EKS Pod Identity credentials"),
    _row("169.254.0.23/32", _C.METADATA, "Tencent Cloud instance metadata"),
    _row("169.254.42.42/32", _C.METADATA, "Scaleway instance metadata"),
    _row("100.100.100.200/32", _C.METADATA, "Alibaba Cloud instance metadata"),
    _row("168.63.129.16/32", _C.METADATA, "Azure platform services (WireServer)"),
    _row("192.0.0.192/32", _C.METADATA, "Oracle Cloud Infrastructure Classic instance metadata"),
    _row("fd00:ec2::254/128", _C.METADATA, "AWS instance metadata over IPv6"),
    _row("fd00:ec2::23/128", _C.METADATA, "AWS EKS Pod Identity credentials over IPv6"),
    _row("fd20:ce::254/128", _C.METADATA, "Google Cloud instance metadata over IPv6"),
    _row("fd00:c1::a9fe:a9fe/128", _C.METADATA, "Oracle Cloud instance metadata over IPv6"),
    _row("fd00:42::42/128", _C.METADATA, "Scaleway instance metadata over IPv6"),
    _row("fe80::a9fe:a9fe/128", _C.METADATA, "OpenStack instance metadata over IPv6"),
)  # fmt: skip


def _flatten(bits: int) -> tuple[tuple[int, ...], tuple[SpecialRange, ...]]:
    """Turn the nested ranges of one address family into interval starts and the row that holds from each start."""
    rows = [row for row in SPECIAL_RANGES if row.network.max_prefixlen == bits]
    starts = sorted(
        {int(row.network.network_address) for row in rows}
        | {int(row.network.broadcast_address) + 1 for row in rows} - {1 << bits}
    )
    family = IPv4Address if bits == _IPV4_BITS else IPv6Address
    holders = tuple(
        max((row for row in rows if family(start) in row.network), key=lambda row: row.network.prefixlen)
        for start in starts
    )
    return tuple(starts), holders


_IPV4_BITS: Final = 32
_IPV6_BITS: Final = 128
_IPV4_STARTS, _IPV4_ROWS = _flatten(_IPV4_BITS)
_IPV6_STARTS, _IPV6_ROWS = _flatten(_IPV6_BITS)

_LOW_32: Final = 0xFFFFFFFF
_NAT64: Final = 0x0064FF9B << 64  # 64:ff9b::/96, as the upper 96 bits
_NAT64_LOCAL: Final = 0x0064FF9B0001  # 64:ff9b:1::/48, as the upper 48 bits
_TRANSLATED: Final = 0xFFFF0000  # ::ffff:0:0:0/96 (RFC 2765), as the upper 96 bits
_SIX_TO_FOUR: Final = 0x2002
_TEREDO: Final = 0x20010000
# Interface identifiers of ISATAP (RFC 5214 section 6.1), upper 32 bits, with the universal bit clear or set.
_ISATAP: Final = (0x00005EFE, 0x02005EFE)


def special_range(address: IPAddress) -> SpecialRange:
    """Return the row of the table that an address itself is in, without a look at embedded addresses.

    An IPv4-mapped IPv6 address is that IPv4 address.
    """
    number = int(address)
    if isinstance(address, IPv6Address):
        if number >> 32 != 0xFFFF:
            return _IPV6_ROWS[bisect_right(_IPV6_STARTS, number) - 1]
        number &= _LOW_32
    return _IPV4_ROWS[bisect_right(_IPV4_STARTS, number) - 1]


def embedded_ipv4(address: IPAddress) -> tuple[IPv4Address, ...]:
    """Return the IPv4 addresses that a translator or tunnel may deliver an IPv6 address to; empty for most.

    IPv4-mapped addresses are not among them: those *are* IPv4 addresses. Sources: RFC 4291 section 2.5.5.1
    (IPv4-compatible), RFC 2765 section 2.1 (IPv4-translated), RFC 6052 section 2.2 and RFC 8215 (NAT64), RFC 3056
    (6to4), RFC 4380 section 4 (Teredo: server, and client with its bits inverted), RFC 5214 (ISATAP).
    """
    if isinstance(address, IPv4Address):
        return ()
    return tuple(IPv4Address(number) for number in _embedded_numbers(int(address)))


def _embedded_numbers(number: int) -> Iterator[int]:
    low = number & _LOW_32
    upper = number >> 32
    if upper in (_NAT64, _TRANSLATED) or (upper == 0 and low > 1):
        yield low
    elif number >> 80 == _NAT64_LOCAL:
        # The operator picks a prefix of 96, 64, 56 or 48 bits inside the /48; bits 64 to 71 stay out of the address.
        readings = (
            low,
            number >> 24 & _LOW_32,
            (number >> 64 & 0xFF) << 24 | number >> 32 & 0xFF_FFFF,
            (number >> 64 & 0xFFFF) << 16 | number >> 40 & 0xFFFF,
        )
        yield from filter(None, readings)
    elif number >> 112 == _SIX_TO_FOUR:
        yield number >> 80 & _LOW_32
    elif number >> 96 == _TEREDO:
        yield number >> 64 & _LOW_32
        yield low ^ _LOW_32
    if number >> 32 & _LOW_32 in _ISATAP:
        yield low


def classify(address: IPAddress) -> AddressClass:
    """Return the class of an address; the worse one where an IPv4 address is embedded in it."""
    worst = special_range(address).address_class
    for inner in embedded_ipv4(address):
        worst = max(worst, special_range(inner).address_class, key=_SEVERITY.__getitem__)
    return worst
