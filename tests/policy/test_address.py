"""Every range of the table, and the IPv4 addresses inside IPv6 ones."""

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.address import SPECIAL_RANGES, AddressClass, classify, embedded_ipv4, special_range
from policy.host import IPAddress

INTERNAL = {AddressClass.PRIVATE, AddressClass.UNIQUE_LOCAL, AddressClass.CGNAT}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8.8.8.8", "public"),
        ("1.0.0.0", "public"),
        ("192.31.196.1", "public"),
        ("0.0.0.0", "unspecified"),
        ("0.0.0.1", "reserved"),
        ("9.255.255.255", "public"),
        ("10.0.0.0", "private"),
        ("10.255.255.255", "private"),
        ("11.0.0.0", "public"),
        ("100.63.255.255", "public"),
        ("100.64.0.0", "cgnat"),
        ("100.127.255.255", "cgnat"),
        ("100.128.0.0", "public"),
        ("127.0.0.0", "loopback"),
        ("127.255.255.255", "loopback"),
        ("169.254.0.0", "link_local"),
        ("169.254.255.255", "link_local"),
        ("172.15.255.255", "public"),
        ("172.16.0.0", "private"),
        ("172.31.255.255", "private"),
        ("172.32.0.0", "public"),
        ("192.0.0.8", "reserved"),
        ("192.0.0.9", "reserved"),
        ("192.0.0.170", "reserved"),
        ("192.0.1.0", "public"),
        ("192.0.2.1", "reserved"),
        ("192.88.99.1", "reserved"),
        ("192.168.0.1", "private"),
        ("198.18.0.1", "reserved"),
        ("198.19.255.255", "reserved"),
        ("198.51.100.1", "reserved"),
        ("203.0.113.1", "reserved"),
        ("223.255.255.255", "public"),
        ("239.255.255.255", "multicast"),
        ("240.0.0.0", "reserved"),
        ("255.255.255.255", "reserved"),
        ("2606:4700::1111", "public"),
        ("3ffe::1", "public"),
        ("::", "unspecified"),
        ("::1", "loopback"),
        ("::2", "reserved"),
        ("100::1", "reserved"),
        ("100:0:0:1::1", "reserved"),
        ("2001:1::1", "reserved"),
        ("2001:2::1", "reserved"),
        ("2001:3::1", "public"),
        ("2001:4:112::1", "public"),
        ("2001:10::1", "reserved"),
        ("2001:20::1", "reserved"),
        ("2001:200::1", "public"),
        ("2001:db8::1", "reserved"),
        ("2620:4f:8000::1", "public"),
        ("3fff::1", "reserved"),
        ("4000::1", "reserved"),
        ("5f00::1", "reserved"),
        ("fbff::1", "reserved"),
        ("fc00::1", "unique_local"),
        ("fdff::1", "unique_local"),
        ("fe00::1", "reserved"),
        ("fe80::1", "link_local"),
        ("febf::1", "link_local"),
        ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "multicast"),
    ],
)
def test_ranges_by_their_edges(text: str, expected: str) -> None:
    assert classify(ip_address(text)) == expected


@pytest.mark.parametrize(
    "text",
    ["::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::", "::169.254.169.254", "2002:a9fe:a9fe:1::5"],
)
def test_H08_an_embedded_ipv4_address_decides(text: str) -> None:
    assert classify(ip_address(text)) is AddressClass.METADATA


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("168.63.129.16", "metadata"),
        ("192.0.0.192", "metadata"),
        ("100.100.100.200", "metadata"),
        ("169.254.169.254", "metadata"),
        ("169.254.170.2", "metadata"),
        ("169.254.170.23", "metadata"),
        ("fd00:ec2::254", "metadata"),
        ("fd00:ec2::23", "metadata"),
        ("fd20:ce::254", "metadata"),
        ("fe80::a9fe:a9fe", "metadata"),
        ("224.0.0.1", "multicast"),
        ("fec0::1", "reserved"),
        ("ff02::1", "multicast"),
    ],
)
def test_H09_addresses_that_is_global_is_wrong_about_are_refused(text: str, expected: str) -> None:
    found = classify(ip_address(text))
    assert found == expected
    assert found.is_always_refused


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("::ffff:10.0.0.1", "private"),
        ("::ffff:8.8.8.8", "public"),
        ("64:ff9b::8.8.8.8", "public"),
        ("64:ff9b::10.0.0.1", "private"),
        ("64:ff9b::127.0.0.1", "loopback"),
        ("64:ff9b:1::8.8.8.8", "reserved"),
        ("64:ff9b:1::169.254.169.254", "metadata"),
        ("64:ff9b:1:a9fe:a9:fe00::", "metadata"),  # a /48 prefix, RFC 6052 section 2.2
        ("64:ff9b:1:a9:fe:a9fe::", "metadata"),  # a /56 prefix
        ("64:ff9b:1:0:a9:fea9:fe00:0", "metadata"),  # a /64 prefix
        ("64:ff9b:1::", "reserved"),
        ("::ffff:0:127.0.0.1", "loopback"),
        ("::127.0.0.1", "loopback"),
        ("::8.8.8.8", "reserved"),
        ("2002:808:808::1", "public"),
        ("2002:7f00:1::", "loopback"),
        ("2002:e000:1::", "multicast"),
        ("2001:0:808:808::f7f7:f7f7", "reserved"),  # Teredo, public server and client
        ("2001:0:a9fe:a9fe::f7f7:f7f7", "metadata"),  # its server
        ("2001:0:808:808::5601:5601", "metadata"),  # its client, bits inverted
        ("2606:4700::5efe:a9fe:a9fe", "metadata"),  # ISATAP
        ("2606:4700::200:5efe:7f00:1", "loopback"),
        ("2606:4700::5efe:808:808", "public"),
        ("fe80::5efe:808:808", "link_local"),
        ("fd00::5efe:a00:1", "private"),
    ],
)
def test_embedded_ipv4_addresses_can_only_make_it_worse(text: str, expected: str) -> None:
    assert classify(ip_address(text)) == expected


def test_every_row_holds_for_its_first_and_last_address() -> None:
    for row in SPECIAL_RANGES:
        inner = [other for other in SPECIAL_RANGES if other.network.version == row.network.version and other != row]
        for address in (row.network.network_address, row.network.broadcast_address):
            longer = [o for o in inner if address in o.network and o.network.prefixlen > row.network.prefixlen]
            if not longer:
                assert special_range(address) == row
        assert row.source


def test_the_table_has_each_range_once() -> None:
    networks = [row.network for row in SPECIAL_RANGES]
    assert len(networks) == len(set(networks))


def test_classes_are_refused_always_or_internal_or_public() -> None:
    for each in AddressClass:
        assert each.is_internal is (each in INTERNAL)
        assert (each is AddressClass.PUBLIC) is not (each.is_internal or each.is_always_refused)
        assert not (each.is_internal and each.is_always_refused)


@given(st.ip_addresses())
def test_the_intervals_agree_with_the_longest_prefix(address: IPAddress) -> None:
    plain = address.ipv4_mapped or address if isinstance(address, IPv6Address) else address
    rows = [row for row in SPECIAL_RANGES if plain in row.network]
    assert special_range(address) == max(rows, key=lambda row: row.network.prefixlen)
    assert classify(address) == classify(plain)


@given(st.ip_addresses(v=4))
def test_a_mapped_address_has_the_class_of_its_ipv4_address(address: IPAddress) -> None:
    assert embedded_ipv4(address) == ()
    mapped = IPv6Address(0xFFFF << 32 | int(address))
    assert embedded_ipv4(mapped) == ()
    assert classify(mapped) == classify(address)


@given(st.ip_addresses(v=4))
def test_nat64_and_6to4_are_judged_by_their_ipv4_address(address: IPv4Address) -> None:
    for number in (0x64FF9B << 96 | int(address), 0x2002 << 112 | int(address) << 80):
        assert classify(IPv6Address(number)) == classify(address)
