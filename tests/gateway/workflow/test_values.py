"""Texts and JSON values against the types of the language."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.workflow.model import JsonValue, Schema, SchemaField, SourcePos, ValueType
from gateway.workflow.values import ValueProblem, parse_json, parse_text, schema_problems, type_problem

HERE = SourcePos(file="flow.bot", line=1, column=1)


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        ("string", "", ""),
        ("string", "a=b, {{x}}", "a=b, {{x}}"),
        ("bool", "true", True),
        ("bool", "false", False),
        ("int", "-12", -12),
        ("int", "+7", 7),
        ("float", "1.5e3", 1500.0),
        ("float", ".5", 0.5),
        ("float", "2", 2.0),
        ("json", '{"a": [1, null]}', {"a": [1, None]}),
        ("string[]", "", []),
        ("string[]", "a, b,c d", ["a", "b", "c d"]),
        ("string[]", '["a,b", "c"]', ["a,b", "c"]),
    ],
)
def test_texts_that_fit(type_: str, text: str, value: JsonValue) -> None:
    assert parse_text(ValueType(type_), text) == value


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        ("bool", "yes"),
        ("bool", "True"),
        ("bool", ""),
        ("int", "1.0"),
        ("int", "1_000"),
        ("int", "٣"),
        ("int", " 1"),
        ("int", "9" * 5000),
        ("float", "nan"),
        ("float", "inf"),
        ("float", "1e999"),
        ("float", "0x1"),
        ("float", "."),
        ("json", "{'a': 1}"),
        ("json", "NaN"),
        ("json", "[" * 100_000),
        ("json", ""),
        ("string[]", "[1]"),
        ("string[]", "[a]"),
    ],
)
def test_texts_that_do_not_fit(type_: str, text: str) -> None:
    with pytest.raises(ValueProblem) as caught:
        parse_text(ValueType(type_), text)
    assert len(str(caught.value)) < 300


@given(st.sampled_from(ValueType), st.text())
def test_parsing_is_total_and_what_it_gives_fits_the_type(type_: ValueType, text: str) -> None:
    try:
        value = parse_text(type_, text)
    except ValueProblem:
        return
    assert type_problem(type_, value) is None


def test_infinity_has_no_place_in_json() -> None:
    with pytest.raises(ValueProblem, match="Infinity has no place"):
        parse_json('{"a": -Infinity}')


SCHEMA = Schema(
    name="verdict",
    position=HERE,
    fields=(
        SchemaField(name="ok", type=ValueType.BOOL, position=HERE),
        SchemaField(name="n", type=ValueType.INT, position=HERE),
        SchemaField(name="x", type=ValueType.FLOAT, position=HERE),
        SchemaField(name="any", type=ValueType.JSON, position=HERE),
        SchemaField(name="tags", type=ValueType.STRING_LIST, position=HERE),
        SchemaField(name="kind", type=ValueType.STRING, enum=("a", "b"), position=HERE),
    ),
)
GOOD: dict[str, Any] = {"ok": True, "n": 1, "x": 1, "any": None, "tags": ["t"], "kind": "a", "more": 1}


def test_an_object_that_fits_may_have_further_fields() -> None:
    assert list(schema_problems(SCHEMA, GOOD)) == []


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("ok", 1, "'ok': wanted true or false, found a number"),
        ("ok", "true", "'ok': wanted true or false, found a string"),
        ("n", True, "'n': wanted a whole number, found a boolean"),
        ("n", 1.0, "'n': wanted a whole number, found a number"),
        ("x", False, "'x': wanted a number, found a boolean"),
        ("tags", "t", "'tags': wanted a list of strings, found a string"),
        ("tags", [1], "'tags': wanted a list of strings, found a list"),
        ("kind", None, "'kind': wanted a string, found null"),
        ("kind", "c" * 99, f"'kind' is '{'c' * 60}...'; it may be 'a', 'b'"),
    ],
)
def test_an_object_that_does_not_fit(field: str, value: object, problem: str) -> None:
    assert list(schema_problems(SCHEMA, {**GOOD, field: value})) == [problem]


def test_missing_fields_count_unless_the_object_may_be_partial() -> None:
    assert len(list(schema_problems(SCHEMA, {}))) == 6
    assert list(schema_problems(SCHEMA, {}, partial=True)) == []
    assert len(list(schema_problems(SCHEMA, {"n": "x"}, partial=True))) == 1
