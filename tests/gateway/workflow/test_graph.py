"""The graph: unknown nodes, fallbacks, cycles, loops, what can be reached."""

import pytest

from gateway.workflow.language import parse_flow
from tests.gateway.workflow.helpers import findings, found, only


def flow(*edges: str, nodes: str = "abc", entry: str = "a", extra: str = "") -> str:
    tools = "".join(f'tool {name}:\n  command: "x"\n' for name in nodes)
    first = f"  entry: {entry}\n" if entry else ""
    return tools + extra + "workflow w:\n" + first + "".join(f"  {edge}\n" for edge in edges)


def test_c001_an_unknown_node() -> None:
    assert found(flow("a -> bb", nodes="a")) == ["C001 5:8"]
    assert found(flow("x -> a", "a -> done", nodes="a")) == ["C001 5:3"]
    assert found(flow("x -> y", "a -> done", nodes="a")) == ["C001 5:3", "C001 5:8"]
    assert only(flow("a -> don", nodes="a")).hint == "did you mean 'done'?"
    assert found(flow("a -> done", nodes="a")) == []


@pytest.mark.parametrize("name", ["done", "fail"])
def test_c001_an_edge_from_the_end(name: str) -> None:
    assert found(flow("a -> done", f"{name} -> a", nodes="a")) == ["C001 6:3"]


def test_c005_one_loop_with_two_limits() -> None:
    edges = ["a -> a when x as again(2)", "a -> a when y as again(3)", "a -> done"]
    assert found(flow(*edges, nodes="a")) == ["C005 6:20"]
    assert found(flow(*(edge.replace("3", "2") for edge in edges), nodes="a")) == []


def test_c008_the_entry() -> None:
    assert found(flow("a -> done", nodes="a", entry="")) == ["C008 3:10"]
    assert found(flow("a -> done", nodes="a", entry="b")) == ["C008 4:10"]
    assert found(flow("a -> done", nodes="a", entry="done")) == ["C008 4:10"]
    assert found(flow("a -> done", nodes="a", entry="[a]")) == ["E003 4:10"]


def test_c010_several_unconditional_edges() -> None:
    assert found(flow("a -> done", "a -> fail", nodes="a")) == ["C010 6:3"]
    assert found(flow("a -> done when x", "a -> fail", nodes="a")) == []


def test_c010_a_loop_and_where_the_run_goes_when_it_is_spent() -> None:
    assert found(flow("a -> b", "b -> a as again(3)", "b -> done", nodes="ab")) == []
    two = ["a -> b", "b -> a as again(3)", "b -> b as more(3)", "b -> done"]
    assert found(flow(*two, nodes="ab")) == ["C010 9:3"]


def test_c010_routers_fan_out() -> None:
    router = "router r:\n  mode: fan_out_all\n"
    edges = ["a -> r", "r -> b", "r -> c", "b -> done", "c -> done"]
    assert found(flow(*edges, extra=router)) == []
    assert found(flow(*edges, extra="router r:\n  multi: true\n")) == []
    assert found(flow(*edges, extra="router r:\n  mode: condition\n")) == ["C010 13:3"]


def test_c012_conditions_without_a_fallback() -> None:
    assert found(flow("a -> done when ok", nodes="a")) == ["C012 5:3"]
    assert found(flow("a -> done when ok", "a -> fail when not other", nodes="a")) == ["C012 6:3"]
    assert found(flow('a -> done when "1 < 2"', 'a -> fail when "1 >= 2"', nodes="a")) == ["C012 6:3"]
    assert found(flow("a -> done when ok", "a -> fail when not ok", nodes="a")) == []
    assert found(flow("a -> done when ok", "a -> fail", nodes="a")) == []


def test_c016_a_node_that_nothing_leads_to() -> None:
    assert found(flow("a -> done", "c -> c as again(1)", "c -> b")) == ["C016 3:6", "C016 5:6"]
    assert found(flow("a -> b", "b -> c", "c -> done")) == []


def test_c019_a_cycle_without_a_loop() -> None:
    cycle = only(flow("a -> b", "b -> c", "c -> a when x", "c -> done"))
    assert (cycle.code, cycle.position.line) == ("C019", 11)
    assert cycle.message.endswith("a -> b -> c -> a")
    assert cycle.hint == "bound it: 'c -> a as NAME(3)'"
    assert found(flow("a -> b", "b -> c", "c -> a when x as again(2)", "c -> done")) == []
    assert found(flow("a -> b as again(2)", "b -> c", "c -> a when x", "c -> done")) == []
    assert found(flow("a -> a when x", "a -> done", nodes="a")) == ["C019 5:3"]


def test_c019_paths_that_meet_are_no_cycle() -> None:
    assert found(flow("a -> b when x", "a -> c", "b -> c", "c -> done")) == []


def test_a_long_chain_is_walked_without_recursion() -> None:
    count = 3_000
    nodes = "".join(f'tool t{n}:\n  command: "x"\n' for n in range(count))
    edges = "".join(f"  t{n} -> t{n + 1}\n" for n in range(count - 1))
    text = f"{nodes}workflow w:\n  entry: t0\n{edges}  t{count - 1} -> done\n"
    assert len(parse_flow(text, file="f").nodes) == count
    (cycle,) = findings(text.replace("-> done", "-> t0"))
    assert cycle.code == "C019"
    assert len(cycle.message) < 500


def test_c026_a_limit_below_one() -> None:
    assert found(flow("a -> a when x as again(0)", "a -> done", nodes="a")) == ["C026 5:26"]
    assert found(flow("a -> a when x as again(-1)", "a -> done", nodes="a")) == ["C026 5:26"]
    assert found(flow("a -> a when x as again(1)", "a -> done", nodes="a")) == []
