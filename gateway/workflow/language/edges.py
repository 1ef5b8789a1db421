"""Edges: ``source -> target`` with its clauses, and the expressions that edges and compute nodes hold."""

from __future__ import annotations

from gateway.workflow.expressions import Expression, ExpressionError, Literal, parse_expression
from gateway.workflow.language.lexer import Token
from gateway.workflow.language.literals import Values, number_of
from gateway.workflow.language.syntax import EdgeSyntax, LoopSyntax, MappingSyntax, Scalar, WhenSyntax
from gateway.workflow.model import Condition, Edge, ExpressionCondition, FieldCondition, Loop, MappingEntry

_BROKEN = Expression(text="false", root=Literal(value=False, offset=0), paths=())
"""Stands for an expression that could not be parsed, in a flow that has errors anyway."""


def read_expression(values: Values, scalar: Scalar) -> Expression:
    """The expression in a string; a finding (C040) if there is none."""
    try:
        return parse_expression(scalar.text)
    except ExpressionError as problem:
        position = scalar.content.inside(scalar.text, problem.offset)
        values.findings.add("C040", position, f"in this expression: {problem.message}")
        return _BROKEN


def build_edge(values: Values, syntax: EdgeSyntax) -> Edge:
    """The edge that ``syntax`` says."""
    condition: Condition | None = None
    loop: Loop | None = None
    entries: tuple[MappingEntry, ...] = ()
    seen: dict[str, Token] = {}
    for clause in syntax.clauses:
        values.once(seen, clause.keyword.text, clause.keyword.position)
        seen[clause.keyword.text] = clause.keyword
        match clause:
            case WhenSyntax():
                condition = _condition(values, clause)
            case LoopSyntax():
                loop = _loop(values, clause)
            case _:
                entries = _entries(values, clause)
    return Edge(
        source=syntax.source.text,
        target=syntax.target.text,
        condition=condition,
        loop=loop,
        with_=entries,
        position=syntax.source.position,
        target_position=syntax.target.position,
    )


def _condition(values: Values, clause: WhenSyntax) -> Condition:
    operand = Scalar(clause.operand)
    if clause.operand.type == "STRING":
        expression = read_expression(values, operand)
        return ExpressionCondition(text=operand.text, expression=expression, position=operand.content)
    return FieldCondition(name=operand.text, negated=clause.negated, position=operand.position)


def _loop(values: Values, clause: LoopSyntax) -> Loop:
    limit = number_of(clause.limit)
    if not isinstance(limit, int):
        values.wrong(clause.limit.position, "a loop", "a whole number")
        limit = 1
    elif limit < 1:
        message = f"the limit of loop {clause.name.text!r} is {limit}"
        values.findings.add("C026", clause.limit.position, message, "write at least 1")
    return Loop(name=clause.name.text, limit=limit, position=clause.name.position)


def _entries(values: Values, clause: MappingSyntax) -> tuple[MappingEntry, ...]:
    found: dict[str, MappingEntry] = {}
    for key, value in clause.pairs:
        name = values.name("a key of 'with'", Scalar(key))
        if not isinstance(value, Scalar) or value.token.type != "STRING":
            values.wrong(value.position, f"with.{key.text}", "a string", 'write "text" or "{{outputs.node.field}}"')
        elif name is not None:
            values.once(found, name, key.position)
            found[name] = MappingEntry(key=name, value=value.text, position=value.content)
    return tuple(found.values())
