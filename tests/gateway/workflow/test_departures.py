"""Which edges are taken, how loops and turns count, and what edges bring along."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from gateway.workflow.departures import EdgeChooser
from gateway.workflow.language import parse_flow
from gateway.workflow.model import Flow, JsonValue, RouterMode, RouterNode
from gateway.workflow.node_errors import NodeError
from gateway.workflow.topology import Topology


class Chooser:
    """Chooses from node ``a`` of a flow."""

    def __init__(self, edges: str, *, kind: str = 'tool a:\n  command: "true"', **environ: str) -> None:
        lines = "".join(f"  {line.strip()}\n" for line in edges.strip().splitlines())
        text = f"{kind}\nworkflow w:\n  entry: a\n{lines}  vars:\n    v: int = 1\n"
        targets = sorted(set(re.findall(r"-> ([bcd])\b", edges)))
        text += "".join(f"  {name} -> done\n" for name in targets if f"{name} ->" not in edges)
        text += "".join(f'tool {name}:\n  command: "true"\n' for name in targets)
        self.flow: Flow = parse_flow(text, file="flow.bot")
        self.chooser = EdgeChooser(Topology.of(self.flow).leaving, environ)

    def departures(self, output: Mapping[str, JsonValue], **input_: JsonValue) -> dict[str, Any]:
        node = self.flow.nodes["a"]
        context = {"vars": {"v": 1}, "outputs": {"a": output}, "run": {"id": "r1"}}
        return {found.edge.target: found.input for found in self.chooser.choose(node, input_, context)}

    def __call__(self, **output: JsonValue) -> str:
        return " ".join(self.departures(output))


def test_the_first_condition_that_holds_wins_and_the_edge_without_one_is_the_fallback() -> None:
    choose = Chooser(
        """a -> d
        a -> b when x
        a -> c when "outputs.a.n > 1"
        a -> done when not y"""
    )
    assert choose(x=True, n=2, y=False) == "b"
    assert choose(x=False, n=2, y=False) == "c"
    assert choose(x=False, n=1, y=False) == "done"
    assert choose(x=False, n=1, y=True) == "d"


def test_an_expression_sees_the_input_of_its_source_and_the_variables() -> None:
    choose = Chooser('a -> b when "length(input.items) >= 2 && vars.v == 1"\na -> c')
    assert list(choose.departures({}, items=[1, 2])) == ["b"]
    assert list(choose.departures({}, items=[])) == ["c"]


def test_a_loop_ends_where_the_file_says() -> None:
    choose = Chooser("a -> b when x as again(2)\na -> c")
    assert [choose(x=True) for _ in range(4)] == ["b", "b", "c", "c"]
    assert choose.chooser.loops == {"again": {"iteration": 2}}


def test_an_unconditional_loop_gives_way_when_it_is_spent() -> None:
    choose = Chooser("a -> b as again(1)\na -> c")
    assert [choose() for _ in range(2)] == ["b", "c"]


def test_edges_that_share_a_loop_share_its_count() -> None:
    choose = Chooser("a -> b when x as again(2)\na -> c when not x as again(2)\na -> done")
    assert [choose(x=True), choose(x=False), choose(x=True), choose(x=False)] == ["b", "c", "done", "done"]


def test_a_spent_loop_without_another_edge_is_an_error_at_its_limit() -> None:
    choose = Chooser("a -> b as again(1)")
    choose()
    with pytest.raises(NodeError) as caught:
        choose()
    assert str(caught.value) == (
        "flow.bot:5:13: node 'a': no edge is left: the limit of again (1) is reached\n"
        "  raise the limit, or add an edge for this case, such as 'a -> fail'"
    )


def test_conditions_of_which_none_holds_are_an_error() -> None:
    choose = Chooser("a -> b when x\na -> c when not x as again(1)")
    choose(x=False)
    with pytest.raises(NodeError, match=r"the limit of again \(1\)"):
        choose(x=False)
    router = Chooser("a -> b when x\na -> c when not x", kind="router a:\n  mode: fan_out_all")
    assert router(x=True) == "b"


def test_a_router_with_conditions_only_may_find_none() -> None:
    choose = Chooser('a -> b when "input.n > 1"\na -> c when x\na -> done when not x')
    choose.flow = parse_flow(
        'tool a:\n  command: "true"\nworkflow w:\n  entry: a\n  a -> fail when x\n  a -> done when not x\n',
        file="flow.bot",
    )
    leaving = {"a": choose.flow.workflow.edges[:1]}
    choose.chooser = EdgeChooser(leaving, {})
    with pytest.raises(NodeError, match="none of the conditions of its edges holds\n  add an edge without 'when'"):
        choose(x=False)


def test_a_node_that_no_edge_leaves_ends_its_branch() -> None:
    choose = Chooser("a -> b\nb -> done")
    assert choose.chooser.choose(choose.flow.nodes["b"], {}, {"outputs": {"b": {}}})[0].edge.target == "done"
    assert EdgeChooser({}, {}).choose(choose.flow.nodes["b"], {}, {"outputs": {"b": {}}}) == ()


@pytest.mark.parametrize("mode", [RouterMode.FAN_OUT_ALL, None])
def test_a_router_fans_out_to_every_edge_that_holds(mode: RouterMode | None) -> None:
    choose = Chooser(
        "a -> b\na -> c when x\na -> d when not x\na -> done as once(1)", kind="router a:\n  mode: fan_out_all"
    )
    router = choose.flow.nodes["a"]
    assert isinstance(router, RouterNode)
    choose.flow = replace(choose.flow, nodes={"a": replace(router, mode=mode)})
    assert choose(x=True) == "b c done"
    assert choose(x=False) == "b d"


def test_a_round_robin_router_takes_turns_among_the_edges_that_hold() -> None:
    choose = Chooser("a -> b\na -> c when x\na -> d", kind="router a:\n  mode: round_robin")
    assert [choose(x=True) for _ in range(4)] == ["b", "c", "d", "b"]
    assert [choose(x=False) for _ in range(2)] == ["b", "d"]


def test_a_round_robin_router_without_an_edge_that_holds_is_an_error() -> None:
    choose = Chooser("a -> b when x\na -> c when not x as once(1)", kind="router a:\n  mode: round_robin")
    choose(x=False)
    with pytest.raises(NodeError, match="no edge is left"):
        choose(x=False)


def test_a_condition_router_takes_one_edge() -> None:
    choose = Chooser("a -> b when x\na -> c", kind="router a:\n  mode: condition")
    assert [choose(x=True), choose(x=False)] == ["b", "c"]


def test_without_a_mapping_the_output_is_the_next_input() -> None:
    assert Chooser("a -> b").departures({"n": 1}) == {"b": {"n": 1}}


def test_a_mapping_keeps_types_and_joins_texts() -> None:
    choose = Chooser(
        """a -> b as again(3) with {
            whole: "{{outputs.a.items}}",
            text: "{{run.id}}-{{loop.again.iteration}} of {{input.n}}",
            host: "${PROJECT_DIR}/x"
        }""",
        PROJECT_DIR="/w",
    )
    expected = {"whole": [1, {"a": None}], "text": "r1-1 of 7", "host": "/w/x"}
    assert choose.departures({"items": [1, {"a": None}]}, n=7) == {"b": expected}


@pytest.mark.parametrize(
    ("edges", "output", "message"),
    [
        ("a -> b when x\na -> c", {}, "5:15: node 'a': its output has no 'x', which the edge to 'b' asks for"),
        ("a -> b when x\na -> c", {"x": 1}, "5:15: node 'a': 'x' of its output is a number, and 'when' needs true"),
        (
            'a -> b when "1 < outputs.a.x"\na -> c',
            {},
            "5:20: node 'a': the condition of the edge to 'b': outputs.a has no 'x'",
        ),
        ('a -> b when "1 + 1"\na -> c', {}, "5:16: node 'a': the condition of the edge to 'b': a condition must be"),
        (
            'a -> b with { k: "x {{outputs.a.x}}" }',
            {},
            "node 'a': the edge to 'b' cannot be taken: k: {{outputs.a.x}}: outputs.a has no 'x'",
        ),
        ('a -> b with { k: "${NONE}" }', {}, "cannot be taken: k: ${NONE}: the environment has no NONE"),
    ],
)
def test_what_has_no_value_is_told_with_its_place(edges: str, output: dict[str, JsonValue], message: str) -> None:
    with pytest.raises(NodeError) as caught:
        Chooser(edges)(**output)
    assert str(caught.value).startswith("flow.bot:")
    assert message in str(caught.value)
