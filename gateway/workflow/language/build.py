"""Declarations to the model: names are found to be unique here; what they refer to is `check`'s business."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeVar

from gateway.workflow.diagnostics import Findings, suggestion
from gateway.workflow.language import declarations
from gateway.workflow.language.edges import build_edge, read_expression
from gateway.workflow.language.literals import Values
from gateway.workflow.language.properties import (
    BUDGET,
    COMPACTION,
    MCP,
    Properties,
    Table,
    choice,
    interaction,
    name,
    node_tables,
    read_properties,
    text,
    texts,
)
from gateway.workflow.language.sandbox import sandbox_kind
from gateway.workflow.language.source import Source
from gateway.workflow.language.syntax import EdgeSyntax, Entry, PromptSyntax, Scalar, Statement
from gateway.workflow.model import (
    RESERVED_TARGETS,
    AgentNode,
    Attachment,
    ComputedField,
    ComputeNode,
    Cursor,
    Flow,
    HumanNode,
    JudgeNode,
    McpServer,
    Node,
    Preset,
    Prompt,
    RouterNode,
    Schema,
    ToolNode,
    Variable,
    Workflow,
)

_NODES: Mapping[str, type[Node]] = {
    "agent": AgentNode,
    "judge": JudgeNode,
    "router": RouterNode,
    "human": HumanNode,
    "tool": ToolNode,
    "compute": ComputeNode,
}
_BLOCKS = ("vars", "presets", "attachments")
_NAMED = ("prompt", "schema", "cursor", "mcp_server", *_NODES, "workflow")
_T = TypeVar("_T")


def _expr(values: Values, what: str, entry: Entry) -> tuple[ComputedField, ...]:
    found: dict[str, ComputedField] = {}
    for key, value in values.pairs(what, entry):
        field = values.name("a computed field", Scalar(key))
        if not isinstance(value, Scalar) or value.token.type != "STRING":
            values.wrong(value.position, f"expr.{Scalar(key).text}", "an expression in a string", 'write "..."')
        elif field is not None:
            values.once(found, field, key.position)
            found[field] = ComputedField(
                name=field,
                text=value.text,
                expression=read_expression(values, value),
                position=value.content,
            )
    return tuple(found.values())


_TABLES: Mapping[str, Table] = {
    **node_tables(sandbox_kind),
    "compute": {**node_tables(sandbox_kind)["compute"], "expr": _expr},
}
_WORKFLOW: Table = {
    "entry": name,
    "default_backend": text,
    "tool_policy": texts,
    "capabilities": texts,
    "worktree": choice("auto", "none"),
    "sandbox": sandbox_kind,
    "interaction": interaction,
    "mcp": MCP,
    "compaction": COMPACTION,
    "budget": BUDGET,
    "vars": lambda values, _, entry: declarations.variables(values, entry),
    "attachments": lambda values, _, entry: declarations.attachments(values, entry),
}


def build_flow(source: Source, statements: tuple[Statement, ...], findings: Findings) -> Flow | None:
    """The flow that the statements declare; None, with C006, if there is no workflow among them."""
    builder = _Builder(Values(findings))
    for statement in statements:
        builder.statement(statement)
    return builder.finish(source)


class _Builder:
    """Takes one declaration after the other."""

    def __init__(self, values: Values) -> None:
        self.values = values
        self.findings = values.findings
        self.vars: dict[str, Variable] = {}
        self.presets: dict[str, tuple[Preset, Entry]] = {}
        self.attachments: dict[str, Attachment] = {}
        self.prompts: dict[str, Prompt] = {}
        self.schemas: dict[str, Schema] = {}
        self.cursors: dict[str, Cursor] = {}
        self.mcp_servers: dict[str, McpServer] = {}
        self.nodes: dict[str, Node] = {}
        self.workflow: Workflow | None = None

    def statement(self, statement: Statement) -> None:
        match statement:
            case EdgeSyntax():
                message = "an edge outside of the workflow"
                self.findings.add("E002", statement.position, message, "indent it, under 'workflow NAME:'")
            case PromptSyntax():
                self.keep(self.prompts, declarations.prompt(statement), "prompt")
            case Entry(name=None):
                self.block(statement)
            case _:
                self.named(statement)

    def block(self, entry: Entry) -> None:
        keyword = Scalar(entry.key).text
        match keyword:
            case "vars":
                self.merge(self.vars, declarations.variables(self.values, entry))
            case "presets":
                self.merge(self.presets, declarations.presets(self.values, entry))
            case "attachments":
                self.merge(self.attachments, declarations.attachments(self.values, entry))
            case _ if keyword in _NAMED:
                self.findings.add("E002", entry.position, f"{keyword!r} needs a name", f"write '{keyword} NAME:'")
            case _:
                self.unknown(entry)

    def named(self, entry: Entry) -> None:
        assert entry.name is not None
        keyword, name = entry.key.text, entry.name.text
        match keyword:
            case "schema":
                self.keep(self.schemas, declarations.schema(self.values, name, entry), "schema")
            case "cursor":
                self.keep(self.cursors, declarations.cursor(self.values, name, entry), "cursor")
            case "mcp_server":
                self.keep(self.mcp_servers, declarations.mcp_server(self.values, name, entry), "mcp_server")
            case "workflow":
                self.take_workflow(name, entry)
            case _ if keyword in _NODES:
                self.take_node(keyword, name, entry)
            case _:
                self.unknown(entry)

    def unknown(self, entry: Entry) -> None:
        keyword = Scalar(entry.key).text
        known = (*_BLOCKS, *_NAMED)
        hint: str | Callable[[], str] = suggestion(keyword, known, "a file holds " + ", ".join(known))
        if keyword in _WORKFLOW:
            hint = "indent it, under 'workflow NAME:'"
        self.findings.add("E002", entry.position, f"there is no declaration {keyword!r}", hint)

    # -- Keeping -----------------------------------------------------------------------------------

    def keep(self, known: dict[str, _T], declared: Any, kind: str) -> None:
        if declared.name in known:
            position = declared.header if isinstance(declared, Prompt) else declared.position
            message = f"{kind} {declared.name!r} is declared twice"
            self.findings.add("E004", position, message, "rename one of the two")
        else:
            known[declared.name] = declared

    def merge(self, known: dict[str, _T], declared: Mapping[str, _T]) -> None:
        for key, value in declared.items():
            declared_at: Any = value[0] if isinstance(value, tuple) else value
            self.values.once(known, key, declared_at.position)
            known[key] = value

    def properties(self, what: str, entry: Entry, table: Table) -> Properties:
        """The properties of a declaration, by the names of the model's attributes."""
        read = read_properties(self.values, what, entry.body or (), table)
        if "await" in read.values:
            read.values["await_"] = read.values.pop("await")
        return read

    def take_node(self, keyword: str, name: str, entry: Entry) -> None:
        assert entry.name is not None
        position = entry.name.position
        what = f"{keyword} {name!r}"
        if entry.body is None:
            self.values.wrong(position, what, "at least one property, indented, below it")
        read = self.properties(what, entry, _TABLES[keyword])
        node = _NODES[keyword](name=name, position=position, positions=read.positions, **read.values)
        if name in RESERVED_TARGETS:
            hint = "'done' and 'fail' are where edges end"
            self.findings.add("C042", position, f"a node cannot be called {name!r}", hint)
        elif name in self.nodes:
            first = self.nodes[name].position
            message = f"there is a node {name!r} in line {first.line}"
            self.findings.add("C041", position, message, "rename one")
        else:
            self.nodes[name] = node
        if isinstance(node, ToolNode):
            self.check_tool(what, node)
        if isinstance(node, ComputeNode) and not node.expr and "expr" not in read.positions:
            self.values.wrong(position, what, "an 'expr:' block")

    def check_tool(self, what: str, node: ToolNode) -> None:
        given = [key for key in ("command", "script") if key in node.positions]
        if len(given) != 1:
            self.values.wrong(node.position, what, "either a command or a script")
        elif given == ["script"] and "language" not in node.positions:
            self.values.wrong(node.where("script"), what, "a language for its script", "write 'language: py'")
        elif given == ["command"] and "language" in node.positions:
            self.values.wrong(node.where("language"), what, "no language: a command is for sh", "write 'script:'")

    def take_workflow(self, name: str, entry: Entry) -> None:
        assert entry.name is not None
        position = entry.name.position
        if self.workflow is not None:
            message = f"a second workflow; the first one is {self.workflow.name!r}"
            self.findings.add("C007", position, message, "keep one workflow a file")
            return
        body = entry.body or ()
        edges = tuple(build_edge(self.values, line) for line in body if isinstance(line, EdgeSyntax))
        others = tuple(line for line in body if not isinstance(line, EdgeSyntax))
        read = self.properties(f"workflow {name!r}", replace(entry, body=others), _WORKFLOW)
        for key in ("vars", "attachments"):
            if key in read.values:
                read.values[key] = MappingProxyType(read.values[key])
        self.workflow = Workflow(name=name, position=position, positions=read.positions, edges=edges, **read.values)

    def finish(self, source: Source) -> Flow | None:
        if self.workflow is None:
            end = max((number for number, line in enumerate(source.lines, 1) if line.strip()), default=1)
            position = source.position(end, len(source.line_at(end)) + 1)  # what is there comes first
            self.findings.add("C006", position, "there is no workflow", "write 'workflow NAME:'")
            return None
        known = {**self.vars, **self.workflow.vars}
        presets = {
            key: replace(preset, values=declarations.preset_values(self.values, entry, known))
            for key, (preset, entry) in self.presets.items()
        }
        read_only: Callable[[dict[str, Any]], Mapping[str, Any]] = MappingProxyType
        return Flow(
            file=source.file,
            workflow=self.workflow,
            vars=read_only(self.vars),
            presets=read_only(presets),
            attachments=read_only(self.attachments),
            prompts=read_only(self.prompts),
            schemas=read_only(self.schemas),
            cursors=read_only(self.cursors),
            mcp_servers=read_only(self.mcp_servers),
            nodes=read_only(self.nodes),
        )
