"""Request heads: what real clients send is accepted, what two parsers could read in two ways is not."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.egress.http1 import (
    DEFAULT_LIMITS,
    Framing,
    FramingKind,
    Http1Limits,
    ProtocolError,
    RequestHead,
    RequestHeadReader,
)
from tests.gateway.egress.http1.properties import SMALL, check_request

FRAGMENTS = st.sampled_from(
    [
        b"GET ",
        b"CONNECT ",
        b"OPTIONS ",
        b"PRI * HTTP/2.0",
        b"http://a",
        b"http://a/b?c",
        b"a:443",
        b"[::1]:80",
        b" HTTP/1.1",
        b" HTTP/1.0",
        b"\r\n",
        b"\r\n\r\n",
        b"\n",
        b"\r",
        b" ",
        b"\t",
        b":",
        b"\0",
        b"Host: a",
        b"Host: b",
        b"Content-Length: 5",
        b"Transfer-Encoding: chunked",
        b"Connection: close, X-Foo, upgrade",
        b"Upgrade: websocket",
        b"TE: trailers",
        b"X-Foo: bar",
        b"\x16\x03\x01",
    ]
)
MESSAGES = st.one_of(st.binary(max_size=500), st.lists(FRAGMENTS, max_size=20).map(b"".join))
GET = b"GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n"


def parse(data: bytes, limits: Http1Limits = DEFAULT_LIMITS) -> RequestHead:
    kind, head, _ = check_request(data, (3, 1, 7, 20), limits)
    assert kind == "head", head
    assert isinstance(head, RequestHead)
    return head


def refusal(data: bytes, limits: Http1Limits = DEFAULT_LIMITS) -> tuple[int, str]:
    kind, error, _ = check_request(data, (3, 1, 7, 20), limits)
    assert kind == "error", error
    assert isinstance(error, tuple)
    return error


def get(*lines: bytes) -> bytes:
    return GET + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


# What real clients send


@pytest.mark.parametrize(
    ("data", "authority"),
    [
        (b"CONNECT pypi.org:443 HTTP/1.0\r\n\r\n", "pypi.org:443"),
        (b"CONNECT pypi.org:443 HTTP/1.1\r\n\r\n", "pypi.org:443"),
        (b"CONNECT pypi.org:443 HTTP/1.1\r\nHost: pypi.org\r\n\r\n", "pypi.org:443"),
        (b"CONNECT pypi.org:443 HTTP/1.1\r\nHost: PyPI.org.:443\r\n\r\n", "pypi.org:443"),
        (b"CONNECT [::1]:9443 HTTP/1.1\r\nHost: [::1]:9443\r\n\r\n", "[::1]:9443"),
        (b"CONNECT [::1]:9443 HTTP/1.1\r\nHost: [0:0::1]\r\n\r\n", "[::1]:9443"),
        (b"CONNECT x:80 HTTP/1.1\r\nhost: x:80\r\nProxy-Connection: keep-alive\r\n\r\n", "x:80"),
        (b"\r\nCONNECT x:80 HTTP/1.0\r\n\r\n", "x:80"),
        (b"GET http://a.example/ HTTP/1.0\r\n\r\n", "a.example:80"),
        (b"GET http://a.example:8080 HTTP/1.1\r\nHost: a.example:8080\r\n\r\n", "a.example:8080"),
        (b"GET HTTP://a.example?q HTTP/1.1\r\nHost: A.example:80\r\n\r\n", "a.example:80"),
        (b"GET http://[2001:db8::1]/ HTTP/1.1\r\nHost: [2001:DB8:0::1]\r\n\r\n", "[2001:db8::1]:80"),
        (b"M-SEARCH http://a/ HTTP/1.1\r\nHost:a\r\n\r\n", "a:80"),
    ],
)
def test_real_heads_are_accepted(data: bytes, authority: str) -> None:
    assert parse(data).authority_text == authority


@pytest.mark.parametrize(
    ("target", "forwarded"),
    [
        (b"http://a", b"/"),
        (b"http://a/", b"/"),
        (b"http://a/b/../c?d=http://e/", b"/b/../c?d=http://e/"),
        (b"http://a?d", b"/?d"),
        (b"http://a:80/|{}\"'^`\\", b"/|{}\"'^`\\"),
    ],
)
def test_the_forwarded_target_is_the_path_as_it_was_sent(target: bytes, forwarded: bytes) -> None:
    assert parse(b"GET " + target + b" HTTP/1.0\r\n\r\n").origin_target == forwarded


def test_options_without_a_path_is_for_the_server_as_a_whole() -> None:
    assert parse(b"OPTIONS http://a HTTP/1.0\r\n\r\n").origin_target == b"*"
    assert parse(b"OPTIONS http://a/ HTTP/1.0\r\n\r\n").origin_target == b"/"
    assert parse(b"OPTIONS http://a?b HTTP/1.0\r\n\r\n").origin_target == b"/?b"


def test_what_follows_the_head_is_left_over_and_the_next_reader_takes_it() -> None:
    reader = RequestHeadReader()
    first = reader.feed(b"GET http://a/ HTTP/1.0\r\n\r\nCONNECT b:1 HTTP/1.0\r\n\r\n\x16\x03")
    assert first is not None
    assert first.authority_text == "a:80"
    second_reader = RequestHeadReader()
    second = second_reader.feed(reader.leftover)
    assert second is not None
    assert second.is_connect
    assert second.authority_text == "b:1"
    assert second_reader.leftover == b"\x16\x03"


@pytest.mark.parametrize(("data", "started"), [(b"", False), (b"\r", False), (b"\r\n", False), (b"G", True)])
def test_an_empty_line_is_not_yet_a_request(data: bytes, started: bool) -> None:
    reader = RequestHeadReader()
    assert reader.feed(data) is None
    assert reader.started is started
    assert reader.leftover == b""


@pytest.mark.parametrize(
    ("lines", "framing"),
    [
        ((), Framing(FramingKind.NONE)),
        ((b"Content-Length: 0",), Framing(FramingKind.LENGTH, 0)),
        ((b"content-length:\t 005 ",), Framing(FramingKind.LENGTH, 5)),
        ((b"Content-Length: 999999999999999999",), Framing(FramingKind.LENGTH, 999999999999999999)),
        ((b"Transfer-Encoding: chunked",), Framing(FramingKind.CHUNKED)),
    ],
)
def test_framing(lines: tuple[bytes, ...], framing: Framing) -> None:
    assert parse(get(*lines)).framing == framing


@pytest.mark.parametrize(
    ("lines", "keep"),
    [
        ((), True),
        ((b"Connection: keep-alive",), True),
        ((b"Connection: X-Foo, Close",), False),
        ((b"Proxy-Connection: close",), False),
        ((b"Proxy-Connection: Keep-Alive",), True),
    ],
)
def test_keep_alive(lines: tuple[bytes, ...], keep: bool) -> None:
    assert parse(get(*lines)).keep_alive is keep


def test_an_http_1_0_client_is_never_kept() -> None:
    # RFC 9112 section 9.3: a proxy must not keep a connection with an HTTP/1.0 client
    assert not parse(b"GET http://a/ HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").keep_alive


def test_expectations() -> None:
    assert parse(get(b"Expect: 100-Continue", b"Content-Length: 1")).expect_continue
    assert not parse(get(b"Expect: 200-ok")).expect_continue
    assert not parse(b"GET http://a/ HTTP/1.0\r\nExpect: 100-continue\r\n\r\n").expect_continue


def test_trailers_are_accepted_only_by_name() -> None:
    assert parse(get(b"TE: gzip, Trailers")).accepts_trailers
    assert not parse(get(b"TE: gzip")).accepts_trailers
    assert not parse(get()).accepts_trailers


@pytest.mark.parametrize(
    ("lines", "upgrade"),
    [
        ((b"Connection: Upgrade", b"Upgrade: WebSocket"), b"websocket"),
        ((b"Connection: keep-alive, Upgrade", b"Upgrade: h2c, websocket"), b"websocket"),
        ((b"Upgrade: websocket",), None),
        ((b"Connection: Upgrade",), None),
        ((b"Connection: Upgrade", b"Upgrade: websocket", b"Content-Length: 1"), None),
    ],
)
def test_only_websocket_upgrades_are_passed_on(lines: tuple[bytes, ...], upgrade: bytes | None) -> None:
    assert parse(get(*lines)).upgrade == upgrade


def test_an_http_1_0_request_upgrades_nothing() -> None:
    data = b"GET http://a/ HTTP/1.0\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
    assert parse(data).upgrade is None


def test_credentials_count_once() -> None:
    assert parse(get()).proxy_authorization is None
    assert parse(get(b"Proxy-Authorization: Bearer x")).proxy_authorization == b"Bearer x"
    assert parse(get(b"Proxy-Authorization: Bearer x", b"proxy-authorization: Bearer y")).proxy_authorization is None


def test_the_repr_hides_paths_and_header_values() -> None:
    data = (
        b"GET http://a/?key=SECRET HTTP/1.1\r\nHost: a\r\nProxy-Authorization: Bearer SECRET\r\n"
        b"Authorization: SECRET\r\nCookie: SECRET\r\nX-Api-Key: SECRET\r\n\r\n"
    )
    shown = repr(parse(data))
    assert "SECRET" not in shown
    assert shown == "<RequestHead GET a:80 HTTP/1.1 [Host, Proxy-Authorization, Authorization, Cookie, X-Api-Key]>"


# Hostile input


@pytest.mark.parametrize(
    "target", [b"x:0", b"x:65536", b"x:99999", b"x:+443", b"x:4 43", b"x:443x", b"x:00443", b"x", b"x:", b":443"]
)
def test_H16_ports(target: bytes) -> None:
    assert refusal(b"CONNECT " + target + b" HTTP/1.1\r\n\r\n")[0] == 400
    if target != b"x":
        assert refusal(b"GET http://" + target + b"/ HTTP/1.0\r\n\r\n")[0] == 400


@pytest.mark.parametrize(
    "target", [b"u@x:443", b"http://x:443", b"x:443/", b"x:443?", b"x:443#", b"x\\y:443", b"/", b"*"]
)
def test_connect_takes_an_authority_only(target: bytes) -> None:
    assert refusal(b"CONNECT " + target + b" HTTP/1.1\r\n\r\n")[0] == 400


@pytest.mark.parametrize("target", [b"[evil.com]:443", b"127.1:443", b"::1:443", b"a%00b:443", b"[::1%eth0]:443"])
def test_what_is_no_host_is_left_to_the_policy_to_refuse(target: bytes) -> None:
    assert parse(b"CONNECT " + target + b" HTTP/1.1\r\n\r\n").authority_text == target.decode()


@pytest.mark.parametrize("line", [b"Content-Length: 0", b"Content-Length: 5", b"Transfer-Encoding: chunked"])
def test_connect_has_no_body(line: bytes) -> None:
    status, detail = refusal(b"CONNECT x:443 HTTP/1.1\r\n" + line + b"\r\n\r\n")
    assert status == 400
    assert "CONNECT has no body" in detail


@pytest.mark.parametrize("host", [b"evil", b"x:80", b"", b"x:443, x:443", b"u@x:443", b"\xff"])
def test_connect_with_another_host_is_refused(host: bytes) -> None:
    assert refusal(b"CONNECT x:443 HTTP/1.1\r\nHost: " + host + b"\r\n\r\n") == (
        400,
        "Host and the CONNECT target differ",
    )


H20 = {
    "CL and TE": get(b"Content-Length: 5", b"Transfer-Encoding: chunked"),
    "TE and CL": get(b"Transfer-Encoding: chunked", b"Content-Length: 5"),
    "two CLs": get(b"Content-Length: 5", b"Content-Length: 6"),
    "two equal CLs": get(b"Content-Length: 5", b"Content-Length: 5"),
    "a list of CLs": get(b"Content-Length: 5, 5"),
    "CL with plus": get(b"Content-Length: +5"),
    "CL with minus": get(b"Content-Length: -5"),
    "CL in hex": get(b"Content-Length: 0x5"),
    "CL empty": get(b"Content-Length:"),
    "CL of 19 digits": get(b"Content-Length: 1000000000000000000"),
    "CL with underscore": get(b"Content-Length: 1_0"),
    "CL in other digits": get("Content-Length: ٥".encode()),
    "two TEs": get(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"),
    "TE in HTTP/1.0": b"POST http://a/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
    "obs-fold": get(b"X-Foo: a", b" b"),
    "obs-fold with a tab": get(b"X-Foo: a", b"\tb: c"),
    "fold after the request line": b"GET http://a/ HTTP/1.1\r\n Host: a\r\n\r\n",
    "bare LF in a header": get(b"X-Foo: a\nX-Bar: b"),
    "bare LF after the request line": b"GET http://a/ HTTP/1.1\nHost: a\r\n\r\n",
    "bare LFs only": b"GET http://a/ HTTP/1.1\nHost: a\n\n",
    "bare CR": get(b"X-Foo: a\rX-Bar: b"),
    "CR CR LF": get(b"X-Foo: a\r"),
    "NUL": get(b"X-Foo: a\0b"),
    "vertical tab": get(b"Transfer-Encoding: \x0bchunked"),
    "DEL": get(b"X-Foo: \x7f"),
    "space before the colon": get(b"Content-Length : 5"),
    "tab before the colon": get(b"Content-Length\t: 5"),
    "name empty": get(b": 5"),
    "name with a space": get(b"Content Length: 5"),
    "name with obs-text": get(b"X-F\xf6\xf6: 5"),
    "no colon": get(b"X-Foo"),
    "lower-case method": b"get http://a/ HTTP/1.0\r\n\r\n",
    "mixed method": b"Get http://a/ HTTP/1.0\r\n\r\n",
    "method with a colon": b"G:T http://a/ HTTP/1.0\r\n\r\n",
    "no method": b" http://a/ HTTP/1.0\r\n\r\n",
    "space after the version": b"GET http://a/ HTTP/1.1 \r\nHost: a\r\n\r\n",
    "two spaces": b"GET  http://a/ HTTP/1.0\r\n\r\n",
    "tab between": b"GET\thttp://a/ HTTP/1.0\r\n\r\n",
    "no version": b"GET http://a/\r\n\r\n",
    "lower-case version": b"GET http://a/ http/1.1\r\nHost: a\r\n\r\n",
    "long version": b"GET http://a/ HTTP/1.10\r\nHost: a\r\n\r\n",
    "no Host": b"GET http://a/ HTTP/1.1\r\n\r\n",
    "two empty lines first": b"\r\n\r\nGET http://a/ HTTP/1.0\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00",
    "SOCKS": b"\x05\x01\x00",
}


@pytest.mark.parametrize("name", H20)
def test_H20_ambiguous_heads(name: str) -> None:
    assert refusal(H20[name])[0] == 400


@pytest.mark.parametrize(
    "value", [b"gzip", b"identity", b"chunked, identity", b"gzip, chunked", b"xchunked", b"Chunked", b""]
)
def test_H20_other_codings_are_not_implemented(value: bytes) -> None:
    assert refusal(get(b"Transfer-Encoding: " + value))[0] == 501


@pytest.mark.parametrize(
    "data",
    [
        b"GET http://ok/ HTTP/1.1\r\nHost: evil\r\n\r\n",
        b"GET http://ok/ HTTP/1.0\r\nHost: evil\r\n\r\n",
        b"GET http://ok/ HTTP/1.1\r\nHost: ok:81\r\n\r\n",
        b"GET http://ok:81/ HTTP/1.1\r\nHost: ok\r\n\r\n",
        b"GET http://ok/ HTTP/1.1\r\nHost:\r\n\r\n",
        b"GET http://ok/ HTTP/1.1\r\nHost: ok, evil\r\n\r\n",
        b"GET http://ok/ HTTP/1.1\r\nHost: ok@evil\r\n\r\n",
        b"GET http://ok/ HTTP/1.1\r\nHost: \xe9\r\n\r\n",
        b"GET http://ok/ HTTP/1.1\r\nHost: ok\r\nHost: evil\r\n\r\n",
        b"GET http://ok/ HTTP/1.1\r\nHost: ok\r\nhost: ok\r\n\r\n",
        b"CONNECT ok:443 HTTP/1.1\r\nHost: ok\r\nHost: ok\r\n\r\n",
    ],
)
def test_H21_host_and_target_disagree(data: bytes) -> None:
    assert refusal(data)[0] == 400


def test_H26_the_connection_header_is_read_into_options() -> None:
    head = parse(get(b"Connection: Proxy-Authorization, X-Foo ,,", b"Connection:close"))
    assert head.connection == {b"proxy-authorization", b"x-foo", b"close"}


@pytest.mark.parametrize(
    "data", [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET http://a/ HTTP/2.0\r\n\r\n", b"GET http://a/ HTTP/0.9\r\n\r\n"]
)
def test_H27_other_versions(data: bytes) -> None:
    status, detail = refusal(data)
    assert status == 505
    assert ("HTTP/2 is not spoken" in detail) == data.startswith(b"PRI")


def test_H27_the_http_2_preface_in_disguise() -> None:
    assert refusal(b"PRI * HTTP/1.1\r\n\r\nSM\r\n\r\n")[0] == 400
    assert refusal(b"PRI http://a/ HTTP/1.1\r\nHost: a\r\n\r\n")[0] == 400


def test_H27_h2c_is_not_passed_on() -> None:
    assert parse(get(b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: A")).upgrade is None


@pytest.mark.parametrize(
    ("target", "hint"),
    [
        (b"ftp://a/", "not an http:// URL"),
        (b"https://a/", "use CONNECT"),
        (b"WSS://a/", "use CONNECT"),
        (b"ws://a/", "not an http:// URL"),
        (b"file:///etc/passwd", "not an http:// URL"),
        (b"http:/a/", "not an http:// URL"),
        (b"a:443", "not an http:// URL"),
        (b"/", "this is a proxy"),
        (b"*", "this is a proxy"),
        (b"//a/", "this is a proxy"),
        (b"http://a/#b", "fragment"),
        (b"http://u@a/", "user name"),
        (b"http://u:p@a/", "user name"),
        (b"http:///b", "malformed"),
        (b"http://a:/b", "malformed"),
        (b"http://a\\b/", "malformed"),
        (b"http://[::1]x/", "malformed"),
        (b"http://a:b:80/", "malformed"),
        (b"http://a b/", "first line"),
        (b"http://a/\x01", "control character"),
        (b"http://a/\xe9", "first line"),
        (b"http://a/\x7f", "control character"),
    ],
)
def test_H28_targets(target: bytes, hint: str) -> None:
    status, detail = refusal(b"GET " + target + b" HTTP/1.0\r\n\r\n")
    assert status == 400
    assert hint in detail


def test_H28_a_head_of_1_MB() -> None:
    reader = RequestHeadReader()
    with pytest.raises(ProtocolError, match="longer than 65536") as caught:
        reader.feed(GET + b"X-Foo: " + b"a" * 1_000_000)
    assert caught.value.status == 431


def test_the_limits_are_exact() -> None:
    limits = Http1Limits(max_head_bytes=40, max_line_bytes=24, max_fields=2)
    start = b"CONNECT x:1 HTTP/1.0\r\n"
    parse(start + b"A: " + b"b" * 11 + b"\r\n\r\n", limits)
    assert refusal(start + b"A: " + b"b" * 12 + b"\r\n\r\n", limits)[0] == 431
    parse(start + b"A: b\r\nC: d\r\n\r\n", limits)
    assert refusal(start + b"A:\r\nB:\r\nC:\r\n\r\n", limits) == (431, "the head has more than 2 header lines")
    parse(b"CONNECT x:12345 HTTP/1.0\r\n\r\n", limits)
    assert refusal(b"CONNECT xy:12345 HTTP/1.0\r\n\r\n", limits) == (431, "a line of the head is longer than 24 bytes")


def test_trace_is_not_forwarded() -> None:
    assert refusal(b"TRACE http://a/ HTTP/1.0\r\n\r\n")[0] == 501


def test_options_for_the_proxy_itself_is_refused() -> None:
    assert refusal(b"OPTIONS http://a/ HTTP/1.0\r\nMax-Forwards: 0\r\n\r\n")[0] == 400


def test_the_error_says_what_it_is() -> None:
    assert str(ProtocolError(400, "no")) == "400: no"


@given(MESSAGES, st.lists(st.integers(1, 60), max_size=10))
@example(b"CONNECT x:443 HTTP/1.0\r\n\r\n\x16", [])
@example(b"GET http://a/ HTTP/1.1\r\nHost: a\r\nConnection: host, content-length\r\nContent-Length: 1\r\n\r\nx", [5])
@example(b"A" * 400 + b"\n", [])
@example(b"A" * 399 + b"\n", [])
@example(b"\r\n" + b"A" * 397 + b"\r\n\r\n", [])
@example(b"\rX", [])
def test_any_bytes(data: bytes, sizes: list[int]) -> None:
    check_request(data, sizes, SMALL)
