"""The lexical rules never raise, whatever they are given."""

from hypothesis import given
from hypothesis import strategies as st

from drivers.spec_text import (
    MAX_SHOWN_CHARACTERS,
    argument_problem,
    canonical_path_problem,
    printable,
    script_problem,
)


@given(st.text())
def test_whatever_passes_is_one_harmless_argument(value: str) -> None:
    if not list(argument_problem("field", value)):
        assert value
        assert not value.startswith("-")
        assert value.splitlines() == [value]


@given(st.text(alphabet="/.ab\0\n"))
def test_whatever_passes_is_canonical(value: str) -> None:
    if not list(canonical_path_problem("field", value)):
        assert value.startswith("/")
        assert all(part not in ("", ".", "..") for part in value[1:].split("/"))


@given(st.text())
def test_messages_are_one_line_and_printable(value: str) -> None:
    shown = printable(value)
    assert shown.isprintable()
    assert len(shown) <= 10 * MAX_SHOWN_CHARACTERS + 10
    assert list(script_problem("field", value)) == [] or value != "true"


def test_printable_without_quotes() -> None:
    assert printable("a", quote=False) == "a"
    assert printable(7) == "`7`"
