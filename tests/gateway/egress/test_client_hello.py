"""The ClientHello reader: the same answer for every way of cutting, and only its own error."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.egress.client_hello import ClientHelloReader, HelloError, HelloKind, HelloResult
from tests.gateway.egress.hello_properties import MAX_BYTES, check_every_way, cut, read
from tests.gateway.egress.hellos import hello, message, real_hello, records, server_names, vector


@pytest.mark.parametrize("name", ["example.com", "a.b.c.example", "xn--bcher-kva.example"])
def test_a_real_hello_names_its_server(name: str) -> None:
    assert check_every_way(real_hello(name)) == HelloResult(kind=HelloKind.TLS, server_name=name)


def test_a_real_hello_to_nobody() -> None:
    assert check_every_way(real_hello(None)) == HelloResult(kind=HelloKind.TLS, server_name=None)


def test_a_hello_spread_over_records_of_every_small_size() -> None:
    data = message([(0, server_names((0, b"example.com")))])
    for size in (1, 2, 3, 5, 50, len(data) - 1, len(data)):
        assert check_every_way(records(data, size)) == HelloResult(kind=HelloKind.TLS, server_name="example.com")


def test_what_follows_the_hello_is_not_looked_at() -> None:
    assert check_every_way(hello(b"example.com") + b"\x17garbage") == HelloResult(
        kind=HelloKind.TLS, server_name="example.com"
    )


@pytest.mark.parametrize("first", [b"SSH-2.0-x\r\n", b"GET / HTTP/1.1\r\n", b"\x80\x2e\x02", b"\x15\x02", b"\0"])
def test_what_does_not_begin_with_a_handshake_record_is_not_tls(first: bytes) -> None:
    assert check_every_way(first) == HelloResult(kind=HelloKind.NOT_TLS)


SSL2 = "names no server"


@pytest.mark.parametrize(
    ("data", "detail"),
    [
        # Framed as SSL 2.0: OpenSSL 3.0 answers it with a ServerHello of TLS 1.2.
        (bytes.fromhex("802e0103030015000000100000000000009c"), SSL2),
        (bytes.fromhex("802e01030100"), SSL2),
        (bytes.fromhex("ffff010002"), SSL2),
        (bytes.fromhex("1503010002015a160301"), "type 21, not 22"),
        (bytes.fromhex("140303000101160301"), "type 20, not 22"),
        (bytes.fromhex("1703"), "type 23, not 22"),
        (bytes.fromhex("1803"), "type 24, not 22"),
    ],
)
def test_H23_tls_in_another_wrapping_is_refused_however_it_is_cut(data: bytes, detail: str) -> None:
    assert check_every_way(data) == "error"
    with pytest.raises(HelloError, match=detail):
        ClientHelloReader(MAX_BYTES).feed(data)


@pytest.mark.parametrize("first", ["1500", "800002", "8000010100", "8000010001", "80000100030000", "ffffffffff"])
def test_what_only_begins_like_that_is_not_tls(first: str) -> None:
    assert check_every_way(bytes.fromhex(first)) == HelloResult(kind=HelloKind.NOT_TLS)


def test_nothing_is_not_enough() -> None:
    assert ClientHelloReader(MAX_BYTES).feed(b"") is None


def test_a_hello_without_an_extensions_field_names_nobody() -> None:
    assert check_every_way(records(message(None))) == HelloResult(kind=HelloKind.TLS)


def test_a_hello_without_the_extension_names_nobody() -> None:
    assert check_every_way(records(message([(10, b"ab"), (11, b"")]))) == HelloResult(kind=HelloKind.TLS)


ONE_NAME = server_names((0, b"example.com"))


@pytest.mark.parametrize(
    ("data", "detail"),
    [
        (records(message([(0, ONE_NAME), (0, ONE_NAME)])), "two server_name extensions"),
        (records(message([(0, server_names((0, b"a"), (0, b"b")))])), "two server names"),
        (records(message([(0, server_names((1, b"a")))])), "unknown type 1"),
        (records(message([(0, server_names((0, b"")))])), "empty server name"),
        (records(message([(0, server_names())])), "empty server name"),
        (records(message([(0, server_names((0, b"\xff.example")))])), "not ASCII"),
        (records(message([(0, b"")])), "does not fill"),
        (records(message([(0, ONE_NAME + b"x")])), "does not fill"),
        (records(message([(0, vector(2, b"\0\0"))])), "ends inside a field"),
        (records(message([(0, vector(2, b"\0\0\x09abc"))])), "ends inside a field"),
        (records(message([(0, ONE_NAME)], behind=b"x")), "do not end where"),
        (records(b"\x01" + vector(3, b"\x03\x03")), "ends inside a field"),
        (records(b"\x01" + vector(3, b"\x03\x03" + bytes(32) + b"\xff")), "ends inside a field"),
        (records(b"\x01" + vector(3, message(None)[4:] + b"\0\3\0\x0a\0")), "ends inside a field"),
        (records(b"\x01" + vector(3, message(None)[4:] + b"\0\5\0\x0a\0\3x")), "ends inside a field"),
        (records(message(None, kind=2)), "type 2"),
        (records(message(None)[:5]) + records(message(None)[5:], kind=0x17), "record of type 23"),
        (records(message(None), version=b"\x02\0"), "version 2.0"),
        (b"\x16\x03\x01\0\0", "record of 0 bytes"),
        (b"\x16\x03\x01\x40\x01", "record of 16385 bytes"),
        (b"\x16\x03\x01\0\x04\x01\x01\x00\x01", "says it is 65537 bytes"),
    ],
)  # fmt: skip
def test_H23_a_malformed_hello_is_refused_however_it_is_cut(data: bytes, detail: str) -> None:
    assert check_every_way(data) == "error"
    with pytest.raises(HelloError, match=detail) as caught:
        ClientHelloReader(MAX_BYTES).feed(data)
    assert detail in caught.value.detail


def test_the_size_is_bounded_to_the_byte() -> None:
    data = records(message([(21, bytes(2_000)), (0, ONE_NAME)]), 100)
    assert check_every_way(data, len(data)) == HelloResult(kind=HelloKind.TLS, server_name="example.com")
    assert check_every_way(data, len(data) - 1) == "error"
    whole = records(message([(21, bytes(2_000)), (0, ONE_NAME)]))
    assert check_every_way(whole, len(whole)) == HelloResult(kind=HelloKind.TLS, server_name="example.com")
    assert check_every_way(whole, len(whole) - 1) == "error"


def test_an_unfinished_hello_waits() -> None:
    data = hello(b"example.com")
    assert check_every_way(data[:-1]) is None


@given(st.binary(max_size=200), st.integers(1, 50))
def test_any_bytes_give_an_answer_or_the_documented_error(data: bytes, size: int) -> None:
    assert read(iter([data])) == read(cut(data, size))
    check_every_way(b"\x16\x03\x01" + data)


@given(st.binary(max_size=300))
def test_any_hello_body_gives_an_answer_or_the_documented_error(body: bytes) -> None:
    check_every_way(records(b"\x01" + vector(3, body), 37))
    check_every_way(records(b"\x01" + vector(3, message(None)[4:] + vector(2, body))))


@given(st.data())
def test_a_damaged_real_hello_gives_an_answer_or_the_documented_error(data: st.DataObject) -> None:
    bytes_ = bytearray(real_hello("example.com"))
    position = data.draw(st.integers(0, len(bytes_) - 1))
    bytes_[position] = data.draw(st.integers(0, 255))
    assert read(iter([bytes(bytes_)])) == read(cut(bytes(bytes_), 1))
