"""The types of the language, applied to values: variables from the command line, inputs and outputs of nodes."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from gateway.workflow.evaluation import kind_of
from gateway.workflow.model import JsonValue, Schema, ValueType

__all__ = ["ValueProblem", "parse_json", "parse_text", "schema_problems", "type_problem"]

_INTEGER = re.compile(r"[+-]?[0-9]{1,300}", re.ASCII)
_FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
_BOOLEANS = {"true": True, "false": False}
_MAX_SHOWN_CHARS = 60

_WANTED = {
    ValueType.STRING: "a string",
    ValueType.BOOL: "true or false",
    ValueType.INT: "a whole number",
    ValueType.FLOAT: "a number",
    ValueType.JSON: "a JSON value",
    ValueType.STRING_LIST: "a list of strings",
}


class ValueProblem(ValueError):
    """A value that does not fit its type; the message says what was wanted and what was found."""


def parse_json(text: str) -> JsonValue:
    """Parse strict JSON (RFC 8259).

    Raises:
        ValueProblem: it is something else (``NaN`` and ``Infinity`` included), or nested too deep.
    """
    try:
        value: JsonValue = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ValueProblem(f"this is not JSON: {error}") from None
    return value


def parse_text(type_: ValueType, text: str) -> JsonValue:
    """Return the value that a text means for a type, as on a command line.

    ``string[]`` is a JSON list of strings, or strings separated by commas.

    Raises:
        ValueProblem: it means none.
    """
    match type_:
        case ValueType.STRING:
            return text
        case ValueType.BOOL if text in _BOOLEANS:
            return _BOOLEANS[text]
        case ValueType.INT if _INTEGER.fullmatch(text):
            return int(text)
        case ValueType.FLOAT if _FLOAT.fullmatch(text) and float(text) not in (float("inf"), float("-inf")):
            return float(text)
        case ValueType.JSON:
            return parse_json(text)
        case ValueType.STRING_LIST if not text.lstrip().startswith("["):
            return [item.strip() for item in text.split(",")] if text else []
        case ValueType.STRING_LIST:
            value = parse_json(text)
            problem = type_problem(type_, value)
            if problem is not None:
                raise ValueProblem(problem)
            return value
        case _:
            raise ValueProblem(f"{_shown(text)} is not {_WANTED[type_]}")


def type_problem(type_: ValueType, value: object) -> str | None:
    """Return why a JSON value does not fit a type, or None if it does. A whole number is a float too."""
    match type_:
        case ValueType.STRING:
            fits = isinstance(value, str)
        case ValueType.BOOL:
            fits = isinstance(value, bool)
        case ValueType.INT:
            fits = isinstance(value, int) and not isinstance(value, bool)
        case ValueType.FLOAT:
            fits = isinstance(value, int | float) and not isinstance(value, bool)
        case ValueType.STRING_LIST:
            fits = isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)
        case _:  # json: any value
            fits = True
    return None if fits else f"wanted {_WANTED[type_]}, found {kind_of(value)}"


def schema_problems(schema: Schema, value: Mapping[str, Any], *, partial: bool = False) -> Iterator[str]:
    """Yield what is wrong with an object for a schema. Fields that the schema does not name are fine.

    Args:
        schema: what is wanted.
        value: the object.
        partial: whether fields may be missing.
    """
    for field in schema.fields:
        if field.name not in value:
            if not partial:
                yield f"{field.name!r} is missing"
            continue
        found = value[field.name]
        problem = type_problem(field.type, found)
        if problem is not None:
            yield f"{field.name!r}: {problem}"
        elif field.enum and found not in field.enum:
            yield f"{field.name!r} is {_shown(found)}; it may be {', '.join(map(repr, field.enum))}"


def _no_constant(text: str) -> object:
    raise ValueError(f"{text} has no place in JSON")


def _shown(value: object) -> str:
    text = str(value)
    return repr(text if len(text) <= _MAX_SHOWN_CHARS else text[:_MAX_SHOWN_CHARS] + "...")
