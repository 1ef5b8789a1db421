"""Which property may stand in which block, and what kind of value it takes: the tables of the language."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

from gateway.workflow.diagnostics import suggestion
from gateway.workflow.language.literals import Values, seconds_of
from gateway.workflow.language.syntax import EdgeSyntax, Entry, Scalar, Statement, ValueSyntax
from gateway.workflow.model import (
    AwaitMode,
    Budget,
    Compaction,
    JsonValue,
    McpAuth,
    McpBlock,
    Memory,
    RouterMode,
    SourcePos,
)

Kind: TypeAlias = Callable[[Values, str, Entry], Any]
"""Reads the value of one property: the reader, the property's name for messages, the line."""
Table: TypeAlias = Mapping[str, Kind]


@dataclass(frozen=True, slots=True)
class Properties:
    """The properties that a block was given and that could be read, and where each value begins."""

    values: dict[str, Any]
    positions: Mapping[str, SourcePos]


def behind_colon(read: Callable[[Values, str, ValueSyntax], Any]) -> Kind:
    """A property whose value stands on its line."""

    def kind(values: Values, what: str, entry: Entry) -> Any:
        if entry.body is not None:
            values.wrong(entry.body[0].position, what, "one value", "nothing is indented below it")
            return None
        if entry.value is None:
            values.wrong(entry.position, what, "a value behind the colon")
            return None
        return read(values, what, entry.value)

    return kind


def choice(*options: str, code: str = "E003") -> Kind:
    """One of some words."""
    return behind_colon(lambda values, what, value: values.choice(what, value, options, code))


def read_properties(values: Values, owner: str, lines: tuple[Statement, ...], table: Table) -> Properties:
    """The properties among ``lines``, each by its kind in ``table``; anything else becomes a finding."""
    found: dict[str, Any] = {}
    positions: dict[str, SourcePos] = {}
    for line in lines:
        match line:
            case EdgeSyntax():
                values.findings.add("E002", line.position, f"an edge in {owner}", "edges stand in the workflow")
            case Entry(name=None):
                key = Scalar(line.key).text
                kind = table.get(key)
                if kind is None:
                    message = f"{owner} has no property {key!r}"
                    hint = suggestion(key, table, "it has " + ", ".join(table))
                    values.findings.add("E002", line.position, message, hint)
                    continue
                values.once(positions, key, line.position)
                value = kind(values, key, line)
                if value is not None:
                    found[key] = value
                positions[key] = line.value.content if isinstance(line.value, Scalar) else line.position
            case _:
                values.findings.add("E002", line.position, f"a declaration in {owner}", "declarations are not indented")
    return Properties(found, MappingProxyType(positions))


def block(owner: str, make: Callable[..., Any], table: Table) -> Kind:
    """A property whose value is a block of properties of its own."""

    def kind(values: Values, what: str, entry: Entry) -> Any:
        lines = values.lines(what, entry)
        read = read_properties(values, owner, tuple(lines), table)
        return make(**read.values, position=entry.position)

    return kind


def free_block(values: Values, what: str, entry: Entry) -> JsonValue:
    """A block or a JSON literal whose content is read elsewhere."""
    if entry.value is not None and entry.body is None:
        return values.json(what, entry.value, words=True)
    found: dict[str, JsonValue] = {}
    for line in values.lines(what, entry):
        key = Scalar(line.key).text
        values.once(found, key, line.position)
        found[key] = free_block(values, key, line)
    return found


def _interaction_or(values: Values, what: str, value: ValueSyntax) -> str | None:
    """An effort, or a text that a variable of the environment completes."""
    if isinstance(value, Scalar) and value.token.type == "STRING" and "${" in value.text:
        return value.text
    return values.choice(what, value, ("low", "medium", "high", "xhigh", "max"))


def _flag_or_list(values: Values, what: str, value: ValueSyntax) -> bool | tuple[str, ...] | None:
    if isinstance(value, Scalar):
        return values.boolean(what, value)
    return values.texts(what, value)


def _cursor_settings(values: Values, what: str, entry: Entry) -> Mapping[str, JsonValue]:
    found: dict[str, JsonValue] = {}
    for key, value in values.pairs(what, entry):
        name = Scalar(key).text
        values.once(found, name, key.position)
        found[name] = values.json(f"{what}.{name}", value, words=True)
    return MappingProxyType(found)


def _budget(**properties: Any) -> Budget:
    duration = properties.get("max_duration")
    if duration is None:
        return Budget(**properties)
    text, seconds = duration
    return Budget(**{**properties, "max_duration": text}, max_duration_s=seconds)


def _duration(values: Values, what: str, value: ValueSyntax) -> tuple[str, float] | None:
    text = values.text(what, value)
    seconds = None if text is None else seconds_of(text)
    if text is None or seconds is None:
        values.wrong(value.position, what, "a duration", 'write "90s", "30m" or "1h30m"')
        return None
    return text, seconds


text = behind_colon(Values.text)
loose = behind_colon(Values.loose)
name = behind_colon(Values.name)
boolean = behind_colon(Values.boolean)
number = behind_colon(Values.number)
integer = behind_colon(Values.integer)
texts = behind_colon(Values.texts)
items = behind_colon(Values.items)
interaction = choice("none", "human", "llm", "llm_or_human")
effort = behind_colon(_interaction_or)

MCP = block("mcp", McpBlock, {"autoload_project": boolean, "inherit": boolean, "servers": texts, "disable": texts})
COMPACTION = block("compaction", Compaction, {"threshold": number, "preserve_recent": integer})
MEMORY = block(
    "memory",
    Memory,
    {
        "enabled": boolean,
        "scope": text,
        "autoload": behind_colon(_flag_or_list),
        "read": behind_colon(_flag_or_list),
        "write": behind_colon(_flag_or_list),
        "pre_compact_inject": boolean,
    },
)
BUDGET = block(
    "budget",
    _budget,
    {
        "max_parallel_branches": integer,
        "max_duration": behind_colon(_duration),
        "max_cost_usd": number,
        "max_tokens": integer,
        "max_iterations": integer,
    },
)
MCP_AUTH = block(
    "auth",
    McpAuth,
    {
        "type": text,
        "auth_url": text,
        "token_url": text,
        "revoke_url": text,
        "client_id": text,
        "scopes": texts,
    },
)

MCP_SERVER: Table = {
    "transport": choice("stdio", "http", "sse"),
    "command": text,
    "args": texts,
    "url": text,
    "auth": MCP_AUTH,
}
ATTACHMENT: Table = {"description": text, "accept_mime": texts, "required": boolean}

_WAIT = choice(*AwaitMode)
_DATA: Table = {"input": name, "output": name, "await": _WAIT}


def node_tables(sandbox: Kind) -> Mapping[str, Table]:
    """The properties of every kind of node, ``sandbox`` being the kind of their sandbox block."""
    llm: Table = {
        **_DATA,
        "model": text,
        "backend": text,
        "provider": text,
        "publish": name,
        "system": name,
        "user": name,
        "session": choice("fresh", "inherit", "inherit_if_available", "fork", "artifacts_only"),
        "tools": texts,
        "tool_policy": texts,
        "capabilities": texts,
        "tool_max_steps": integer,
        "max_tokens": integer,
        "reasoning_effort": effort,
        "readonly": boolean,
        "interaction": interaction,
        "interaction_prompt": name,
        "interaction_model": text,
        "sandbox": sandbox,
        "mcp": MCP,
        "compaction": COMPACTION,
        "memory": MEMORY,
        "cursors": _cursor_settings,
    }
    return {
        "agent": llm,
        "judge": llm,
        "router": {
            "mode": choice(*RouterMode),
            "model": text,
            "backend": text,
            "provider": text,
            "system": name,
            "user": name,
            "multi": boolean,
            "reasoning_effort": effort,
        },
        "human": {
            **_DATA,
            "publish": name,
            "instructions": name,
            "interaction": interaction,
            "interaction_prompt": name,
            "interaction_model": text,
            "model": text,
            "system": name,
            "min_answers": integer,
        },
        "tool": {
            **_DATA,
            "command": text,
            "script": text,
            "language": choice("sh", "bash", "py", "js"),
            "sandbox": sandbox,
        },
        "compute": _DATA,
    }
