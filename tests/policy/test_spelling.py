"""The repairs behind suggestions; that a suggestion is a pattern is checked in test_pattern."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.spelling import candidate


@pytest.mark.parametrize(
    ("text", "repaired"),
    [
        ("", ""),
        ("a.com", "a.com"),
        ("a.com:x-y", "a.com:x-y"),
        ("a.com:80-x", "a.com:80-x"),
        ("[::1]:080", "[::1]:80"),
        ("::1", "::1"),
        ("\\\\a", ""),
        ("..", ""),
        ("*.*.a", "**.a"),
        ("!! http://A/b", "a"),
        ("10.0.0.0/8:022", "10.0.0.0/8:22"),
        ("[2001:db8::/32]:*", "2001:db8::/32"),
    ],
)
def test_repairs(text: str, repaired: str) -> None:
    assert candidate(text) == repaired


@given(st.text(max_size=40))
def test_a_repair_never_fails(text: str) -> None:
    candidate(text)
