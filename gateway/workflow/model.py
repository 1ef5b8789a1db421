"""The frozen values a workflow file is parsed into.

The model says what the file says, and nothing more: defaults of the run (sandbox mode, budget, backend) are
resolved elsewhere, so an absent property is None (or an empty tuple) here. Texts that hold ``{{...}}``
templates stay text; ``templates.parse_template`` turns them into typed references. Everything knows where
it stands in the file.

Over 400 lines because it is the one table of the language's nouns, and readers look them up together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TypeAlias, TypeVar

from gateway.workflow.expressions import Expression

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"

RESERVED_TARGETS = frozenset({"done", "fail"})
"""Names an edge may lead to without a declaration; no node may be called so."""

_K = TypeVar("_K")
_V = TypeVar("_V")


def _nothing() -> Mapping[_K, _V]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SourcePos:
    """A place in a workflow file; lines and columns count from 1, columns in characters.

    ``indent`` matters for texts of several lines only: how many columns were stripped from every line after
    the first, so that a place inside the text can be given in columns of the file.
    """

    file: str
    line: int
    column: int
    indent: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    def inside(self, text: str, offset: int) -> SourcePos:
        """Where character ``offset`` of ``text`` stands, when ``text`` begins here."""
        newline = text.rfind("\n", 0, offset)
        if newline < 0:
            return SourcePos(file=self.file, line=self.line, column=self.column + offset, indent=self.indent)
        return SourcePos(
            file=self.file,
            line=self.line + text.count("\n", 0, offset),
            column=self.indent + offset - newline,
            indent=self.indent,
        )


class Severity(StrEnum):
    """Errors stop a run before it starts; warnings are shown."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """One finding about a workflow file: a code, what is wrong, where, and what to write instead."""

    code: str
    severity: Severity
    message: str
    position: SourcePos
    hint: str = ""
    source_line: str = ""
    """The line of the file that ``position`` is in."""

    def __str__(self) -> str:
        hint = f" ({self.hint})" if self.hint else ""
        return f"{self.position}: {self.severity} {self.code}: {self.message}{hint}"

    def render(self) -> str:
        """Several lines for a terminal: the finding, the offending line with a caret, the hint."""
        lines = [f"{self.position}: {self.severity} {self.code}: {self.message}"]
        if self.source_line:
            before = self.position.column - 1
            start = max(0, before - 60)
            lines.append("    " + self.source_line[start : start + 100].replace("\t", " "))
            lines.append("    " + " " * (before - start) + "^")
        if self.hint:
            lines.append(f"    {self.hint}")
        return "\n".join(lines)


# -- Declarations ----------------------------------------------------------------------------------


class ValueType(StrEnum):
    """The types of variables and schema fields."""

    STRING = "string"
    BOOL = "bool"
    INT = "int"
    FLOAT = "float"
    JSON = "json"
    STRING_LIST = "string[]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """``name: type [= literal]``; without a default the run must be given a value."""

    name: str
    type: ValueType
    has_default: bool
    default: JsonValue
    position: SourcePos


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A named set of values for variables."""

    name: str
    values: Mapping[str, JsonValue]
    position: SourcePos


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A file or an image that the run is given."""

    name: str
    kind: str
    description: str | None = None
    accept_mime: tuple[str, ...] = ()
    required: bool = False
    position: SourcePos


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """Free text, verbatim relative to its first line; ``position`` is where the text begins."""

    name: str
    text: str
    position: SourcePos
    header: SourcePos


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaField:
    """``name: type [enum: "a", "b"]``."""

    name: str
    type: ValueType
    enum: tuple[str, ...] = ()
    position: SourcePos


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """The fields of a node's input or output."""

    name: str
    fields: tuple[SchemaField, ...]
    position: SourcePos


@dataclass(frozen=True, slots=True, kw_only=True)
class CursorBand:
    """A numeric range in 0..1, both ends included, and the text it stands for."""

    low: float
    high: float
    text: str
    position: SourcePos


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """A dial that an agent's prompt follows: named values, or bands of a number."""

    name: str
    description: str | None
    values: Mapping[str, str]
    bands: tuple[CursorBand, ...]
    position: SourcePos


@dataclass(frozen=True, slots=True, kw_only=True)
class McpAuth:
    """How an MCP server authenticates."""

    type: str | None = None
    auth_url: str | None = None
    token_url: str | None = None
    revoke_url: str | None = None
    client_id: str | None = None
    scopes: tuple[str, ...] = ()
    position: SourcePos


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """A declared MCP server: a command (stdio) or a URL (http, sse)."""

    name: str
    transport: str | None = None
    command: str | None = None
    args: tuple[str, ...] = ()
    url: str | None = None
    auth: McpAuth | None = None
    position: SourcePos


@dataclass(frozen=True, slots=True, kw_only=True)
class McpBlock:
    """Which MCP servers a workflow or a node uses."""

    autoload_project: bool | None = None
    inherit: bool | None = None
    servers: tuple[str, ...] | None = None
    disable: tuple[str, ...] = ()
    position: SourcePos


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """When a conversation is compacted (``threshold``: a share of the window, 0..1) and how much stays."""

    threshold: float | None = None
    preserve_recent: int | None = None
    position: SourcePos


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """A node's memory."""

    enabled: bool | None = None
    scope: str | None = None
    autoload: bool | tuple[str, ...] | None = None
    read: bool | tuple[str, ...] | None = None
    write: bool | tuple[str, ...] | None = None
    pre_compact_inject: bool | None = None
    position: SourcePos


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits of a run; ``max_duration`` as written ("30m"), ``max_duration_s`` in seconds."""

    max_parallel_branches: int | None = None
    max_duration: str | None = None
    max_duration_s: float | None = None
    max_cost_usd: float | None = None
    max_tokens: int | None = None
    max_iterations: int | None = None
    position: SourcePos


# -- Sandbox ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ListItem:
    """One element of a list whose line matters to later messages (a network rule, a mount)."""

    text: str
    position: SourcePos


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildBlock:
    """``build:``: the image is built from a Dockerfile of the workspace."""

    dockerfile: str | None = None
    context: str | None = None
    args: Mapping[str, str] = field(default_factory=_nothing)
    position: SourcePos


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkBlock:
    """``network:``: the egress policy as written. ``positions`` holds the place of each property given."""

    mode: str | None = None
    preset: str | None = None
    inherit: str | None = None
    rules: tuple[ListItem, ...] = ()
    enforcement: str | None = None
    tls: str | None = None
    inspect_hosts: tuple[ListItem, ...] = ()
    exclude_hosts: tuple[ListItem, ...] = ()
    hosts: Mapping[str, tuple[ListItem, ...]] = field(default_factory=_nothing)
    http: JsonValue = None
    position: SourcePos
    positions: Mapping[str, SourcePos] = field(default_factory=_nothing)


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxBlock:
    """``sandbox:`` in its word form (``word`` is set, nothing else is) or its block form, as written.

    ``mode`` is the word of the word form, or the block's ``mode:``; a block without one is ``inline``, which
    ``effective_mode`` says. ``positions`` holds the place of each property that was given.
    """

    word: bool
    mode: str | None = None
    image: str | None = None
    build: BuildBlock | None = None
    user: str | None = None
    workspace_folder: str | None = None
    host_state: str | None = None
    post_create: str | None = None
    env: Mapping[str, str] = field(default_factory=_nothing)
    mounts: tuple[ListItem, ...] = ()
    network: NetworkBlock | None = None
    secrets: JsonValue = None
    cpus: float | None = None
    memory: str | None = None
    pids: int | None = None
    position: SourcePos
    positions: Mapping[str, SourcePos] = field(default_factory=_nothing)

    @property
    def effective_mode(self) -> str:
        """``auto``, ``none`` or ``inline``; a block without a mode is ``inline``."""
        return self.mode or "inline"

    def where(self, name: str) -> SourcePos:
        """Where property ``name`` stands, or the block if it is absent."""
        return self.positions.get(name, self.position)


# -- Nodes -----------------------------------------------------------------------------------------


class NodeKind(StrEnum):
    """The keyword that declares a node."""

    AGENT = "agent"
    JUDGE = "judge"
    ROUTER = "router"
    HUMAN = "human"
    TOOL = "tool"
    COMPUTE = "compute"


class AwaitMode(StrEnum):
    """What a node with several incoming branches waits for."""

    WAIT_ALL = "wait_all"
    BEST_EFFORT = "best_effort"


class RouterMode(StrEnum):
    """How a router picks among its edges."""

    FAN_OUT_ALL = "fan_out_all"
    CONDITION = "condition"
    ROUND_ROBIN = "round_robin"
    LLM = "llm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What every node has. ``positions`` holds the place of each property's value."""

    name: str
    position: SourcePos
    positions: Mapping[str, SourcePos] = field(default_factory=_nothing)
    input: str | None = None
    output: str | None = None
    await_: AwaitMode | None = None
    kind: NodeKind

    def where(self, name: str) -> SourcePos:
        """Where the value of property ``name`` begins, or the node if it is absent."""
        return self.positions.get(name, self.position)


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmNode(Node):
    """What agents and judges share."""

    model: str | None = None
    backend: str | None = None
    provider: str | None = None
    publish: str | None = None
    system: str | None = None
    user: str | None = None
    session: str | None = None
    tools: tuple[str, ...] | None = None
    tool_policy: tuple[str, ...] | None = None
    capabilities: tuple[str, ...] | None = None
    tool_max_steps: int | None = None
    max_tokens: int | None = None
    reasoning_effort: str | None = None
    readonly: bool | None = None
    interaction: str | None = None
    interaction_prompt: str | None = None
    interaction_model: str | None = None
    sandbox: SandboxBlock | None = None
    mcp: McpBlock | None = None
    compaction: Compaction | None = None
    memory: Memory | None = None
    cursors: Mapping[str, JsonValue] = field(default_factory=_nothing)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentNode(LlmNode):
    """``agent N:``."""

    kind: NodeKind = NodeKind.AGENT


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeNode(LlmNode):
    """``judge N:``."""

    kind: NodeKind = NodeKind.JUDGE


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterNode(Node):
    """``router N:``."""

    mode: RouterMode | None = None
    model: str | None = None
    backend: str | None = None
    provider: str | None = None
    system: str | None = None
    user: str | None = None
    multi: bool | None = None
    reasoning_effort: str | None = None
    kind: NodeKind = NodeKind.ROUTER


@dataclass(frozen=True, slots=True, kw_only=True)
class HumanNode(Node):
    """``human N:``."""

    publish: str | None = None
    instructions: str | None = None
    interaction: str | None = None
    interaction_prompt: str | None = None
    interaction_model: str | None = None
    model: str | None = None
    system: str | None = None
    min_answers: int | None = None
    kind: NodeKind = NodeKind.HUMAN


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolNode(Node):
    """``tool N:``: a shell ``command``, or a ``script`` in a ``language``; exactly one of the two."""

    command: str | None = None
    script: str | None = None
    language: str | None = None
    sandbox: SandboxBlock | None = None
    kind: NodeKind = NodeKind.TOOL


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputedField:
    """``field: "expression"`` of a compute node; ``position`` is where the expression's text begins."""

    name: str
    text: str
    expression: Expression
    position: SourcePos


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeNode(Node):
    """``compute N:``."""

    expr: tuple[ComputedField, ...] = ()
    kind: NodeKind = NodeKind.COMPUTE


# -- Edges -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldCondition:
    """``when [not] field``: a boolean field of the source's output."""

    name: str
    negated: bool
    position: SourcePos


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpressionCondition:
    """``when "expression"``; ``position`` is where the expression's text begins."""

    text: str
    expression: Expression
    position: SourcePos


Condition: TypeAlias = FieldCondition | ExpressionCondition


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """``as name(limit)``: the edge may be taken ``limit`` times; edges that share a name share the count."""

    name: str
    limit: int
    position: SourcePos


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingEntry:
    """``key: "text"`` of a ``with`` block; ``position`` is where the text begins."""

    key: str
    value: str
    position: SourcePos


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """``source -> target [when ...] [as NAME(n)] [with {...}]``; placed at the name of its source."""

    source: str
    target: str
    condition: Condition | None = None
    loop: Loop | None = None
    with_: tuple[MappingEntry, ...] = ()
    position: SourcePos
    target_position: SourcePos


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflow:
    """``workflow N:``. ``positions`` holds the place of each property's value."""

    name: str
    position: SourcePos
    positions: Mapping[str, SourcePos] = field(default_factory=_nothing)
    entry: str | None = None
    default_backend: str | None = None
    tool_policy: tuple[str, ...] | None = None
    capabilities: tuple[str, ...] | None = None
    worktree: str | None = None
    sandbox: SandboxBlock | None = None
    interaction: str | None = None
    mcp: McpBlock | None = None
    compaction: Compaction | None = None
    budget: Budget | None = None
    vars: Mapping[str, Variable] = field(default_factory=_nothing)
    attachments: Mapping[str, Attachment] = field(default_factory=_nothing)
    edges: tuple[Edge, ...] = ()

    def where(self, name: str) -> SourcePos:
        """Where the value of property ``name`` begins, or the workflow if it is absent."""
        return self.positions.get(name, self.position)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """A whole file. ``vars`` and ``attachments`` are those of the top level; see ``variables``."""

    file: str
    workflow: Workflow
    vars: Mapping[str, Variable] = field(default_factory=_nothing)
    presets: Mapping[str, Preset] = field(default_factory=_nothing)
    attachments: Mapping[str, Attachment] = field(default_factory=_nothing)
    prompts: Mapping[str, Prompt] = field(default_factory=_nothing)
    schemas: Mapping[str, Schema] = field(default_factory=_nothing)
    cursors: Mapping[str, Cursor] = field(default_factory=_nothing)
    mcp_servers: Mapping[str, McpServer] = field(default_factory=_nothing)
    nodes: Mapping[str, Node] = field(default_factory=_nothing)
    warnings: tuple[Diagnostic, ...] = ()

    @property
    def variables(self) -> dict[str, Variable]:
        """Every variable by name: the file's, then the workflow's, which win."""
        return {**self.vars, **self.workflow.vars}

    @property
    def all_attachments(self) -> dict[str, Attachment]:
        """Every attachment by name: the file's, then the workflow's, which win."""
        return {**self.attachments, **self.workflow.attachments}
