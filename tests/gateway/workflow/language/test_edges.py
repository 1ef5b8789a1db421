"""The clauses of an edge: mistakes, and what is kept of them."""

import pytest

from gateway.workflow.language import parse_flow
from gateway.workflow.model import ExpressionCondition
from tests.gateway.workflow.helpers import found


def findings_of(line: str) -> list[str]:
    return found(f'workflow w:\n  entry: a\n  {line}\n  a -> done\ntool a:\n  command: "x"\n')


@pytest.mark.parametrize(
    ("line", "findings"),
    [
        ("a -> fail as x(1.5)", ["E003 3:18"]),
        ("a -> fail when x when y", ["E004 3:20"]),
        ("a -> fail when x with { k: 3 }", ["E003 3:30"]),
        ("a -> fail when x with { k: [a] }", ["E003 3:30"]),
        ('a -> fail when x with { a-b: "x" }', ["E003 3:27"]),
        ('a -> fail when x with { a: "x", a: "y" }', ["E004 3:35"]),
    ],
)
def test_edges_with_mistakes(line: str, findings: list[str]) -> None:
    assert findings_of(line) == findings


def test_what_an_edge_keeps() -> None:
    flow = parse_flow(
        'workflow w:\n  entry: a\n  a -> a when "vars.n > 1" as again(2) with { k: "v" }\n  a -> done\n'
        'tool a:\n  command: "x"\nvars:\n  n: int\n',
        file="f.bot",
    )
    edge = flow.workflow.edges[0]
    assert isinstance(edge.condition, ExpressionCondition)
    assert edge.condition.text == edge.condition.expression.text == "vars.n > 1"
    assert str(edge.condition.position) == "f.bot:3:16"
    assert str(edge.target_position) == "f.bot:3:8"
    assert edge.with_[0].key == "k"
