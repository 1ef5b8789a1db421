"""Expressions: what parses, what does not and where, and that nothing else can happen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.workflow.expressions import (
    LIMITS,
    Call,
    Chain,
    ExpressionError,
    Literal,
    Path,
    Unary,
    parse_expression,
)
from tests.gateway.workflow.properties import check_expression


def refused(text: str) -> tuple[str, int]:
    with pytest.raises(ExpressionError) as caught:
        parse_expression(text)
    return caught.value.message, caught.value.offset


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("1.5", 1.5),
        ("2e3", 2000.0),
        ("true", True),
        ("false", False),
        ("null", None),
        ('"a b"', "a b"),
        ("'a b'", "a b"),
        (r"\"a b\"", "a b"),
        (r'"a\"b"', 'a"b'),
        (r"'a\'b\n\t\r\0\\'", "a'b\n\t\r\0\\"),
        (r"\"a\\b\"", "a\\b"),
        (r"\"a\nb\"", "a\nb"),
        ('""', ""),
    ],
)
def test_literals(text: str, value: object) -> None:
    root = parse_expression(text).root
    assert isinstance(root, Literal)
    assert root.value == value
    assert type(root.value) is type(value)


def test_a_path_and_its_place() -> None:
    expression = parse_expression(" outputs.node.field == vars.x")
    assert [str(path) for path in expression.paths] == ["outputs.node.field", "vars.x"]
    assert [path.offset for path in expression.paths] == [1, 23]


def test_precedence_is_that_of_the_table() -> None:
    root = parse_expression("1 + 2 * 3 == 7 && !false || true").root
    assert isinstance(root, Chain)
    assert [operator for operator, _ in root.operators] == ["||"]
    conjunction = root.operands[0]
    assert isinstance(conjunction, Chain)
    comparison, negation = conjunction.operands
    assert isinstance(comparison, Chain)
    assert isinstance(negation, Unary)
    total = comparison.operands[0]
    assert isinstance(total, Chain)
    assert [operator for operator, _ in total.operators] == ["+"]


def test_parentheses_win() -> None:
    root = parse_expression("(1 + 2) * 3").root
    assert isinstance(root, Chain)
    assert root.operators[0][0] == "*"


def test_names_of_functions_and_namespaces_are_field_names_too() -> None:
    path = parse_expression("input.if.length.not.and").root
    assert isinstance(path, Path)
    assert path.names == ("if", "length", "not", "and")


def test_calls() -> None:
    root = parse_expression("concat(1, (2), length('a'))").root
    assert isinstance(root, Call)
    assert len(root.arguments) == 3


@pytest.mark.parametrize(
    ("text", "message", "offset"),
    [
        ("", "expected a value, found the end", 0),
        ("1 +", "expected a value, found the end", 3),
        ("1 2", "expected an operator or the end, found '2'", 2),
        ("(1", "expected ')', found the end", 2),
        ("length(1", "expected ',' or ')', found the end", 8),
        ("length", "'length' is not one of vars, input, outputs, artifacts, loop, run", 0),
        ("length()", "write length(value)", 0),
        ("length(1, 2)", "write length(value)", 0),
        ("if(true, 1)", "write if(condition, then, otherwise)", 0),
        ("max(1)", "there is no function 'max'", 0),
        ("score > 1", "write 'input.score'", 0),
        ("input.", "expected a name after '.', found the end", 6),
        ("input.1", "expected a name after '.', found '1'", 6),
        ("1 < 2 < 3", "comparisons do not chain", 6),
        ("1 = 1", "'=' is not an operator; write '=='", 2),
        ("true & true", "write '&&'", 5),
        ("true | true", "write '||'", 5),
        ("true and true", "write '&&'", 5),
        ("not true", "expected a value, found 'not'; write '!'", 0),
        ("'abc", "this string has no end", 0),
        ('"abc', "this string has no end", 0),
        (r"\"abc", "this string has no end", 0),
        ("1 % 2", "'%' has no meaning", 2),
        ("1" * 2000, "this number is too large", 0),
        ("1e999", "this number is too large", 0),
        ("é", "has no meaning", 0),
    ],
)
def test_what_is_wrong_and_where(text: str, message: str, offset: int) -> None:
    found, where = refused(text)
    assert message in found
    assert where == offset


@pytest.mark.parametrize("opening", ["(", "!", "-", "length(", "concat(1, "])
def test_nesting_is_bounded(opening: str) -> None:
    parse_expression(opening * LIMITS.max_depth + "1" + ")" * (opening.count("(") * LIMITS.max_depth))
    message, _ = refused(opening * 1_000 + "1")
    assert message == f"nested more than {LIMITS.max_depth} deep"


def test_length_is_bounded() -> None:
    assert refused("1" + "+1" * LIMITS.max_text_chars) == (
        f"longer than {LIMITS.max_text_chars} characters",
        LIMITS.max_text_chars,
    )


def test_a_long_chain_is_flat() -> None:
    root = parse_expression("1" + "+1" * 8_000).root
    assert isinstance(root, Chain)
    assert len(root.operands) == 8_001


@given(st.text(st.characters(codec="utf-8") | st.sampled_from("()+-*/!<>=&|.,'\"\\ 1a"), max_size=60))
def test_any_text_parses_or_is_refused(text: str) -> None:
    check_expression(text)
