"""The proxy's own answers: complete, exact, and without a trace of the request's headers."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.egress.http1 import ProtocolError, RequestHeadReader, replies
from tests.gateway.egress.http1.properties import check_replies, parse_plainly


def parse(answer: bytes) -> tuple[bytes, dict[bytes, bytes], bytes]:
    head, _, body = answer.partition(b"\r\n\r\n")
    line, fields = parse_plainly(head + b"\r\n\r\n")
    assert len(dict(fields)) == len(fields)
    return line, dict(fields), body


EVERY = {
    b"400 Bad Request": replies.bad_request(ProtocolError(400, "no")),
    b"403 Forbidden": replies.blocked("a:1", "not_in_allowlist"),
    b"407 Proxy Authentication Required": replies.proxy_authentication_required(),
    b"408 Request Timeout": replies.request_timeout(),
    b"431 Request Header Fields Too Large": replies.bad_request(ProtocolError(431, "no")),
    b"501 Not Implemented": replies.bad_request(ProtocolError(501, "no")),
    b"502 Bad Gateway": replies.bad_gateway("no"),
    b"503 Service Unavailable": replies.unavailable("no", retry_after_s=3),
    b"504 Gateway Timeout": replies.gateway_timeout("no"),
    b"505 HTTP Version Not Supported": replies.bad_request(ProtocolError(505, "no")),
}


@pytest.mark.parametrize("status", EVERY)
def test_every_answer_is_complete_and_the_last(status: bytes) -> None:
    line, fields, body = parse(EVERY[status])
    assert line == b"HTTP/1.1 " + status
    assert fields[b"connection"] == b"close"
    assert fields[b"content-length"] == b"%d" % len(body)
    assert fields[b"content-type"] == b"text/plain; charset=utf-8"
    assert body.endswith(b"\n")


def test_a_blocked_host() -> None:
    _, fields, body = parse(replies.blocked("evil.site:443", "denied_by_rule"))
    assert body == b"blocked by sandbox network policy: evil.site:443 (denied_by_rule)\n"
    assert fields[b"x-iterion-reason"] == b"denied_by_rule"


def test_a_missing_token() -> None:
    _, fields, _ = parse(replies.proxy_authentication_required())
    assert fields[b"proxy-authenticate"] == b'Basic realm="iterion-sandbox"'


def test_a_busy_gateway_says_when_to_come_back() -> None:
    _, fields, body = parse(replies.unavailable("1024 connections are open", retry_after_s=3))
    assert fields[b"retry-after"] == b"3"
    assert body == b"the sandbox proxy is busy: 1024 connections are open\n"


def test_a_fault_of_the_upstream_is_not_called_the_clients() -> None:
    assert replies.bad_request(ProtocolError(502, "x")) == replies.bad_gateway("x")


def test_an_answer_to_HEAD_has_no_body() -> None:
    _, fields, body = parse(replies.blocked("a:1", "not_in_allowlist", head_only=True))
    assert body == b""
    assert int(fields[b"content-length"]) > 0


def test_the_answer_that_opens_a_tunnel() -> None:
    assert replies.CONNECTION_ESTABLISHED == b"HTTP/1.1 200 Connection established\r\n\r\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a.example:443", "a.example:443"),
        ("a\r\nX: y", "a\\r\\nX: y"),
        ("a\0\x1b[31m", "a\\x00\\x1b[31m"),
        ("\u202eevil\xe9", "\\u202eevil\\xe9"),
        ("\udcff\U0001f600", "\\udcff\\U0001f600"),
        ("a\\b", "a\\\\b"),
        ("a" * 301, "a" * 300 + "..."),
    ],
)
def test_only_printable_text_is_shown(text: str, shown: str) -> None:
    assert replies.printable(text) == shown


def test_H30_no_header_of_the_request_is_echoed() -> None:
    secrets = (
        b"Proxy-Authorization: Bearer SECRET\r\nAuthorization: Basic SECRET\r\nCookie: SECRET\r\n"
        b"X-SECRET: SECRET\r\nUser-Agent: SECRET\r\n"
    )
    faults = [
        b"GET http://a/?SECRET HTTP/1.1\r\nHost: SECRET\r\n" + secrets,
        b"GET http://a/SECRET HTTP/1.1\r\nHost: a\r\n" + secrets + b"SECRET : x\r\n",
        b"GET http://a/ HTTP/1.1\r\nHost: a\r\n" + secrets + b"SECRET\r\n",
        b"GET http://SECRET@a/ HTTP/1.1\r\nHost: a\r\n" + secrets,
        b"GET SECRET HTTP/1.1\r\nHost: a\r\n" + secrets,
        b"SECRET\r\n" + secrets,
        b"GET http://a/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: SECRET\r\n" + secrets,
        b"CONNECT SECRET:SECRET HTTP/1.1\r\n" + secrets,
        b"SECRET http://a/ HTTP/9.9\r\n" + secrets,
    ]
    for fault in faults:
        with pytest.raises(ProtocolError) as caught:
            RequestHeadReader().feed(fault + b"\r\n")
        assert b"SECRET" not in replies.bad_request(caught.value)


@given(st.one_of(st.text(max_size=400), st.text("\r\n\0 a\\", max_size=20)))
def test_any_host(text: str) -> None:
    check_replies(text)


def test_H65_the_answers_need_no_descriptor() -> None:
    program = (
        "import os\n"
        "from gateway.egress.http1 import replies\n"
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))\n"
        "os.write(1, replies.unavailable('no file descriptors are left', retry_after_s=1))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.stdout.startswith(b"HTTP/1.1 503 "), done.stderr.decode()
