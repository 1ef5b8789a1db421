"""The order of a graph, and who can reach whom without repeating anything."""

import itertools

import pytest

from gateway.workflow.model import Edge, Loop, SourcePos
from gateway.workflow.topology import Topology

HERE = SourcePos(file="flow.bot", line=1, column=1)


def edge(text: str) -> Edge:
    """``a b`` is an edge, ``a b*`` one with a loop."""
    source, target = text.split()
    loop = Loop(name="again", limit=2, position=HERE) if target.endswith("*") else None
    return Edge(source=source, target=target.rstrip("*"), loop=loop, position=HERE, target_position=HERE)


def shape(nodes: str, *edges: str) -> Topology:
    return Topology(tuple(nodes), [edge(text) for text in edges])


def test_each_node_stands_before_all_that_it_leads_to() -> None:
    found = shape("dcba", "a b", "a c", "b d", "c d", "d done")
    assert found.order == ("a", "b", "c", "d")
    assert found.reach == {"a": set("bcd"), "b": {"d"}, "c": {"d"}, "d": set()}


def test_an_edge_that_repeats_reaches_nothing() -> None:
    found = shape("abc", "a b", "b c", "c a*", "b b*", "c fail")
    assert found.order == ("a", "b", "c")
    assert found.reach == {"a": {"b", "c"}, "b": {"c"}, "c": set()}


def test_an_edge_with_a_loop_that_leads_on_counts() -> None:
    found = shape("abc", "a b*", "a c", "b c")
    assert found.reach["a"] == {"b", "c"}


def test_of_two_loop_edges_round_one_cycle_the_first_leads_on() -> None:
    found = shape("ab", "a b*", "b a*")
    assert found.reach == {"a": {"b"}, "b": set()}


def test_edges_keep_their_place_in_the_file() -> None:
    edges = [edge("a b"), edge("b a*"), edge("a b")]
    found = Topology(("a", "b"), edges)
    assert [found.position(one) for one in edges] == [0, 1, 2]
    assert found.leaving == {"a": (edges[0], edges[2]), "b": (edges[1],)}


def test_a_cycle_without_a_loop_is_refused() -> None:
    with pytest.raises(ValueError, match="close a cycle"):
        shape("abc", "a b", "b c", "c b")


def test_a_long_chain_needs_no_recursion() -> None:
    names = [f"n{index}" for index in range(2000)]
    edges = [edge(f"{one} {other}") for one, other in itertools.pairwise(names)]
    assert len(Topology(names, [*edges, edge("n1999 n0*")]).reach["n0"]) == 1999
