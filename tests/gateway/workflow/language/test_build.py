"""Declarations to the model: the whole language once, and every mistake a declaration can hold."""

from typing import Any

import pytest

from gateway.workflow.language import parse_flow
from gateway.workflow.model import (
    AgentNode,
    AwaitMode,
    ComputeNode,
    FieldCondition,
    Flow,
    HumanNode,
    JudgeNode,
    RouterMode,
    RouterNode,
    ToolNode,
    ValueType,
)
from tests.gateway.workflow.helpers import found, only
from tests.gateway.workflow.samples import EVERYTHING

END = "workflow w:\n  entry: a\n  a -> done\n"
TOOL = 'tool a:\n  command: "x"\n'


@pytest.fixture(scope="module")
def flow() -> Flow:
    return parse_flow(EVERYTHING, file="all.bot")


def test_the_whole_language_has_no_finding(flow: Flow) -> None:
    assert flow.warnings == ()
    assert flow.workflow.name == "everything"


def test_declarations(flow: Flow) -> None:
    assert {name: variable.default for name, variable in flow.variables.items()} == {
        "place": "${PROJECT_DIR}",
        "count": 3,
        "share": 0.5,
        "careful": True,
        "settings": {"a": [1, None, {"b": "c"}], "d": -1.5},
        "names": ["x", "y"],
        "given": None,
        "extra": 1,
    }
    assert [name for name, variable in flow.variables.items() if not variable.has_default] == ["given"]
    assert flow.vars["names"].type is ValueType.STRING_LIST
    assert dict(flow.presets["quick"].values) == {"count": 1, "careful": False}
    brief = flow.attachments["brief"]
    assert (brief.kind, brief.accept_mime, brief.required) == ("file", ("text/plain", "text/markdown"), True)
    assert flow.attachments["sketch"].kind == "image"
    assert flow.prompts["system_text"].text == (
        "You are careful.\n  Indented more: {{vars.place}}\n\n## not a comment\n"
        "{{attachments.brief.mime}} {{run.id}} {{loop.again.iteration}}"
    )
    assert [(field.name, field.type.value, field.enum) for field in flow.schemas["verdict"].fields] == [
        ("approved", "bool", ()),
        ("score", "float", ()),
        ("why", "string", ("good", "bad")),
        ("issues", "string[]", ()),
        ("raw", "json", ()),
    ]
    assert [(band.low, band.high, band.text) for band in flow.cursors["tone"].bands] == [
        (0.0, 0.5, "calm"),
        (0.5, 1.0, "loud"),
    ]
    assert dict(flow.cursors["style"].values) == {"short": "Be brief.", "long": "Take your time."}
    assert flow.mcp_servers["files"].args == ("--root", "/workspace")
    auth = flow.mcp_servers["remote"].auth
    assert auth is not None
    assert (auth.client_id, auth.scopes) == ("me", ("read",))


def test_nodes(flow: Flow) -> None:
    writer = flow.nodes["writer"]
    assert isinstance(writer, AgentNode)
    assert writer.tools == ("git_diff", "read file", "mcp.files", "remote.*")
    assert writer.await_ is AwaitMode.BEST_EFFORT
    assert (writer.input, writer.session, writer.readonly) == ("verdict", "inherit_if_available", False)
    assert dict(writer.cursors) == {"enabled": True, "tone": 0.7, "style": "short"}
    assert writer.memory is not None
    assert (writer.memory.autoload, writer.memory.write) == (("notes.md",), False)
    critic = flow.nodes["critic"]
    assert isinstance(critic, JudgeNode)
    assert critic.reasoning_effort == "${EFFORT}"
    pick = flow.nodes["pick"]
    assert isinstance(pick, RouterNode)
    assert (pick.mode, pick.multi) == (RouterMode.LLM, True)
    approve = flow.nodes["approve"]
    assert isinstance(approve, HumanNode)
    assert approve.min_answers == 2
    test = flow.nodes["test"]
    assert isinstance(test, ToolNode)
    assert test.command == "make test | tee log\necho '{\"ok\": true}'\n"
    script = flow.nodes["script"]
    assert isinstance(script, ToolNode)
    assert (script.language, script.script) == ("py", '\nprint({{input.x}}, "{not a template}")\n')
    sums = flow.nodes["sums"]
    assert isinstance(sums, ComputeNode)
    assert [field.name for field in sums.expr] == ["total", "label"]


def test_the_workflow(flow: Flow) -> None:
    workflow = flow.workflow
    budget = workflow.budget
    assert budget is not None
    assert (budget.max_duration, budget.max_duration_s, budget.max_cost_usd) == ("1h30m", 5400.0, 12.5)
    assert (workflow.entry, workflow.worktree, workflow.capabilities) == ("writer", "auto", ("board.move",))
    again = workflow.edges[2]
    assert isinstance(again.condition, FieldCondition)
    assert (again.condition.name, again.condition.negated) == ("approved", True)
    assert again.loop is not None
    assert (again.loop.name, again.loop.limit) == ("again", 3)
    assert [(entry.key, entry.value) for entry in again.with_] == [
        ("question", "{{outputs.critic.why}}"),
        ("n", "x"),
    ]


def test_the_sandbox(flow: Flow) -> None:
    sandbox: Any = flow.workflow.sandbox
    assert (sandbox.mode, sandbox.user, sandbox.host_state, sandbox.pids, sandbox.memory) == (
        "inline",
        "1000:1000",
        "none",
        256,
        "2g",
    )
    assert dict(sandbox.build.args) == {"VERSION": "1.2.3"}
    assert dict(sandbox.env) == {"NODE_ENV": "test", "RETRIES": "3"}
    assert sandbox.secrets == {"TOKEN": {"env": "GITHUB_TOKEN", "hosts": ["api.github.com"]}}
    network = sandbox.network
    assert (network.mode, network.preset, network.tls) == ("allowlist", "iterion-default", "inspect")
    assert [rule.text for rule in network.rules] == ["api.github.com", "!evil.site"]
    assert {rule.position.line for rule in network.rules} == {network.positions["rules"].line}
    assert {name: [item.text for item in items] for name, items in network.hosts.items()} == {
        "db.internal": ["10.0.0.5"]
    }
    assert network.http == {"methods": ["GET", "POST"], "paths": {"/a": True}}


# -- Mistakes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "findings"),
    [
        ("a -> b\n" + TOOL + END, ["E002 1:1"]),
        ("agnt a:\n  x: y\n" + TOOL + END, ["E002 1:1"]),
        ("entry: a\n" + TOOL + END, ["E002 1:1"]),
        ("agent:\n  model: m\n" + TOOL + END, ["E002 1:1"]),
        ("prompt:\n  model: m\n" + TOOL + END, ["E002 1:1"]),
        ("vrs:\n  a: int\n" + TOOL + END, ["E002 1:1"]),
        ("schema s:\nschema s:\n" + TOOL + END, ["E004 2:1"]),
        ("prompt s:\n  a\nprompt s:\n  b\n" + TOOL + END, ["E004 3:8"]),
        ("vars:\n  a: int\nvars:\n  a: int\n" + TOOL + END, ["E004 4:3"]),
        ("presets:\n  a: {}\npresets:\n  a: {}\n" + TOOL + END, ["E004 4:3"]),
        (TOOL + TOOL + END, ["C041 3:6"]),
        ("agent done:\n  model: m\n" + TOOL + END, ["C042 1:7"]),
        ("tool fail:\n  command: m\n" + TOOL + END, ["C042 1:6"]),
        (TOOL + END + "workflow v:\n  entry: a\n  a -> done\n", ["C007 6:10"]),
        (TOOL + "workflow w:\n", ["C008 3:10"]),
        ("agent a:\n" + END, ["E003 1:7"]),
        ("tool a:\n  input: s\nschema s:\n" + END, ["E003 1:6"]),
        ('tool a:\n  command: "x"\n  script: "y"\n  language: sh\n' + END, ["E003 1:6"]),
        ('tool a:\n  script: "y"\n' + END, ["E003 2:12"]),
        ('tool a:\n  command: "y"\n  language: sh\n' + END, ["E003 3:13"]),
        ("tool a:\n  command: [x]\n" + END, ["E003 2:12"]),
        ("compute a:\n  await: wait_all\n" + END, ["E003 1:9"]),
        ('compute a:\n  expr: "x"\n' + END, ["E003 2:9"]),
        ("compute a:\n  expr:\n    x: 1\n" + END, ["E003 3:8"]),
        ('compute a:\n  expr:\n    "a b": "1"\n' + END, ["E003 3:5"]),
        ('compute a:\n  expr:\n    x: "1"\n    x: "2"\n' + END, ["E004 4:5"]),
        ('compute a:\n  expr:\n    x: "1 +"\n' + END, ["C040 3:12"]),
        (TOOL + END + '  a -> fail when "a +"\n', ["C040 6:19"]),
        ("tool a:\n  command: x\n  a -> b\n" + END, ["E002 3:3"]),
        ("tool a:\n  command: x\n  tool b:\n    command: x\n" + END, ["E002 3:3"]),
        ("tool a:\n  command: x\n  prompt b:\n    command: x\n" + END, ["E002 3:3"]),
        ("tool a:\n  command: x\n  command: y\n" + END, ["E004 3:3"]),
        ("tool a:\n  command:\n" + END, ["E003 2:3"]),
        ("tool a:\n  command: x\n    y: z\n" + END, ["E003 3:5"]),
    ],
)
def test_mistakes(text: str, findings: list[str]) -> None:
    assert sorted(found(text)) == sorted(findings)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("agnt a:\n", "did you mean 'agent'?"),
        (
            "zzz a:\n",
            "a file holds vars, presets, attachments, prompt, schema, cursor, mcp_server,",
        ),
        ("sandbox: auto\n", "indent it, under 'workflow NAME:'"),
        ("agent:\n", "write 'agent NAME:'"),
    ],
)
def test_hints(text: str, hint: str) -> None:
    assert only(text + TOOL + END).hint.startswith(hint)


def test_an_unknown_property_without_a_likeness_lists_all() -> None:
    assert only("router a:\n  zzz: 1\n" + END).hint == (
        "it has mode, model, backend, provider, system, user, multi, reasoning_effort"
    )
