"""The gate in front of a tunnel: TLS must ask for the host that the tunnel leads to."""

import pytest

from gateway.egress.pump import GateRefused
from gateway.egress.server_name import INVALID, MISMATCH, MISSING, ServerNameGate
from policy.host import parse_host
from tests.gateway.egress.hellos import hello, real_hello


def pass_gate(host: str, data: bytes) -> bool:
    return ServerNameGate(parse_host(host), 65_536).feed(memoryview(data))


def refusal(host: str, data: bytes) -> GateRefused:
    with pytest.raises(GateRefused) as caught:
        pass_gate(host, data)
    return caught.value


@pytest.mark.parametrize("name", [b"example.com", b"EXAMPLE.com", b"example.com.", b"eXample.COM."])
def test_H23_the_same_name_passes_after_canonicalising(name: bytes) -> None:
    assert pass_gate("example.com", hello(name))


@pytest.mark.parametrize("name", [b"evil.com", b"www.example.com", b"example.com.evil.com", b"xexample.com", b"com"])
def test_H23_another_name_is_refused(name: bytes) -> None:
    refused = refusal("example.com", hello(name))
    assert refused.code == MISMATCH
    assert "example.com" in refused.detail


def test_H23_no_name_is_refused_where_the_tunnel_leads_to_a_name() -> None:
    assert refusal("example.com", real_hello(None)).code == MISSING


@pytest.mark.parametrize("address", ["192.0.2.1", "2001:db8::1"])
def test_H23_no_name_passes_where_the_tunnel_leads_to_an_address(address: str) -> None:
    assert pass_gate(address, real_hello(None))


def test_H23_a_name_is_refused_where_the_tunnel_leads_to_an_address() -> None:
    assert refusal("192.0.2.1", hello(b"example.com")).code == MISMATCH


def test_the_address_itself_as_a_name_passes() -> None:
    assert pass_gate("192.0.2.1", hello(b"192.0.2.1"))


@pytest.mark.parametrize("name", [b"exa mple.com", b"\0.example.com", b"127.1", b"[::1", b"*.example.com"])
def test_a_name_that_is_no_host_is_refused(name: bytes) -> None:
    assert refusal("example.com", hello(name)).code == INVALID


def test_a_malformed_hello_is_refused() -> None:
    assert refusal("example.com", b"\x16\x02\0\0\0").code == INVALID


def test_H23_a_hello_in_one_byte_pieces() -> None:
    gate = ServerNameGate(parse_host("example.com"), 65_536)
    data = hello(b"example.com")
    answers = [gate.feed(memoryview(data[at : at + 1])) for at in range(len(data))]
    assert answers == [False] * (len(data) - 1) + [True]


def test_an_end_inside_the_hello_is_refused() -> None:
    gate = ServerNameGate(parse_host("example.com"), 65_536)
    assert not gate.feed(memoryview(b"\x16\x03"))
    with pytest.raises(GateRefused) as caught:
        gate.ended()
    assert caught.value.code == INVALID


@pytest.mark.parametrize("data", [b"SSH-2.0-OpenSSH_9.2\r\n", b"GET / HTTP/1.1\r\nHost: evil.com\r\n\r\n"])
def test_what_is_not_tls_passes(data: bytes) -> None:
    assert pass_gate("example.com", data)


@pytest.mark.parametrize("data", [b"\x80", b"\x80\x00\x01", b"\x15"])
def test_an_end_after_so_little_that_it_may_be_anything_passes(data: bytes) -> None:
    gate = ServerNameGate(parse_host("a.example"), 65_536)
    assert not gate.feed(memoryview(data))
    gate.ended()
