"""Variables: defaults, presets, assignments, and errors that name them."""

import pytest

from gateway.errors import ConfigError, UsageError
from gateway.workflow.language import parse_flow
from gateway.workflow.variables import expand_variables, parse_assignments, resolve_variables

FLOW = parse_flow(
    """\
vars:
  name: string = "world"
  count: int
  tags: string[] = ["a"]
  conf: json = {"k": 1}
presets:
  big:
    count: 100
    name: "big"
tool t:
  command: "true"
workflow w:
  vars:
    count: int = 3
    must: bool
  entry: t
  t -> done
""",
    file="flow.bot",
)


def test_assignments_win_over_the_preset_and_the_default() -> None:
    assert resolve_variables(FLOW, {"must": "true", "count": "7"}, preset="big") == {
        "name": "big",
        "count": 7,
        "tags": ["a"],
        "conf": {"k": 1},
        "must": True,
    }


def test_the_variables_of_the_workflow_win_over_those_of_the_file() -> None:
    assert resolve_variables(FLOW, {"must": "false"})["count"] == 3


def test_a_variable_without_a_value_is_told_with_its_place() -> None:
    with pytest.raises(UsageError, match=r"no value for must \(flow\.bot:15:5\)\n  --var must=VALUE"):
        resolve_variables(FLOW, {})


@pytest.mark.parametrize(
    ("assignments", "preset", "message"),
    [
        ({"must": "maybe"}, None, "--var must: 'maybe' is not true or false\n  'must' is declared as bool"),
        ({"nmae": "x"}, None, "flow.bot has no variable 'nmae'\n  did you mean 'name'?"),
        ({"zzzzz": "x"}, None, "flow.bot has no variable 'zzzzz'\n  there are: name, count, tags, conf, must"),
        ({}, "bigg", "flow.bot has no preset 'bigg'\n  did you mean 'big'?"),
        ({}, "zzz", "flow.bot has no preset 'zzz'\n  there are: big"),
    ],
)
def test_what_does_not_fit_is_named(assignments: dict[str, str], preset: str | None, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve_variables(FLOW, assignments, preset=preset)
    assert str(caught.value) == message


def test_a_file_without_variables_says_so() -> None:
    bare = parse_flow('tool t:\n  command: "true"\nworkflow w:\n  entry: t\n  t -> done\n', file="bare.bot")
    assert resolve_variables(bare, {}) == {}
    with pytest.raises(UsageError, match="there are: none"):
        resolve_variables(bare, {"x": "1"})
    with pytest.raises(UsageError, match="there are: none"):
        resolve_variables(bare, {}, preset="x")


def test_assignments_split_at_the_first_equals_sign() -> None:
    assert parse_assignments(["a=1", "b=x=y", "c=", "a=2"]) == {"a": "2", "b": "x=y", "c": ""}


@pytest.mark.parametrize("text", ["a", "", "=x"])
def test_other_texts_are_no_assignments(text: str) -> None:
    with pytest.raises(UsageError, match="is not an assignment\n  write --var NAME=VALUE"):
        parse_assignments([text])


def test_texts_of_the_file_may_hold_variables_of_the_environment() -> None:
    flow = parse_flow(
        'vars:\n  place: string = "${PROJECT_DIR}/x {{vars.no}}"\n  tags: string[] = ["${A}", "b"]\n  given: string\n'
        '  data: json = ["${A}"]\n  count: int = 1\n'
        'tool t:\n  command: "true"\nworkflow w:\n  entry: t\n  t -> done\n',
        file="flow.bot",
    )
    values = resolve_variables(flow, {"given": "${A}"})
    environ = {"PROJECT_DIR": "/work", "A": "a"}
    assert expand_variables(flow, values, assigned={"given"}, environ=environ) == {
        "place": "/work/x {{vars.no}}",
        "tags": ["a", "b"],
        "given": "${A}",
        "data": ["${A}"],
        "count": 1,
    }
    with pytest.raises(ConfigError) as caught:
        expand_variables(flow, values, assigned={"given"}, environ={"A": "a"})
    assert str(caught.value) == (
        "flow.bot:2:3: variable 'place': ${PROJECT_DIR}: the environment has no PROJECT_DIR; set it"
    )
