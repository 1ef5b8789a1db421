"""Durations; the other values are tested by the declarations and properties that take them."""

import pytest

from gateway.workflow.language.literals import seconds_of


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30m", 1800.0),
        ("1h30m", 5400.0),
        ("90s", 90.0),
        ("500ms", 0.5),
        ("1.5h", 5400.0),
        ("", None),
        ("30", None),
        ("m", None),
        ("-1s", None),
        ("1d", None),
        ("1s" * 50, None),
    ],
)
def test_durations(text: str, seconds: float | None) -> None:
    assert seconds_of(text) == seconds
