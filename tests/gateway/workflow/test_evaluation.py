"""The value of an expression: types, order, limits."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.workflow.evaluation import evaluate, evaluate_condition, kind_of, text_of
from gateway.workflow.expressions import LIMITS, ExpressionError, parse_expression
from tests.gateway.workflow.properties import JSON_VALUES

CONTEXT: dict[str, Any] = {
    "vars": {"n": 3, "name": "ada", "flag": True},
    "input": {"items": ["a", "b", "a"], "score": 0.5, "nothing": None, "object": {"x": 1}, "pair": (1, 2)},
    "outputs": {"node": {"ok": True, "list": [1, 1.0, True, "1"]}},
    "loop": {"again": {"iteration": 2}},
    "run": {"id": "r-1"},
}


def value_of(text: str) -> Any:
    return evaluate(parse_expression(text), CONTEXT)


def refused(text: str) -> tuple[str, int]:
    with pytest.raises(ExpressionError) as caught:
        value_of(text)
    return caught.value.message, caught.value.offset


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3 - 4 / 2", 5),
        ("(1 + 2) * 3", 9),
        ("7 / 2", 3.5),
        ("6 / 2", 3),
        ("1.5 + 1", 2.5),
        ("-vars.n", -3),
        ("--3", 3),
        ("1 - 2 - 3", -4),
        ("8 / 4 / 2", 1),
        ("'a' + 'b'", "ab"),
        ("!vars.flag", False),
        ("vars.n == 3.0", True),
        ("vars.n != 3", False),
        ("1 == true", False),
        ("'1' == 1", False),
        ("null == input.nothing", True),
        ("input.object == input.object", True),
        ("input.items == concat(input.items)", True),
        ("'a' < 'b'", True),
        ("2 <= 2", True),
        ("2 > 2", False),
        ("3 >= 2", True),
        ("true || false && false", True),
        ("true && vars.flag && false", False),
        ("false || false", False),
        ("loop.again.iteration < 3", True),
        ("run.id", "r-1"),
        ("run", {"id": "r-1"}),
        ("length('abc') + length(input.items) + length(input.object)", 7),
        ("concat('a', 1, true, null, input.object)", 'a1truenull{"x":1}'),
        ("concat(input.items, input.items)", ["a", "b", "a", "a", "b", "a"]),
        ("concat(input.pair)", [1, 2]),
        ("unique(input.items)", ["a", "b"]),
        ("unique(outputs.node.list)", [1, True, "1"]),
        ("unique(concat(input.items, input.items))", ["a", "b"]),
        ("contains('abc', 'bc')", True),
        ("contains(input.items, 'c')", False),
        ("contains(outputs.node.list, 1)", True),
        ("contains(input.object, 'x')", True),
        ("contains(input.object, 1)", False),
        ("join(input.items, ', ')", "a, b, a"),
        ("join(outputs.node.list, '')", "11.0true1"),
        ("if(vars.n > 2, 'big', 'small')", "big"),
        ("if(vars.n > 9, 'big', 'small')", "small"),
    ],
)
def test_values(text: str, value: object) -> None:
    found = value_of(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("text", ["false && 1 / 0 == 1", "if(false, 1 / 0, true)"])
def test_what_is_not_needed_is_not_evaluated(text: str) -> None:
    value_of(text)


def test_short_circuit_of_or() -> None:
    assert value_of("true || vars.missing") is True


@pytest.mark.parametrize(
    ("text", "message", "offset"),
    [
        ("vars.nmae", "vars has no 'nmae'", 0),
        ("1 + outputs.other.ok", "outputs has no 'other'", 4),
        ("vars.n.x", "vars.n is a number and has no field 'x'", 0),
        ("artifacts.x", "artifacts has no 'x'", 0),
        ("1 / 0", "division by zero", 2),
        ("1.5 / 0", "division by zero", 4),
        ("1 + 'a'", "'+' needs two numbers, not a number and a string; write concat(a, b)", 2),
        ("true - 1", "'-' needs two numbers, not a boolean and a number", 5),
        ("!1", "'!' needs true or false, this is a number", 1),
        ("-'a'", "'-' needs a number, this is a string", 1),
        ("vars.n && true", "'&&' needs true or false, this is a number", 0),
        ("false || input.items", "'||' needs true or false, this is a list", 9),
        ("1 < 'a'", "'<' compares two numbers or two strings, not a number and a string", 2),
        ("null >= null", "'>=' compares two numbers or two strings, not null and null", 5),
        ("if(1, 2, 3)", "'if' needs true or false, this is a number", 3),
        ("length(1)", "length() needs a string, a list or an object here, this is a number", 7),
        ("concat('a', input.items)", "concat() needs either only lists or no list here, this is a list", 12),
        ("unique('a')", "unique() needs a list here, this is a string", 7),
        ("contains('a', 1)", "contains() needs a string here, this is a number", 14),
        ("contains(1, 1)", "contains() needs a string, a list or an object here, this is a number", 9),
        ("join('a', 'b')", "join() needs a list here, this is a string", 5),
        ("join(input.items, 1)", "join() needs a string here, this is a number", 18),
        ("1e308 * 10", "the result is too large", 6),
        ("1e308 * 10 - 1e308", "the result is too large", 6),
        ("*".join(["1" + "0" * 900] * 3), "the result is too large", 1803 - 901),
        ("1" + "0" * 900 + " / 3", "the result is too large", 902),
    ],
)
def test_what_is_wrong_and_where(text: str, message: str, offset: int) -> None:
    found, where = refused(text)
    assert found == message
    if "00" not in text:
        assert where == offset


def test_results_are_bounded() -> None:
    context = {"vars": {"text": "x" * (LIMITS.max_value_items // 2), "list": [0] * (LIMITS.max_value_items // 2)}}
    for text in (
        "vars.text + vars.text + vars.text",
        "concat(vars.text, vars.text, 'a')",
        "concat(vars.list, vars.list, vars.list)",
        "join(vars.list, 'xxx')",
    ):
        with pytest.raises(ExpressionError, match="more than 1000000 elements or characters"):
            evaluate(parse_expression(text), context)


def test_values_that_are_nested_too_deep() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ExpressionError, match="nested too deep"):
        evaluate(parse_expression("vars.deep == vars.deep"), {"vars": {"deep": deep}})
    while deep:  # unwound by hand: the interpreter would do it recursively
        deep = deep[0]


def test_conditions_are_booleans() -> None:
    assert evaluate_condition(parse_expression("1 < 2"), {}) is True
    with pytest.raises(ExpressionError, match="must be true or false, this is a string"):
        evaluate_condition(parse_expression("'true'"), {})


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, "null"),
        (True, "a boolean"),
        (1, "a number"),
        (1.5, "a number"),
        ("", "a string"),
        ([], "a list"),
        ((), "a list"),
        ({}, "an object"),
        (object(), "a object"),
    ],
)
def test_kinds_in_words(value: object, kind: str) -> None:
    assert kind_of(value) == kind


def test_values_as_text() -> None:
    from types import MappingProxyType

    assert text_of("é") == "é"
    assert text_of({"é": [1, None]}) == '{"é":[1,null]}'
    assert text_of(MappingProxyType({"a": 1})) == '{"a":1}'
    assert text_of([object]) == f'["{object}"]'


@given(JSON_VALUES, JSON_VALUES)
def test_equality_is_that_of_json(left: Any, right: Any) -> None:
    context = {"vars": {"left": left, "right": right}}
    equal = evaluate(parse_expression("vars.left == vars.right"), context)
    assert equal == evaluate(parse_expression("vars.right == vars.left"), context)
    assert evaluate(parse_expression("vars.left != vars.right"), context) is not equal
    assert evaluate(parse_expression("vars.left == vars.left"), context) is True


@given(st.lists(JSON_VALUES, max_size=8))
def test_unique_keeps_the_first_of_each(items: list[Any]) -> None:
    unique = evaluate(parse_expression("unique(vars.items)"), {"vars": {"items": items}})
    for index, item in enumerate(unique):
        others = {"vars": {"others": unique[:index], "item": item}}
        assert evaluate(parse_expression("contains(vars.others, vars.item)"), others) is False
    for item in items:
        assert evaluate(parse_expression("contains(vars.u, vars.i)"), {"vars": {"u": unique, "i": item}}) is True
