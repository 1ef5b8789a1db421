"""What the declarations of a flow mean together: each code that needs the whole file to be known."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.workflow.diagnostics import Findings, suggestion
from gateway.workflow.expressions import Expression
from gateway.workflow.graph import check_graph
from gateway.workflow.model import (
    ComputeNode,
    ExpressionCondition,
    Flow,
    HumanNode,
    LlmNode,
    Node,
    RouterNode,
    SandboxBlock,
    SourcePos,
    ToolNode,
)
from gateway.workflow.templates import TemplateError, parse_template

CAPABILITIES = ("board.read", "board.create", "board.move", "board.assign", "board.label", "board.close")
"""What an agent may be granted."""


def check(flow: Flow, findings: Findings) -> None:
    """Note everything that is wrong or doubtful about ``flow``."""
    for node in flow.nodes.values():
        _references(flow, node, findings)
        _backend(node, findings)
    _backend_name(flow.workflow.default_backend, flow.workflow.where("default_backend"), findings)
    for text, position in _templates(flow):
        _template(flow, text, position, findings)
    for expression, position in _expressions(flow):
        _paths(flow, expression, position, findings)
    for names, position in _capabilities(flow):
        _capability_names(names, position, findings)
    for block, of_node in _sandboxes(flow):
        check_sandbox(block, of_node, findings)
    check_graph(flow, findings)


# -- Names ------------------------------------------------------------------------------------------


def _references(flow: Flow, node: Node, findings: Findings) -> None:
    prompts: dict[str, str | None] = {}
    if isinstance(node, LlmNode | RouterNode):
        prompts = {"system": node.system, "user": node.user}
    if isinstance(node, LlmNode):
        prompts["interaction_prompt"] = node.interaction_prompt
    if isinstance(node, HumanNode):
        prompts = {
            "system": node.system,
            "instructions": node.instructions,
            "interaction_prompt": node.interaction_prompt,
        }
    for key, schema in (("input", node.input), ("output", node.output)):
        if schema is not None and schema not in flow.schemas:
            hint = suggestion(schema, flow.schemas, f"write 'schema {schema}:'")
            findings.add("C002", node.where(key), f"there is no schema {schema!r}", hint)
    for key, prompt in prompts.items():
        if prompt is not None and prompt not in flow.prompts:
            hint = suggestion(prompt, flow.prompts, f"write 'prompt {prompt}:'")
            findings.add("C003", node.where(key), f"there is no prompt {prompt!r}", hint)


def _backend(node: Node, findings: Findings) -> None:
    if isinstance(node, LlmNode | RouterNode):
        _backend_name(node.backend, node.where("backend"), findings)


def _backend_name(backend: str | None, position: SourcePos, findings: Findings) -> None:
    if backend == "codex":
        findings.add("C030", position, "codex cannot run inside a sandbox", "use claude_code or claw")


# -- Templates and expressions ----------------------------------------------------------------------


def _templates(flow: Flow) -> Iterator[tuple[str, SourcePos]]:
    for prompt in flow.prompts.values():
        yield prompt.text, prompt.position
    for node in flow.nodes.values():
        if isinstance(node, ToolNode):
            if node.command is not None:
                yield node.command, node.where("command")
            if node.script is not None:
                yield node.script, node.where("script")
    for edge in flow.workflow.edges:
        for entry in edge.with_:
            yield entry.value, entry.position


def _template(flow: Flow, text: str, position: SourcePos, findings: Findings) -> None:
    try:
        template = parse_template(text, position)
    except TemplateError as problem:
        findings.add("C004", problem.position or position, problem.message)
        return
    for reference in template.references:
        where = position.inside(text, reference.offset)
        _reference(flow, reference.namespace, reference.names, where, findings)


def _expressions(flow: Flow) -> Iterator[tuple[Expression, SourcePos]]:
    for node in flow.nodes.values():
        if isinstance(node, ComputeNode):
            for field in node.expr:
                yield field.expression, field.position
    for edge in flow.workflow.edges:
        if isinstance(edge.condition, ExpressionCondition):
            yield edge.condition.expression, edge.condition.position


def _paths(flow: Flow, expression: Expression, position: SourcePos, findings: Findings) -> None:
    for path in expression.paths:
        where = position.inside(expression.text, path.offset)
        _reference(flow, path.namespace, path.names, where, findings)


def _reference(flow: Flow, namespace: str, names: tuple[str, ...], position: SourcePos, findings: Findings) -> None:
    if not names:
        return
    name = names[0]
    if namespace == "vars" and name not in flow.variables:
        hint = suggestion(name, flow.variables, f"declare it: vars: {name}: string")
        findings.add("C033", position, f"there is no variable {name!r}", hint)
    if namespace == "outputs" and name not in flow.nodes:
        hint = suggestion(name, flow.nodes)
        findings.add("C029", position, f"there is no node {name!r}, so it has no output", hint)


# -- Capabilities -----------------------------------------------------------------------------------


def _capabilities(flow: Flow) -> Iterator[tuple[tuple[str, ...], SourcePos]]:
    yield flow.workflow.capabilities or (), flow.workflow.where("capabilities")
    for node in flow.nodes.values():
        if isinstance(node, LlmNode):
            yield node.capabilities or (), node.where("capabilities")


def _capability_names(names: tuple[str, ...], position: SourcePos, findings: Findings) -> None:
    for name in names:
        parts = name.split(".")
        words = parts[:-1] if parts[-1] == "*" else parts
        if len(parts) != 2 or not all(word.isidentifier() and word.islower() for word in words):
            message = f"{name!r} is not a capability"
            findings.add("C081", position, message, "a capability has two words, such as board.read")
        elif name not in CAPABILITIES and name != "board.*":
            hint = suggestion(name, CAPABILITIES, "there are " + ", ".join(CAPABILITIES))
            findings.add("C080", position, f"there is no capability {name!r}", hint)


# -- Sandboxes --------------------------------------------------------------------------------------


def _sandboxes(flow: Flow) -> Iterator[tuple[SandboxBlock, bool]]:
    if flow.workflow.sandbox is not None:
        yield flow.workflow.sandbox, False
    for node in flow.nodes.values():
        if isinstance(node, LlmNode | ToolNode) and node.sandbox is not None:
            yield node.sandbox, True


def check_sandbox(block: SandboxBlock, node: bool, findings: Findings) -> None:
    """Note what is wrong with a ``sandbox:`` property; ``node`` if it belongs to a node, not the workflow.

    A node's block without a mode may just refine what the workflow says, and needs no image of its own.
    """
    if block.effective_mode == "none":
        hint = "it has the credentials and files of this host; write 'sandbox: auto'"
        subject = "this node runs" if node else "everything runs"
        findings.add("C128", block.where("mode"), f"{subject} without a sandbox", hint)
        return
    if block.image is not None and block.build is not None:
        findings.add("C044", block.where("build"), "both an image and a build", "keep one of the two")
    refines = node and block.mode is None
    if block.effective_mode == "inline" and block.image is None and block.build is None and not refines:
        hint = "write 'image:' or 'build:', or 'mode: auto' for the default image"
        findings.add("C044", block.where("mode"), "an inline sandbox needs an image or a build", hint)
    network = block.network
    if network is not None and network.mode is None and not node and (network.rules or network.preset):
        where = network.positions["rules" if network.rules else "preset"]
        findings.add("C044", where, "network rules without a mode", "write 'mode: allowlist'")
