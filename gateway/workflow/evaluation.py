"""Expressions: from a tree and the values of a run to a JSON value.

Total: whatever the values, the outcome is a value or an `ExpressionError` at the character that caused it.
Types are strict (no truthiness, no conversion), so that a misspelt field or a forgotten comparison is an
error and never an edge quietly taken.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from gateway.workflow.expressions import (
    COMPARISONS,
    LIMITS,
    Call,
    Chain,
    Expression,
    ExpressionError,
    Literal,
    Path,
    Term,
    Unary,
)

# -- Values ----------------------------------------------------------------------------------------


def kind_of(value: object) -> str:
    """What a value is, in the words of the error messages."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list() | tuple():
            return "a list"
        case Mapping():
            return "an object"
        case _:
            return f"a {type(value).__name__}"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def text_of(value: object) -> str:
    """A value as text: a string as it is, everything else as compact JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)


def _key(value: object) -> object:
    """A hashable stand-in: equal values have equal keys; 1 and 1.0 are equal, 1 and true are not."""
    match value:
        case bool():
            return (bool, value)
        case Mapping():
            return frozenset((name, _key(item)) for name, item in value.items())
        case list() | tuple():
            return (list, *map(_key, value))
        case _:
            return value


def _equal(left: object, right: object) -> bool:
    return _key(left) == _key(right)


# -- Evaluation ------------------------------------------------------------------------------------


def evaluate(expression: Expression, context: Mapping[str, Any]) -> Any:
    """The value of ``expression``; ``context`` holds one object per namespace (absent means empty).

    Raises `ExpressionError` for a missing value, a wrong type, division by zero, or a result beyond `LIMITS`.
    """
    try:
        return _evaluate(expression.root, context)
    except RecursionError:
        raise ExpressionError("a value is nested too deep", 0) from None


def evaluate_condition(expression: Expression, context: Mapping[str, Any]) -> bool:
    """The truth of ``expression``, which must be a boolean.

    Raises `ExpressionError` as `evaluate` does, and for a result of another type.
    """
    value = evaluate(expression, context)
    if not isinstance(value, bool):
        raise ExpressionError(f"a condition must be true or false, this is {kind_of(value)}", 0)
    return value


def _evaluate(term: Term, context: Mapping[str, Any]) -> Any:
    match term:
        case Literal():
            return term.value
        case Path():
            return _lookup(term, context)
        case Unary():
            return _unary(term, context)
        case Call():
            return _FUNCTIONS[term.name](term, context)
        case _:
            return _chain(term, context)


def _chain(term: Chain, context: Mapping[str, Any]) -> Any:
    operator = term.operators[0][0]
    if operator in ("&&", "||"):
        return _logical(term, context)
    if operator in COMPARISONS:
        return _compare(term, context)
    return _arithmetic(term, context)


def _lookup(path: Path, context: Mapping[str, Any]) -> Any:
    value: Any = context.get(path.namespace, {})
    seen = path.namespace
    for name in path.names:
        if not isinstance(value, Mapping):
            raise ExpressionError(f"{seen} is {kind_of(value)} and has no field {name!r}", path.offset)
        if name not in value:
            raise ExpressionError(f"{seen} has no {name!r}", path.offset)
        value = value[name]
        seen += "." + name
    return value


def _boolean(term: Term, context: Mapping[str, Any], operator: str) -> bool:
    value = _evaluate(term, context)
    if not isinstance(value, bool):
        raise ExpressionError(f"{operator!r} needs true or false, this is {kind_of(value)}", term.offset)
    return value


def _numeric(term: Term, context: Mapping[str, Any], operator: str) -> int | float:
    value = _evaluate(term, context)
    if not _is_number(value):
        raise ExpressionError(f"{operator!r} needs a number, this is {kind_of(value)}", term.offset)
    number: int | float = value
    return number


def _unary(term: Unary, context: Mapping[str, Any]) -> bool | int | float:
    if term.operator == "!":
        return not _boolean(term.operand, context, "!")
    return -_numeric(term.operand, context, "-")


def _logical(term: Chain, context: Mapping[str, Any]) -> bool:
    operator = term.operators[0][0]
    decisive = operator == "||"
    for operand in term.operands:
        if _boolean(operand, context, operator) is decisive:
            return decisive
    return not decisive


def _compare(term: Chain, context: Mapping[str, Any]) -> bool:
    operator, offset = term.operators[0]
    left = _evaluate(term.operands[0], context)
    right = _evaluate(term.operands[1], context)
    if operator == "==":
        return _equal(left, right)
    if operator == "!=":
        return not _equal(left, right)
    comparable = (_is_number(left) and _is_number(right)) or (isinstance(left, str) and isinstance(right, str))
    if not comparable:
        raise ExpressionError(
            f"{operator!r} compares two numbers or two strings, not {kind_of(left)} and {kind_of(right)}",
            offset,
        )
    return _ORDER[operator](left, right)


_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}


def _arithmetic(term: Chain, context: Mapping[str, Any]) -> Any:
    value = _evaluate(term.operands[0], context)
    for (operator, offset), operand in zip(term.operators, term.operands[1:], strict=True):
        right = _evaluate(operand, context)
        if operator == "+" and isinstance(value, str) and isinstance(right, str):
            value = value + right
            _check_size(len(value), offset)
            continue
        if not (_is_number(value) and _is_number(right)):
            both = f"{kind_of(value)} and {kind_of(right)}"
            hint = "; write concat(a, b)" if operator == "+" else ""
            raise ExpressionError(f"{operator!r} needs two numbers, not {both}{hint}", offset)
        value = _calculate(operator, value, right, offset)
    return value


def _calculate(operator: str, left: Any, right: Any, offset: int) -> int | float:
    result: int | float
    try:
        if operator == "+":
            result = left + right
        elif operator == "-":
            result = left - right
        elif operator == "*":
            result = left * right
        elif isinstance(left, int) and isinstance(right, int) and left % right == 0:
            result = left // right  # 6 / 2 is 3, not 3.0: counters stay integers
        else:
            result = left / right
    except ZeroDivisionError:
        raise ExpressionError("division by zero", offset) from None
    except OverflowError:
        raise ExpressionError("the result is too large", offset) from None
    too_large = result.bit_length() > LIMITS.max_integer_bits if isinstance(result, int) else not math.isfinite(result)
    if too_large:
        raise ExpressionError("the result is too large", offset)
    return result


def _check_size(items: int, offset: int) -> None:
    if items > LIMITS.max_value_items:
        raise ExpressionError(f"the result has more than {LIMITS.max_value_items} elements or characters", offset)


# -- Functions -------------------------------------------------------------------------------------


_Apply: TypeAlias = Callable[[Call, Mapping[str, Any]], Any]


def _strict(body: Callable[[Call, Sequence[Any]], Any]) -> _Apply:
    """A function whose arguments are all evaluated, left to right, before it runs."""

    def apply(call: Call, context: Mapping[str, Any]) -> Any:
        return body(call, [_evaluate(argument, context) for argument in call.arguments])

    return apply


def _wrong(call: Call, index: int, wanted: str, value: object) -> ExpressionError:
    message = f"{call.name}() needs {wanted} here, this is {kind_of(value)}"
    return ExpressionError(message, call.arguments[index].offset)


def _length(call: Call, values: Sequence[Any]) -> int:
    (value,) = values
    if not isinstance(value, str | list | tuple | Mapping):
        raise _wrong(call, 0, "a string, a list or an object", value)
    return len(value)


def _concat(call: Call, values: Sequence[Any]) -> Any:
    """Lists give a list, everything else is joined as text."""
    if not all(isinstance(value, list | tuple) for value in values):
        for index, value in enumerate(values):
            if isinstance(value, list | tuple):
                raise _wrong(call, index, "either only lists or no list", value)
        texts = [text_of(value) for value in values]
        _check_size(sum(map(len, texts)), call.offset)
        return "".join(texts)
    _check_size(sum(map(len, values)), call.offset)
    return [item for value in values for item in value]


def _unique(call: Call, values: Sequence[Any]) -> list[Any]:
    (value,) = values
    if not isinstance(value, list | tuple):
        raise _wrong(call, 0, "a list", value)
    first: dict[object, Any] = {}
    for item in value:
        first.setdefault(_key(item), item)
    return list(first.values())


def _contains(call: Call, values: Sequence[Any]) -> bool:
    whole, part = values
    if isinstance(whole, str):
        if not isinstance(part, str):
            raise _wrong(call, 1, "a string", part)
        return part in whole
    if isinstance(whole, Mapping):
        return isinstance(part, str) and part in whole
    if isinstance(whole, list | tuple):
        return any(_equal(item, part) for item in whole)
    raise _wrong(call, 0, "a string, a list or an object", whole)


def _join(call: Call, values: Sequence[Any]) -> str:
    items, separator = values
    if not isinstance(items, list | tuple):
        raise _wrong(call, 0, "a list", items)
    if not isinstance(separator, str):
        raise _wrong(call, 1, "a string", separator)
    texts = [text_of(item) for item in items]
    _check_size(sum(map(len, texts)) + len(separator) * len(texts), call.offset)
    return separator.join(texts)


def _if(call: Call, context: Mapping[str, Any]) -> Any:
    condition, then, otherwise = call.arguments
    return _evaluate(then if _boolean(condition, context, "if") else otherwise, context)


_FUNCTIONS: dict[str, _Apply] = {
    "length": _strict(_length),
    "concat": _strict(_concat),
    "unique": _strict(_unique),
    "contains": _strict(_contains),
    "join": _strict(_join),
    "if": _if,
}
