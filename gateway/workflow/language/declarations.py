"""Declarations that are no nodes: variables, presets, attachments, prompts, schemas, cursors, MCP servers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from gateway.workflow.diagnostics import suggestion
from gateway.workflow.language.literals import Values
from gateway.workflow.language.properties import ATTACHMENT, MCP_SERVER, read_properties
from gateway.workflow.language.syntax import Entry, PromptSyntax, Scalar, TypedSyntax, ValueSyntax
from gateway.workflow.model import (
    Attachment,
    Cursor,
    CursorBand,
    JsonValue,
    McpServer,
    Preset,
    Prompt,
    Schema,
    SchemaField,
    SourcePos,
    ValueType,
    Variable,
)

_RANGE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:\.\.|-)\s*(\d+(?:\.\d+)?)\s*\Z")


def _identifier(values: Values, entry: Entry) -> str | None:
    return values.name("a name", Scalar(entry.key))


def _type(values: Values, what: str, value: ValueSyntax | None, position: SourcePos) -> ValueType | None:
    kind = value.type if isinstance(value, TypedSyntax) else value
    if not isinstance(kind, Scalar):
        values.wrong(value.position if value else position, what, "a type: " + ", ".join(ValueType))
        return None
    text = kind.text
    if text not in list(ValueType) or kind.token.type == "STRING":
        hint = suggestion(text, [kind.value for kind in ValueType])
        values.wrong(kind.position, what, "a type: " + ", ".join(ValueType), hint)
        return None
    return ValueType(text)


def _one_line(values: Values, what: str, entry: Entry) -> None:
    if entry.body is not None:
        values.wrong(entry.body[0].position, what, "one line", "nothing is indented below it")


def variables(values: Values, entry: Entry) -> dict[str, Variable]:
    """``vars:`` and its lines."""
    found: dict[str, Variable] = {}
    for line in values.lines("vars", entry):
        name = _identifier(values, line)
        kind = _type(values, f"variable {Scalar(line.key).text!r}", line.value, line.position)
        if name is None or kind is None:
            continue
        values.once(found, name, line.position)
        _one_line(values, f"variable {name!r}", line)
        default: JsonValue = None
        has_default = isinstance(line.value, TypedSyntax) and line.value.default is not None
        if isinstance(line.value, TypedSyntax):
            if line.value.enum:
                values.wrong(line.value.enum[0].position, f"variable {name!r}", "no enum", "enums belong to schemas")
            if line.value.default is not None:
                default = values.of_type(f"variable {name!r}", kind, line.value.default)
        found[name] = Variable(name=name, type=kind, has_default=has_default, default=default, position=line.position)
    return found


def presets(values: Values, entry: Entry) -> dict[str, tuple[Preset, Entry]]:
    """``presets:``; the values are read by `preset_values`, when the variables are known."""
    found: dict[str, tuple[Preset, Entry]] = {}
    for line in values.lines("presets", entry):
        name = _identifier(values, line)
        if name is not None:
            values.once(found, name, line.position)
            found[name] = Preset(name=name, values=MappingProxyType({}), position=line.position), line
    return found


def preset_values(values: Values, entry: Entry, known: Mapping[str, Variable]) -> Mapping[str, JsonValue]:
    """What a preset sets, each value of its variable's type."""
    found: dict[str, JsonValue] = {}
    for key, value in values.pairs(f"preset {Scalar(entry.key).text!r}", entry):
        name = Scalar(key).text
        values.once(found, name, key.position)
        variable = known.get(name)
        if variable is None:
            hint = suggestion(name, known)
            values.findings.add("C033", key.position, f"there is no variable {name!r}", hint)
        else:
            found[name] = values.of_type(f"variable {name!r}", variable.type, value)
    return MappingProxyType(found)


def attachments(values: Values, entry: Entry) -> dict[str, Attachment]:
    """``attachments:`` and its lines."""
    found: dict[str, Attachment] = {}
    for line in values.lines("attachments", entry):
        name = _identifier(values, line)
        what = f"attachment {Scalar(line.key).text!r}"
        kind = None
        if line.value is None:
            values.wrong(line.position, what, "one of file, image")
        else:
            kind = values.choice(what, line.value, ("file", "image"))
        read = read_properties(values, what, line.body or (), ATTACHMENT)
        if name is not None and kind is not None:
            values.once(found, name, line.position)
            found[name] = Attachment(name=name, kind=kind, position=line.position, **read.values)
    return found


def prompt(syntax: PromptSyntax) -> Prompt:
    """``prompt NAME:`` and its text."""
    body = syntax.body
    return Prompt(
        name=syntax.name.text,
        text=body.value,
        position=body.content or body.position,
        header=syntax.name.position,
    )


def schema(values: Values, name: str, entry: Entry) -> Schema:
    """``schema NAME:`` and its fields; a schema may be empty."""
    found: dict[str, SchemaField] = {}
    for line in values.lines(f"schema {name!r}", entry) if entry.body is not None else ():
        field = _identifier(values, line)
        what = f"field {Scalar(line.key).text!r}"
        kind = _type(values, what, line.value, line.position)
        if field is None or kind is None:
            continue
        values.once(found, field, line.position)
        _one_line(values, what, line)
        enum: tuple[str, ...] = ()
        if isinstance(line.value, TypedSyntax):
            enum = tuple(Scalar(token).text for token in line.value.enum)
            if line.value.default is not None:
                values.wrong(line.value.default.position, what, "no default", "defaults belong to variables")
            if enum and kind is not ValueType.STRING:
                values.wrong(line.value.enum[0].position, what, "the type string for an enum")
        found[field] = SchemaField(name=field, type=kind, enum=enum, position=line.position)
    return Schema(name=name, fields=tuple(found.values()), position=entry.position)


def cursor(values: Values, name: str, entry: Entry) -> Cursor:
    """``cursor NAME:`` with named values, or with bands of a number."""
    table = {
        "description": lambda values, what, line: values.text(what, line.value) if line.value else None,
        "values": lambda values, what, line: values.text_map(what, line),
        "bands": _bands,
    }
    read = read_properties(values, f"cursor {name!r}", entry.body or (), table)
    if "values" in read.positions and "bands" in read.positions:
        values.wrong(read.positions["bands"], f"cursor {name!r}", "either values or bands")
    return Cursor(
        name=name,
        description=read.values.get("description"),
        values=read.values.get("values", MappingProxyType({})),
        bands=read.values.get("bands", ()),
        position=entry.position,
    )


def _bands(values: Values, what: str, entry: Entry) -> tuple[CursorBand, ...]:
    found: list[CursorBand] = []
    for key, value in values.pairs(what, entry):
        match = _RANGE.match(Scalar(key).text)
        low, high = (float(match[1]), float(match[2])) if match else (1.0, 0.0)
        if not 0 <= low <= high <= 1:
            values.wrong(key.position, "a band", "a range in 0..1", 'write "0.0-0.5": "text"')
            continue
        text = values.text(what, value)
        if text is not None:
            found.append(CursorBand(low=low, high=high, text=text, position=key.position))
    return tuple(found)


def mcp_server(values: Values, name: str, entry: Entry) -> McpServer:
    """``mcp_server NAME:``."""
    read = read_properties(values, f"mcp_server {name!r}", entry.body or (), MCP_SERVER)
    return McpServer(name=name, position=entry.position, **read.values)
