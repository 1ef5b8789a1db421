"""The graph of a workflow: nodes, edges, and what must hold for a run to end."""

from __future__ import annotations

from collections import defaultdict

from gateway.workflow.diagnostics import Findings, suggestion
from gateway.workflow.model import (
    RESERVED_TARGETS,
    Edge,
    FieldCondition,
    Flow,
    Loop,
    RouterMode,
    RouterNode,
)


def check_graph(flow: Flow, findings: Findings) -> None:
    """Note what is wrong with the edges, the loops and the entry of ``flow``."""
    edges = _known_edges(flow, findings)
    leaving: dict[str, list[Edge]] = defaultdict(list)
    for edge in edges:
        leaving[edge.source].append(edge)
    _loops(edges, findings)
    for source, outgoing in leaving.items():
        _choices(flow, source, outgoing, findings)
    _cycles(leaving, findings)
    _reach(flow, leaving, findings)


def _known_edges(flow: Flow, findings: Findings) -> list[Edge]:
    """The edges between nodes that exist; the others are findings."""
    known: list[Edge] = []
    for edge in flow.workflow.edges:
        ends = [(edge.source, edge.position), (edge.target, edge.target_position)]
        wrong = False
        if edge.source in RESERVED_TARGETS:
            message = f"an edge cannot leave {edge.source!r}"
            findings.add("C001", edge.position, message, "'done' and 'fail' are where edges end")
            continue
        for name, position in ends:
            if name not in flow.nodes and name not in RESERVED_TARGETS:
                hint = suggestion(name, [*flow.nodes, *RESERVED_TARGETS])
                findings.add("C001", position, f"there is no node {name!r}", hint)
                wrong = True
        if not wrong:
            known.append(edge)
    return known


def _loops(edges: list[Edge], findings: Findings) -> None:
    first: dict[str, Loop] = {}
    for edge in edges:
        if edge.loop is None:
            continue
        loop = first.setdefault(edge.loop.name, edge.loop)
        if loop.limit != edge.loop.limit:
            message = (
                f"loop {loop.name!r} has the limit {loop.limit} in line {loop.position.line}, "
                f"and {edge.loop.limit} here"
            )
            findings.add("C005", edge.loop.position, message, "edges that share a loop share its limit")


def _choices(flow: Flow, source: str, edges: list[Edge], findings: Findings) -> None:
    """From a node that does not fan out, exactly one edge must fit whatever the outcome."""
    node = flow.nodes[source]
    always = [edge for edge in edges if edge.condition is None]
    fans_out = isinstance(node, RouterNode) and node.mode is not RouterMode.CONDITION
    if not fans_out:
        # `a -> b as again(3)` beside `a -> c`: the second is where the run goes on when the loop is spent.
        plain = [edge for edge in always if edge.loop is None]
        loops = [edge for edge in always if edge.loop is not None]
        for edge in [*plain[1:], *loops[1:]]:
            findings.add(
                "C010",
                edge.position,
                f"a second unconditional edge from {source!r}",
                "give it a 'when', or fan out with a router",
            )
    if always or not edges:
        return
    polarities = {
        (edge.condition.name, edge.condition.negated) for edge in edges if isinstance(edge.condition, FieldCondition)
    }
    if not any((name, not negated) in polarities for name, negated in polarities):
        findings.add(
            "C012",
            edges[-1].position,
            f"every edge from {source!r} has a condition, and none may hold",
            f"add an edge without 'when', such as '{source} -> fail', or the opposite condition",
        )


def _cycles(leaving: dict[str, list[Edge]], findings: Findings) -> None:
    """A cycle must pass an edge with a loop; depth first, without recursion."""
    done: set[str] = set()
    for start in list(leaving):
        if start in done:
            continue
        path = [start]
        on_path = {start}
        pending = [iter([edge for edge in leaving[start] if edge.loop is None])]
        while pending:
            edge = next(pending[-1], None)
            if edge is None:
                pending.pop()
                name = path.pop()
                on_path.discard(name)
                done.add(name)
            elif edge.target in on_path:
                cycle = [*path[path.index(edge.target) :], edge.target]
                findings.add(
                    "C019",
                    edge.position,
                    f"this edge closes a cycle without a loop: {' -> '.join(cycle[:20])}",
                    f"bound it: '{edge.source} -> {edge.target} as NAME(3)'",
                )
            elif edge.target not in done and edge.target in leaving:
                path.append(edge.target)
                on_path.add(edge.target)
                pending.append(iter([edge for edge in leaving[edge.target] if edge.loop is None]))


def _reach(flow: Flow, leaving: dict[str, list[Edge]], findings: Findings) -> None:
    entry = flow.workflow.entry
    if entry is None and "entry" in flow.workflow.positions:
        return  # it could not be read, which is a finding already
    if entry is None:
        findings.add("C008", flow.workflow.position, "the workflow has no entry", "write 'entry: NODE'")
        return
    if entry not in flow.nodes:
        hint = suggestion(entry, flow.nodes)
        findings.add("C008", flow.workflow.where("entry"), f"the entry {entry!r} is not a node", hint)
        return
    reached = {entry}
    pending = [entry]
    while pending:
        for edge in leaving.get(pending.pop(), ()):
            if edge.target not in reached and edge.target not in RESERVED_TARGETS:
                reached.add(edge.target)
                pending.append(edge.target)
    for name, node in flow.nodes.items():
        if name not in reached:
            message = f"nothing leads to {node.kind} {name!r}"
            findings.add("C016", node.position, message, f"add an edge to it, from {entry!r} or behind it")
