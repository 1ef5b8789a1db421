"""Run identifiers are RFC 9562 UUIDs of version 7, in order, and never leave the runs directory."""

import re
import uuid
from collections.abc import Callable

import pytest

from gateway.errors import UsageError
from gateway.run_ids import RunIdSource, new_run_id, new_run_name, validate_run_id


def fixed_bits(values: dict[int, int]) -> Callable[[int], int]:
    """A source of random bits that answers by the number of bits asked for."""
    return lambda bits: values[bits]


def test_the_fields_are_where_the_rfc_puts_them() -> None:
    source = RunIdSource(now_ms=lambda: 0x017F22E279B0, random_bits=fixed_bits({41: 0, 32: 0xDEADBEEF}))
    value = uuid.UUID(source.new())
    assert value.int >> 80 == 0x017F22E279B0
    assert (value.version, value.variant) == (7, uuid.RFC_4122)
    assert value.int & 0xFFFFFFFF == 0xDEADBEEF


def test_identifiers_increase_while_the_clock_stands_still_or_goes_back() -> None:
    times = iter([5, 5, 3, 4, 6])
    source = RunIdSource(now_ms=lambda: next(times), random_bits=fixed_bits({41: (1 << 41) - 1, 32: 0}))
    made = [source.new() for _ in range(5)]
    assert made == sorted(set(made))
    assert [uuid.UUID(text).int >> 80 for text in made] == [5, 5, 5, 5, 6]


def test_a_full_counter_borrows_from_the_next_millisecond() -> None:
    source = RunIdSource(now_ms=lambda: 9, random_bits=fixed_bits({41: (1 << 42) - 1, 32: 0}))
    first, second = source.new(), source.new()
    assert second > first
    assert uuid.UUID(second).int >> 80 == 10


def test_many_identifiers_are_unique_ordered_and_valid() -> None:
    made = [new_run_id() for _ in range(5000)]
    assert made == sorted(set(made))
    assert all(uuid.UUID(text).version == 7 and validate_run_id(text) == text for text in made)


@pytest.mark.parametrize("text", ["a", "Run-1", "2026.11_x", "a" * 63])
def test_safe_identifiers_are_taken_as_they_are(text: str) -> None:
    assert validate_run_id(text) == text


@pytest.mark.parametrize(
    "text", ["", ".", "..", "../x", "a/b", "-rf", ".hidden", "a\n", "a\0", "é", "١", "a" * 64, "a b"]
)
def test_unsafe_identifiers_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="cannot name a directory"):
        validate_run_id(text)


def test_names_are_speakable_and_safe() -> None:
    assert new_run_name(lambda bits: 0) == "amber-acorn-0000"
    assert all(re.fullmatch(r"[a-z]+-[a-z]+-[0-9a-f]{4}", new_run_name()) for _ in range(200))
