"""Limits: every field is checked, and the error names it."""

import dataclasses
from typing import Any

import pytest

from gateway.egress.limits import Limits

FIELDS = [field.name for field in dataclasses.fields(Limits)]


def test_the_defaults_hold_ten_thousand_tunnels_for_an_hour_of_silence() -> None:
    limits = Limits()
    assert limits.max_connections >= 10_000
    assert limits.idle_timeout_s > 3_600
    assert limits.dial_timeout_s == 10
    assert limits.head_timeout_s == 10
    assert limits.total_timeout_s is None


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), "10", True])
def test_what_is_no_positive_number_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name}: "):
        Limits(**{name: value})


@pytest.mark.parametrize("name", [name for name in FIELDS if not name.endswith("_s")])
def test_counts_and_sizes_are_whole_numbers(name: str) -> None:
    values: dict[str, Any] = {name: 2000.5}
    with pytest.raises(ValueError, match=rf"^{name}: 2000\.5 is not a whole number"):
        Limits(**values)


@pytest.mark.parametrize(
    ("name", "value"), [("max_head_bytes", 1_023), ("max_client_hello_bytes", 1_023), ("relay_chunk_bytes", 2_047)]
)
def test_sizes_too_small_for_real_clients_are_refused(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"^{name}: {value} is "):
        Limits(**{name: value})


def test_a_total_timeout_may_be_set() -> None:
    assert Limits(total_timeout_s=5).total_timeout_s == 5
    with pytest.raises(ValueError, match=r"^total_timeout_s: "):
        Limits(total_timeout_s=-1)
