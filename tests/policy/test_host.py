"""Text to host: what is accepted, in which spelling, and what is refused."""

import sys
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.host import (
    MAX_NAME_BYTES,
    Authority,
    Host,
    InvalidHost,
    parse_authority,
    parse_host,
    parse_port,
    shown,
    unmapped,
)
from tests.policy.properties import check_authority, check_host

HOST_CHARACTERS = st.sampled_from("aZ09-_.:[]%@/*x \0\n\u00e9\u00df\u3002\uff0e\uff11\u0660\u200d\u00ad\u05d0\ud800")
HOST_TEXTS = st.one_of(
    st.text(max_size=40),
    st.text(HOST_CHARACTERS, max_size=30),
    st.from_regex(r"(xn--[a-z0-9-]{1,20}\.){0,2}[a-z]{1,5}", fullmatch=True),
    st.ip_addresses().map(str),
    st.from_regex(r"(0x?[0-9a-f]{0,8}|[0-9]{1,10})(\.(0x?[0-9a-f]{0,3}|[0-9]{1,3})){0,4}", fullmatch=True),
)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("example.com", "example.com"),
        ("EXAMPLE.Com", "example.com"),
        ("example.com.", "example.com"),
        ("_dmarc.example.com", "_dmarc.example.com"),
        ("a_b-c.example", "a_b-c.example"),
        ("r3---sn-5hne6nz6.googlevideo.com", "r3---sn-5hne6nz6.googlevideo.com"),
        ("3com.com", "3com.com"),
        ("1.2.3.4.in-addr.arpa", "1.2.3.4.in-addr.arpa"),
        ("beef", "beef"),
        ("localhost", "localhost"),
        ("b\u00fccher.example", "xn--bcher-kva.example"),
        ("B\u00dcCHER.example.", "xn--bcher-kva.example"),
        ("XN--BCHER-KVA.example", "xn--bcher-kva.example"),
        ("_srv.b\u00fccher.example", "_srv.xn--bcher-kva.example"),
        ("fa\u00df.de", "xn--fa-hia.de"),  # non-transitional: not fass.de
        ("\uff45\uff58\uff41\uff4d\uff50\uff4c\uff45.com", "example.com"),
        ("goo\u00adgle.com", "google.com"),  # UTS 46 drops the soft hyphen
        ("1.2.3.4", "1.2.3.4"),
        ("1.2.3.4.", "1.2.3.4"),
        ("255.255.255.255", "255.255.255.255"),
        ("2001:DB8:0:0::1", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("::", "::"),
        ("::1.2.3.4", "::102:304"),
        ("::ffff:1.2.3.4", "1.2.3.4"),
        ("[::FFFF:0102:0304]", "1.2.3.4"),
    ],
)
def test_hosts_have_one_spelling(text: str, canonical: str) -> None:
    host = check_host(text)
    assert host is not None
    assert str(host) == canonical


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("", "empty"),
        (".", "empty"),
        ("\u00ad", "empty"),
        ("..", "empty label"),
        ("a..b", "empty label"),
        (".a", "empty label"),
        ("a\u3002\u3002", "empty label"),
        ("a b", "space"),
        ("a\tb", "control character"),
        ("a\x7fb", "control character"),
        ("user@a.com", "user name"),
        ("a.com/x", "path"),
        ("\u2100.com", "path"),  # maps to a/c
        ("a%2ecom", "percent"),
        ("*.a.com", "wildcard"),
        ("a].com", "bracket"),
        ("a[.com", "bracket"),
        ("-a.com", "hyphen"),
        ("a-.com", "hyphen"),
        ("-", "hyphen"),
        ("a!b", "no host name has"),
        ("a\\b", "no host name has"),
        ("a" * 64 + ".com", "63 bytes"),
        ("xn--a", "international"),
        ("xn--bcher-kva1.example", "international"),
        ("x\ud800.com", "international"),
        ("\u0301a.com", "international"),
        ("\u2665.example", "international"),
        ("[::1", "not closed"),
        ("[]", "IPv6"),
        ("[::1]]", "IPv6"),
        ("[1.2.3.4]", "IPv6"),
        ("::1::2", "not an IPv6 address"),
        ("1:2:3:4:5:6:7:8:9", "not an IPv6 address"),
        ("::ffff:01.2.3.4", "not an IPv6 address"),
        ("fe80::1%eth0", "zone"),
        ("256.1.1.1", "disguise"),
        ("1.2.3", "disguise"),
        ("01.2.3.4", "disguise"),
        ("1.2.3.4.5", "disguise"),
        ("a.0x1", "disguise"),
        ("a.0X", "disguise"),
        ("a.0o17", "disguise"),
        ("a.0b11", "disguise"),
        ("foo.1", "disguise"),
    ],
)
def test_what_is_no_host_is_refused_with_the_fault(text: str, detail: str) -> None:
    with pytest.raises(InvalidHost) as caught:
        parse_host(text)
    assert detail in caught.value.detail
    check_host(text)


@pytest.mark.parametrize("text", ["attacker.example\x00.google.com", "a\x00b", "\x00"])
def test_H02_a_nul_is_no_part_of_a_host(text: str) -> None:
    with pytest.raises(InvalidHost) as caught:
        parse_host(text)
    assert "\x00" not in str(caught.value)


@pytest.mark.parametrize("text", ["[evil.com]", "[[evil.com]]", "[::1", "[[::1]]", "[", "]", "::1]", "[::1]x"])
def test_H04_brackets_go_round_ipv6_addresses_only(text: str) -> None:
    with pytest.raises(InvalidHost):
        parse_host(text)
    with pytest.raises(InvalidHost):
        parse_authority(f"{text}:443")


@pytest.mark.parametrize("text", ["[::ffff:1.2.3.4%x.allowed.com]", "[::1%25eth0]", "[fe80::1%]", "::1%a"])
def test_H05_an_address_with_a_zone_is_refused(text: str) -> None:
    with pytest.raises(InvalidHost, match="zone"):
        parse_host(text)


@pytest.mark.parametrize(
    "text", ["127.1", "2130706433", "0x7f.1", "0177.0.0.1", "0", "169.16689662", "2852039166", "0x7f000001", "00.0.0.0"]
)
def test_H06_an_address_in_disguise_is_no_host(text: str) -> None:
    with pytest.raises(InvalidHost, match="disguise"):
        parse_host(text)


@pytest.mark.parametrize(
    "text",
    ["\u2460\u2461\u2466.0.0.1", "127\u30020\u30020\u30021", "\uff11\uff12\uff17.0.0.1", "127\uff0e0\uff610.1\u3002"],
)
def test_H07_digits_of_other_scripts_are_mapped_first_and_judged_as_an_address(text: str) -> None:
    assert parse_host(text) == Host(address=ip_address("127.0.0.1"))


def test_H07_a_mapped_disguise_is_still_a_disguise() -> None:
    with pytest.raises(InvalidHost, match="disguise"):
        parse_host("\uff11\uff12\uff17.1")


@pytest.mark.parametrize("text", ["\u0660" * 60_000, "xn--" + "a" * 5_000, "a." * 200, "\u00fc" * 127, "a" * 254])
def test_H15_length_is_checked_before_idna(text: str) -> None:
    for parse in (parse_host, parse_authority):
        with pytest.raises(InvalidHost, match="longer than 253 bytes") as caught:
            parse(text)
        assert len(caught.value.value) < 600


def test_a_name_may_have_253_bytes_and_a_trailing_dot() -> None:
    name = ".".join(["a" * 63] * 3 + ["b" * 61])
    assert len(name) == MAX_NAME_BYTES
    assert str(parse_host(name + ".")) == name
    assert str(parse_authority(name + ".:65535")) == f"{name}:65535"
    with pytest.raises(InvalidHost, match="longer than 253 bytes"):
        parse_host(name + "c")


def test_a_name_is_measured_again_in_ascii() -> None:
    grows = ".".join(["\u00fc\u00fc\u00fc\u00fc"] * 26)  # 259 characters once every label is an A-label
    assert len(grows.encode()) <= MAX_NAME_BYTES
    with pytest.raises(InvalidHost, match="in ASCII"):
        parse_host(grows)


@pytest.mark.parametrize("text", ["0", "65536", "99999", "+443", "4 43", "443x", "00443", "", "-1", "1_0", "\uff14"])
def test_H16_ports_are_plain_decimal(text: str) -> None:
    with pytest.raises(InvalidHost, match="port"):
        parse_port(text)
    with pytest.raises(InvalidHost, match="port"):
        parse_authority(f"a.com:{text}")


def test_H16_a_port_is_mandatory_unless_there_is_a_default() -> None:
    for text in ("a.com", "[::1]", "1.2.3.4"):
        with pytest.raises(InvalidHost, match="port is missing"):
            parse_authority(text)
        assert parse_authority(text, default_port=443).port == 443
    with pytest.raises(InvalidHost):
        parse_authority("a.com:", default_port=443)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("A.com:80", "a.com:80"),
        ("1.2.3.4:1", "1.2.3.4:1"),
        ("[2001:DB8::1]:65535", "[2001:db8::1]:65535"),
        ("[::ffff:1.2.3.4]:443", "1.2.3.4:443"),
    ],
)
def test_authorities_have_one_spelling(text: str, canonical: str) -> None:
    assert str(parse_authority(text)) == canonical


@pytest.mark.parametrize("text", ["::1:443", "a:b:1", "[::1]443", "[::1]x:443", ":443", "a.com:443:", "a\uff1a443"])
def test_what_is_no_authority_is_refused(text: str) -> None:
    with pytest.raises(InvalidHost):
        parse_authority(text, default_port=443)


def test_a_host_is_a_name_or_an_address() -> None:
    with pytest.raises(InvalidHost, match="exactly one"):
        Host()
    with pytest.raises(InvalidHost, match="exactly one"):
        Host("a.com", ip_address("1.2.3.4"))
    with pytest.raises(InvalidHost, match="zone"):
        Host(address=ip_address("fe80::1%eth0"))
    assert Host("a.com").is_address is False
    assert Host(address=ip_address("1.2.3.4")).is_address is True


def test_a_mapped_address_is_that_ipv4_address() -> None:
    assert Host(address=ip_address("::ffff:1.2.3.4")) == Host(address=ip_address("1.2.3.4"))
    assert len({parse_host("::ffff:1.2.3.4"), parse_host("1.2.3.4")}) == 1
    assert unmapped(ip_address("1.2.3.4")) == ip_address("1.2.3.4")
    assert unmapped(ip_address("2001:db8::1")) == ip_address("2001:db8::1")


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_an_authority_has_a_port_that_can_be_dialled(port: int) -> None:
    with pytest.raises(InvalidHost, match="port"):
        Authority(Host("a.com"), port)


def test_error_values_are_short_and_printable() -> None:
    assert shown("a\x1b[2J\n") == "a\\x1b[2J\\n"
    assert shown("x" * 500) == "x" * 80 + "..."
    error = InvalidHost("\u202eevil", "detail")
    assert str(error) == "\\u202eevil: detail"


@given(HOST_TEXTS)
def test_every_text_is_a_canonical_host_or_refused(text: str) -> None:
    check_host(text)


@given(HOST_TEXTS, st.one_of(st.integers(-1, 70_000).map(str), st.text(max_size=6)))
def test_every_text_is_a_canonical_authority_or_refused(host: str, port: str) -> None:
    check_authority(f"{host}:{port}")
    check_authority(f"[{host}]:{port}")


@pytest.mark.parametrize("name", ["bücher.example", "xn--bcher-kva.example"])
def test_H65_tables_that_cannot_be_loaded_refuse_the_host(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "idna", None)
    with pytest.raises(InvalidHost, match="the IDNA tables cannot be loaded now"):
        parse_host(name)
