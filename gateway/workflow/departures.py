"""Which edges a run takes when a node has ended, and what it brings to their targets."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gateway.workflow.evaluation import evaluate_condition, kind_of
from gateway.workflow.expressions import ExpressionError
from gateway.workflow.model import (
    Edge,
    FieldCondition,
    JsonValue,
    Loop,
    Node,
    RouterMode,
    RouterNode,
)
from gateway.workflow.node_errors import NodeError
from gateway.workflow.scheduler import Departure
from gateway.workflow.templates import TemplateError, parse_template, render_value

__all__ = ["EdgeChooser"]


class EdgeChooser:
    """Chooses edges; it keeps the counts of the loops and the turns of the round-robin routers of one run."""

    def __init__(self, edges: Mapping[str, Sequence[Edge]], environ: Mapping[str, str]) -> None:
        """Take the edges that leave each node, in the order of the file, and what ``${NAME}`` stands for."""
        self._edges: Final = edges
        self._environ: Final = environ
        self._taken: Counter[str] = Counter()
        self._turns: Counter[str] = Counter()
        self._loops = sorted({edge.loop.name for leaving in edges.values() for edge in leaving if edge.loop})

    @property
    def loops(self) -> Mapping[str, Mapping[str, int]]:
        """The namespace ``loop``: how often each loop's edges were taken."""
        return {name: {"iteration": self._taken[name]} for name in self._loops}

    def choose(self, node: Node, input_: Mapping[str, JsonValue], context: Mapping[str, Any]) -> tuple[Departure, ...]:
        """Return the departures from a node that ended well.

        A router that fans out takes every edge whose condition holds; a round-robin router takes one of those, each
        in its turn. Every other node takes the first edge whose condition holds, and the edge without a condition
        when none does. An edge whose loop is spent counts as one that does not hold.

        Args:
            node: the node, whose output is in the context.
            input_: the node's input.
            context: the namespaces, without ``loop``.

        Returns:
            Nothing for a node that no edge leaves.

        Raises:
            NodeError: no edge can be taken, or a condition or mapping has no value.
        """
        leaving = self._edges.get(node.name, ())
        spent: list[Loop] = []
        open_edges = []
        for edge in leaving:
            if edge.loop is not None and self._taken[edge.loop.name] >= edge.loop.limit:
                spent.append(edge.loop)
            else:
                open_edges.append(edge)
        scope = {**context, "input": input_, "loop": self.loops}
        chosen = self._pick(node, open_edges, scope)
        if leaving and not chosen:
            raise _nowhere(node, spent)
        return tuple(self._depart(node, edge, scope) for edge in chosen)

    def _pick(self, node: Node, edges: Sequence[Edge], scope: Mapping[str, Any]) -> list[Edge]:
        mode = node.mode or RouterMode.FAN_OUT_ALL if isinstance(node, RouterNode) else RouterMode.CONDITION
        if mode is RouterMode.CONDITION:
            first = next((edge for edge in edges if edge.condition is not None and _holds(node, edge, scope)), None)
            chosen = first or next((edge for edge in edges if edge.condition is None), None)
            return [chosen] if chosen is not None else []
        holding = [edge for edge in edges if _holds(node, edge, scope)]
        if mode is RouterMode.FAN_OUT_ALL or not holding:
            return holding
        turn = self._turns[node.name]
        self._turns[node.name] += 1
        return [holding[turn % len(holding)]]

    def _depart(self, node: Node, edge: Edge, scope: Mapping[str, Any]) -> Departure:
        if edge.loop is not None:
            self._taken[edge.loop.name] += 1
            scope = {**scope, "loop": self.loops}
        if not edge.with_:
            return Departure(edge=edge, input=scope["outputs"][node.name])
        values: dict[str, JsonValue] = {}
        for entry in edge.with_:
            try:
                template = parse_template(entry.value, entry.position)
                values[entry.key] = render_value(template, scope, environ=self._environ)
            except TemplateError as error:
                message = f"the edge to {edge.target!r} cannot be taken: {entry.key}: {error.message}"
                raise NodeError(node.name, message, error.position or entry.position) from None
        return Departure(edge=edge, input=values)


def _holds(node: Node, edge: Edge, scope: Mapping[str, Any]) -> bool:
    condition = edge.condition
    if condition is None:
        return True
    if isinstance(condition, FieldCondition):
        return _field_holds(node, edge, condition, scope["outputs"][node.name])
    try:
        return evaluate_condition(condition.expression, scope)
    except ExpressionError as error:
        position = condition.position.inside(condition.text, error.offset)
        message = f"the condition of the edge to {edge.target!r}: {error.message}"
        raise NodeError(node.name, message, position) from None


def _field_holds(node: Node, edge: Edge, field: FieldCondition, output: Mapping[str, JsonValue]) -> bool:
    if field.name not in output:
        raise NodeError(
            node.name,
            f"its output has no {field.name!r}, which the edge to {edge.target!r} asks for",
            field.position,
            cure=f"let it print a JSON object with {field.name!r}",
        )
    value = output[field.name]
    if not isinstance(value, bool):
        message = f"{field.name!r} of its output is {kind_of(value)}, and 'when' needs true or false"
        raise NodeError(node.name, message, field.position)
    return value is not field.negated


def _nowhere(node: Node, spent: Sequence[Loop]) -> NodeError:
    if not spent:
        return NodeError(
            node.name,
            "none of the conditions of its edges holds",
            node.position,
            cure=f"add an edge without 'when', such as '{node.name} -> fail'",
        )
    names = ", ".join(dict.fromkeys(f"{loop.name} ({loop.limit})" for loop in spent))
    return NodeError(
        node.name,
        f"no edge is left: the limit of {names} is reached",
        spent[0].position,
        cure=f"raise the limit, or add an edge for this case, such as '{node.name} -> fail'",
    )
