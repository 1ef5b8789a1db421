"""What a tool's standard output means."""

from gateway.workflow.model import JsonValue, Schema
from gateway.workflow.values import ValueProblem, parse_json, schema_problems

__all__ = ["read_output"]


def read_output(stdout: bytes, schema: Schema | None, *, truncated: bool = False) -> dict[str, JsonValue]:
    """Return the output of a tool node that ended well.

    Args:
        stdout: what it printed.
        schema: of its output. With one, the whole text, or else its last line that is a JSON object gives the fields;
            without, the one field ``output`` is the text, less the line breaks at its end.
        truncated: whether it printed more than was kept.

    Raises:
        ValueProblem: there is no such object, or it does not fit the schema.
    """
    text = stdout.decode("utf-8", errors="replace")
    if schema is None:
        return {"output": text.rstrip("\r\n")}
    if truncated:
        raise ValueProblem(f"it printed more than the {len(stdout)} bytes that are kept; print less, or write a file")
    found = _last_object(text)
    if found is None:
        raise ValueProblem(f"it printed no JSON object, and its output is declared as {schema.name!r}")
    problems = list(schema_problems(schema, found))
    if problems:
        raise ValueProblem(f"its output does not fit {schema.name!r}: {'; '.join(problems)}")
    return found


def _last_object(text: str) -> dict[str, JsonValue] | None:
    whole = _object(text)
    if whole is not None:
        return whole
    end = len(text)
    while end > 0:  # line by line from the end: the object is nearly always in the last
        start = text.rfind("\n", 0, end) + 1
        found = _object(text[start:end])
        if found is not None:
            return found
        end = start - 1
    return None


def _object(text: str) -> dict[str, JsonValue] | None:
    stripped = text.strip()
    if not (stripped.startswith("{") and stripped.endswith("}")):
        return None
    try:
        value = parse_json(stripped)
    except ValueProblem:
        return None
    return value if isinstance(value, dict) else None
