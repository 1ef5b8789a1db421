"""Values: from a piece of syntax to a string, a number, a list... or a finding that says what to write."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from gateway.workflow.diagnostics import Findings, suggestion
from gateway.workflow.language.lexer import Token
from gateway.workflow.language.syntax import (
    Entry,
    ListSyntax,
    ObjectSyntax,
    Scalar,
    ValueSyntax,
)
from gateway.workflow.model import JsonValue, ListItem, SourcePos, ValueType
from gateway.workflow.values import ValueProblem, parse_json

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h))+\Z")
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_CONSTANTS: dict[str, bool | None] = {"true": True, "false": False, "null": None}


def number_of(token: Token) -> int | float:
    """The value of a NUMBER token, which the lexer keeps short."""
    return float(token.text) if re.search(r"[.eE]", token.text) else int(token.text)


def seconds_of(text: str) -> float | None:
    """``1h30m``, ``90s``, ``500ms`` in seconds; None if it is not a duration."""
    if len(text) > 40 or not _DURATION.match(text):
        return None
    return sum(float(amount) * _SECONDS[unit] for amount, unit in _DURATION_PART.findall(text))


class Values:
    """Reads values and notes what is wrong with them; a value that cannot be read is None."""

    def __init__(self, findings: Findings) -> None:
        self.findings = findings

    def wrong(
        self, position: SourcePos, what: str, wanted: str, hint: str | Callable[[], str] = "", code: str = "E003"
    ) -> None:
        """Note that ``what`` needs another kind of value."""
        self.findings.add(code, position, f"{what} needs {wanted}", hint)

    # -- Scalars -----------------------------------------------------------------------------------

    def text(self, what: str, value: ValueSyntax) -> str | None:
        """A string or a bare word."""
        if isinstance(value, Scalar) and value.token.type in ("STRING", "WORD", "BARE"):
            return value.text
        self.wrong(value.position, what, "a string", 'write "..."')
        return None

    def loose(self, what: str, value: ValueSyntax) -> str | None:
        """A string, a bare word or a number, as text: what ends up in an environment or on a command line."""
        if isinstance(value, Scalar):
            return value.text
        self.wrong(value.position, what, "a string", 'write "..."')
        return None

    def name(self, what: str, value: ValueSyntax) -> str | None:
        """An identifier, bare or quoted."""
        text = self.text(what, value)
        if text is not None and not IDENTIFIER.match(text):
            self.wrong(value.position, what, "a name", "a name has letters, digits and _")
            return None
        return text

    def choice(self, what: str, value: ValueSyntax, options: Iterable[str], code: str = "E003") -> str | None:
        """One of the given words."""
        known = tuple(options)
        if isinstance(value, Scalar) and value.text in known:
            return known[known.index(value.text)]  # the member, where the words are those of an enumeration
        hint = suggestion(value.text, known) if isinstance(value, Scalar) else ""
        self.wrong(value.position, what, "one of " + ", ".join(known), hint, code)
        return None

    def boolean(self, what: str, value: ValueSyntax) -> bool | None:
        """``true`` or ``false``."""
        if isinstance(value, Scalar) and value.token.type == "WORD" and value.text in ("true", "false"):
            return value.text == "true"
        self.wrong(value.position, what, "true or false")
        return None

    def number(self, what: str, value: ValueSyntax) -> int | float | None:
        """A number."""
        if isinstance(value, Scalar) and value.token.type == "NUMBER":
            return number_of(value.token)
        self.wrong(value.position, what, "a number")
        return None

    def integer(self, what: str, value: ValueSyntax) -> int | None:
        """A whole number of at least 0."""
        number = number_of(value.token) if isinstance(value, Scalar) and value.token.type == "NUMBER" else None
        if isinstance(number, int) and number >= 0:
            return number
        self.wrong(value.position, what, "a whole number")
        return None

    # -- Lists -------------------------------------------------------------------------------------

    def items(self, what: str, value: ValueSyntax) -> tuple[ListItem, ...] | None:
        """A list of strings and bare words, each with its place."""
        if not isinstance(value, ListSyntax):
            self.wrong(value.position, what, "a list", 'write ["a", "b"]')
            return None
        found: list[ListItem] = []
        for item in value.items:
            text = self.text(f"an item of {what}", item)
            if text is not None and isinstance(item, Scalar):
                found.append(ListItem(text=text, position=item.content))
        return tuple(found)

    def texts(self, what: str, value: ValueSyntax) -> tuple[str, ...] | None:
        """A list of strings and bare words, as texts."""
        items = self.items(what, value)
        return None if items is None else tuple(item.text for item in items)

    # -- JSON --------------------------------------------------------------------------------------

    def json(self, what: str, value: ValueSyntax, *, words: bool = False) -> JsonValue:
        """A JSON literal; ``words`` lets a bare word stand for a string."""
        match value:
            case Scalar():
                return self._json_scalar(what, value, words)
            case ListSyntax():
                return [self.json(what, item, words=words) for item in value.items]
            case ObjectSyntax():
                return self._json_object(what, value, words)
            case _:
                self.wrong(value.position, what, "one value")
                return None

    def _json_scalar(self, what: str, value: Scalar, words: bool) -> JsonValue:
        token = value.token
        if token.type == "NUMBER":
            return number_of(token)
        if token.type == "STRING":
            return json_string(token)
        if token.text in _CONSTANTS:
            return _CONSTANTS[token.text]
        if words:
            return token.text
        self.wrong(token.position, what, "a JSON value", f'quote it: "{token.text}"')
        return None

    def _json_object(self, what: str, value: ObjectSyntax, words: bool) -> dict[str, JsonValue]:
        found: dict[str, JsonValue] = {}
        for key, item in value.pairs:
            name = json_string(key) if key.type == "STRING" else key.text
            self.once(found, name, key.position)
            found[name] = self.json(what, item, words=words)
        return found

    def once(self, found: Mapping[str, Any], name: str, position: SourcePos) -> None:
        """Note a name that is there already."""
        if name in found:
            self.findings.add("E004", position, f"{name!r} is declared twice", "keep one of the two")

    # -- Maps --------------------------------------------------------------------------------------

    def text_map(self, what: str, entry: Entry) -> Mapping[str, str] | None:
        """``NAME: value`` lines below, or ``{NAME: value}`` behind the colon."""
        found: dict[str, str] = {}
        for key, value in self.pairs(what, entry):
            name = Scalar(key).text
            self.once(found, name, key.position)
            text = self.loose(f"{what}.{name}", value)
            if text is not None:
                found[name] = text
        return MappingProxyType(found)

    def pairs(self, what: str, entry: Entry) -> list[tuple[Token, ValueSyntax]]:
        """The keys and values below an entry, or in the object behind its colon."""
        if isinstance(entry.value, ObjectSyntax) and entry.body is None:
            return list(entry.value.pairs)
        found: list[tuple[Token, ValueSyntax]] = []
        for line in self.lines(what, entry):
            if line.value is None or line.body is not None:
                self.wrong(line.position, f"{what}.{Scalar(line.key).text}", "a value behind the colon")
            else:
                found.append((line.key, line.value))
        return found

    def lines(self, what: str, entry: Entry) -> list[Entry]:
        """The ``key: ...`` lines below an entry that has nothing behind its colon."""
        if entry.value is not None:
            self.wrong(entry.value.position, what, "a block", "put its lines below, indented")
            return []
        if entry.body is None:
            self.wrong(entry.position, what, "at least one line, indented, below it")
            return []
        found: list[Entry] = []
        for line in entry.body:
            if isinstance(line, Entry) and line.name is None:
                found.append(line)
            else:
                self.findings.add(
                    "E002", line.position, f"{what} holds only 'name: value' lines", "is it indented too far?"
                )
        return found

    # -- Variables ---------------------------------------------------------------------------------

    def of_type(self, what: str, kind: ValueType, value: ValueSyntax) -> JsonValue:
        """A literal of the type of a variable."""
        match kind:
            case ValueType.STRING:
                if isinstance(value, Scalar) and value.token.type == "STRING":
                    return value.text
                self.wrong(value.position, what, "a string", 'write "..."')
                return None
            case ValueType.BOOL:
                return self.boolean(what, value)
            case ValueType.INT:
                number = self.number(what, value)
                if isinstance(number, float):
                    self.wrong(value.position, what, "a whole number")
                    return None
                return number
            case ValueType.FLOAT:
                return self.number(what, value)
            case ValueType.JSON:
                literal = self.json(what, value)
                return _quoted_json(value, literal)
            case _:
                literal = _quoted_json(value, self.json(what, value))
                if isinstance(literal, list) and all(isinstance(item, str) for item in literal):
                    return literal
                self.wrong(value.position, what, "a list of strings", 'write ["a", "b"]')
                return None


def json_string(token: Token) -> str:
    """A string inside a JSON literal has JSON's escapes, if it has any that are JSON."""
    if token.text.startswith('"'):
        with suppress(ValueError):
            value = str(json.loads(token.text))
            value.encode()  # half a surrogate pair is JSON, and no text
            return value
    return token.value


def _quoted_json(value: ValueSyntax, literal: JsonValue) -> JsonValue:
    """JSON may be quoted as a whole: `{"a": 1}` between backticks is that object."""
    if isinstance(value, Scalar) and isinstance(literal, str):
        with suppress(ValueProblem):
            return parse_json(literal)
    return literal
