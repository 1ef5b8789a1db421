"""Proxy authentication: the token as Bearer or as the password of Basic, and nothing else."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.egress.http1 import token_matches
from tests.gateway.egress.http1.properties import check_credentials

TOKEN = b"0123456789abcdef" * 4


def basic(text: bytes) -> bytes:
    return b"Basic " + base64.b64encode(text)


@pytest.mark.parametrize(
    "credentials",
    [
        b"Bearer " + TOKEN,
        b"bearer  " + TOKEN,
        basic(b"t:" + TOKEN),
        basic(b":" + TOKEN),
        basic(b"anyone:" + TOKEN).replace(b"Basic", b"BASIC"),
        basic("ü".encode("latin-1") + b":" + TOKEN),
    ],
)
def test_the_token_is_accepted(credentials: bytes) -> None:
    assert token_matches(credentials, TOKEN)


@pytest.mark.parametrize(
    "credentials",
    [
        None,
        b"",
        b"Bearer",
        b"Bearer ",
        TOKEN,
        b"Bearer " + TOKEN + b"0",
        b"Bearer " + TOKEN[:-1],
        b"Bearer " + TOKEN.upper(),
        b"Bearer \xff\xfe",
        b"Digest " + TOKEN,
        b"Basic " + TOKEN,
        b"Basic ",
        b"Basic \xff",
        b"Basic dDp",
        basic(TOKEN),
        basic(TOKEN + b":"),
        basic(b"t:" + TOKEN + b":"),
        basic(b"a:b:" + TOKEN),
        basic(b"t:" + TOKEN) + b" x",
    ],
)
def test_anything_else_is_refused(credentials: bytes | None) -> None:
    assert not token_matches(credentials, TOKEN)


@given(st.one_of(st.binary(max_size=100), st.binary(max_size=60).map(basic)))
def test_any_bytes(value: bytes) -> None:
    check_credentials(value)
