"""Blocks become specs, node blocks refine them, and every mistake is told with its line."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from drivers.spec import BuildSpec, NetworkSpec, SandboxSpec
from gateway.workflow.model import BuildBlock, ListItem, NetworkBlock, SandboxBlock, SourcePos
from gateway.workflow.sandbox_blocks import (
    Expansion,
    SandboxConfigError,
    network_spec,
    refine,
    refine_network,
    spec_from_block,
)
from policy.rules import RuleSource, RuleText

EXPANSION = Expansion(environ={"HOME": "/home/jo", "TOKEN": "${HOME}"}, workspace="/w/app")


def at(line: int) -> SourcePos:
    return SourcePos(file="flow.bot", line=line, column=3)


def items(*texts: str, line: int = 20) -> tuple[ListItem, ...]:
    return tuple(ListItem(text=text, position=at(line + index)) for index, text in enumerate(texts))


def rule(text: str, line: int, origin: str = "user") -> RuleText:
    return RuleText(text, RuleSource(origin, "flow.bot", line))


def block(positions: Mapping[str, int] | None = None, **fields: Any) -> SandboxBlock:
    where = {name: at(line) for name, line in (positions or {}).items()}
    return SandboxBlock(word=False, position=at(10), positions=where, **fields)


def network(positions: Mapping[str, int] | None = None, **fields: Any) -> NetworkBlock:
    where = {name: at(line) for name, line in (positions or {}).items()}
    return NetworkBlock(position=at(15), positions=where, **fields)


def spec(written: SandboxBlock, mode: str = "inline", expansion: Expansion = EXPANSION) -> SandboxSpec:
    return spec_from_block(written, expansion, origin="user", mode=mode, host_state="auto")


def problems(written: SandboxBlock, mode: str = "inline") -> tuple[str, ...]:
    with pytest.raises(SandboxConfigError) as caught:
        spec(written, mode)
    assert str(caught.value) == "\n".join(caught.value.problems)
    assert caught.value.exit_code == 2
    return caught.value.problems


def test_every_field_of_a_block_reaches_the_spec() -> None:
    written = block(
        image="ghcr.io/acme/tools:1",
        user="1000:1000",
        workspace_folder="/workspace",
        post_create="npm ci --cache ${CACHE}",
        env={"A": "1"},
        mounts=items("type=tmpfs,target=/t"),
        cpus=1.5,
        memory="2g",
        pids=100,
        network=network(
            mode="allowlist",
            preset="iterion-default",
            inherit="replace",
            rules=items("a.example", "!b.example"),
            enforcement="cooperative",
            tls="inspect",
            inspect_hosts=items("c.example"),
            exclude_hosts=items("d.example"),
            hosts={"e.example": items("192.0.2.1")},
        ),
    )
    assert spec(written) == SandboxSpec(
        mode="inline",
        image="ghcr.io/acme/tools:1",
        user="1000:1000",
        workspace_folder="/workspace",
        post_create="npm ci --cache ${CACHE}",
        env={"A": "1"},
        mounts=("type=tmpfs,target=/t",),
        cpus=1.5,
        memory="2g",
        pids=100,
        network=NetworkSpec(
            mode="allowlist",
            preset="iterion-default",
            inherit="replace",
            rules=(rule("a.example", 20), rule("!b.example", 21)),
            enforcement="cooperative",
            tls="inspect",
            inspect_hosts=("c.example",),
            exclude_hosts=("d.example",),
            hosts={"e.example": ("192.0.2.1",)},
        ),
    )


def test_a_build_block_is_taken_with_its_defaults() -> None:
    bare = spec(block(build=BuildBlock(position=at(11))))
    assert bare.build == BuildSpec()
    full = BuildBlock(dockerfile="d/Dockerfile", context="d", args={"V": "${HOME}"}, position=at(11))
    assert spec(block(build=full)).build == BuildSpec(dockerfile="d/Dockerfile", context="d", args={"V": "/home/jo"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain $HOME", "plain $HOME"),
        ("${HOME}/x", "/home/jo/x"),
        ("${PROJECT_DIR}:${HOME}", "/w/app:/home/jo"),
        ("${TOKEN}", "${HOME}"),  # what a value holds is data
        ("${localEnv:HOME}/x", "/home/jo/x"),
        ("${localEnv:NONE:http://x:80}", "http://x:80"),
        ("${localWorkspaceFolder}", "/w/app"),
        ("${localWorkspaceFolderBasename}", "app"),
    ],
)
def test_variables_of_the_host_are_expanded_once(text: str, expected: str) -> None:
    assert spec(block(image="i", env={"V": text})).env == {"V": expected}


def test_a_variable_in_a_value_of_the_environment_is_never_expanded() -> None:
    expansion = Expansion(environ={"A": "${localEnv:SECRET}", "SECRET": "s"}, workspace="/w")
    assert spec(block(image="i", env={"V": "${A}"}), expansion=expansion).env == {"V": "${localEnv:SECRET}"}


def test_a_missing_variable_is_told_with_its_place() -> None:
    written = block({"env": 12, "image": 11}, image="i:${TAG}", env={"V": "${NONE}"})
    found = problems(written)
    assert found[0] == ("flow.bot:11: sandbox.image: the environment has no TAG; set it, or write the value itself")
    assert found[1].startswith("flow.bot:12: sandbox.env.V: the environment has no NONE")


def test_problems_stand_where_the_field_was_written() -> None:
    written = block(
        {"image": 11, "user": 12, "workspace_folder": 13, "env": 14},
        image="-x",
        build=BuildBlock(dockerfile="../D", position=at(30)),
        user="-1",
        workspace_folder="here",
        env={"A=B": "1"},
        network=network({"preset": 16, "mode": 17}, preset="none-such", rules=items("http://x/")),
    )
    found = problems(written)
    for start in (
        "flow.bot:11: sandbox.image:",
        "flow.bot:12: sandbox.user:",
        "flow.bot:13: sandbox.workspace_folder:",
        "flow.bot:14: sandbox.env:",
        "flow.bot:17: sandbox.network.mode:",
        "flow.bot:30: sandbox.build.dockerfile:",
    ):
        assert any(problem.startswith(start) for problem in found), start
    assert any("flow.bot:20" in problem and "http://x/" in problem for problem in found)


def test_a_problem_of_a_field_that_was_not_written_stands_at_the_block() -> None:
    assert problems(block(network=network(rules=items("a.example"))), "auto")[0].startswith("flow.bot:15: ")
    assert problems(block())[0].startswith("flow.bot:10: sandbox.mode: `inline` needs an image")


def test_what_this_version_does_not_have_is_refused_by_name() -> None:
    written = block({"secrets": 12}, image="i", secrets={"T": {}}, network=network({"http": 18}, http=[{"x": 1}]))
    assert problems(written) == (
        "flow.bot:12: sandbox.secrets: not supported by this version; remove it",
        "flow.bot:18: sandbox.network.http: not supported by this version; remove it",
    )


def test_a_network_block_alone_gives_a_network_spec() -> None:
    written = network(mode="denylist", rules=items("!a.example"))
    assert network_spec(written, origin="cli").rules == (rule("!a.example", 20, "cli"),)
    with pytest.raises(SandboxConfigError, match=r"network\.http: not supported"):
        network_spec(network(http={}), origin="user")


# -- Refining ---------------------------------------------------------------------------------------------

PARENT = SandboxSpec(
    mode="inline",
    image="parent:1",
    user="jo",
    workspace_folder="/workspace",
    post_create="npm ci",
    env={"A": "parent", "B": "parent"},
    mounts=("type=tmpfs,target=/a",),
    cpus=1.0,
    memory="1g",
    pids=50,
    network=NetworkSpec(
        mode="allowlist",
        preset="iterion-default",
        rules=(rule("parent.example", 1),),
        hosts={"h.example": ("192.0.2.1",), "p.example": ("192.0.2.2",)},
    ),
)


def refined(written: SandboxBlock, parent: SandboxSpec = PARENT) -> SandboxSpec:
    return refine(parent, written, EXPANSION, host_state="auto")


def test_a_block_without_an_image_adds_to_the_parent() -> None:
    changed = refined(block(env={"B": "node", "C": "node"}, mounts=items("type=tmpfs,target=/b"), cpus=2.0, user="al"))
    assert changed.env == {"A": "parent", "B": "node", "C": "node"}
    assert changed.mounts == ("type=tmpfs,target=/a", "type=tmpfs,target=/b")
    assert (changed.image, changed.user, changed.cpus, changed.memory) == ("parent:1", "al", 2.0, "1g")
    assert (changed.mode, changed.post_create, changed.network) == ("inline", "npm ci", PARENT.network)


def test_an_empty_block_changes_nothing() -> None:
    assert refined(block()) == PARENT
    assert refined(block(mode="auto")) == PARENT


def test_a_block_with_an_image_is_another_sandbox_under_the_same_policy_and_limits() -> None:
    changed = refined(block(image="node:2", env={"C": "node"}, pids=10))
    assert changed == SandboxSpec(
        mode="inline",
        image="node:2",
        env={"C": "node"},
        cpus=1.0,
        memory="1g",
        pids=10,
        network=PARENT.network,
    )
    assert refined(block(build=BuildBlock(position=at(11)))).image is None


@pytest.mark.parametrize("inherit", ["merge", "append", None])
def test_merging_puts_the_node_after_the_parent(inherit: str | None) -> None:
    written = network(inherit=inherit, rules=items("!parent.example"), hosts={"h.example": items("192.0.2.9")})
    changed = refined(block(network=written)).network
    assert changed.mode == "allowlist"
    assert changed.preset == "iterion-default"
    assert changed.rules == (rule("parent.example", 1), rule("!parent.example", 20, "node"))
    assert changed.hosts == {"h.example": ("192.0.2.9",), "p.example": ("192.0.2.2",)}


def test_replacing_drops_rules_and_preset_but_never_the_mode() -> None:
    changed = refined(block(network=network(inherit="replace", rules=items("node.example")))).network
    assert (changed.mode, changed.preset) == ("allowlist", None)
    assert changed.rules == (rule("node.example", 20, "node"),)
    opened = refined(block(network=network(inherit="replace", mode="open"))).network
    assert (opened.mode, opened.rules) == ("open", ())


def test_a_preset_of_the_node_replaces_the_preset_of_the_parent() -> None:
    parent = NetworkSpec(mode="allowlist", preset="other", rules=(rule("a.example", 1),))
    changed = refine_network(parent, NetworkSpec(preset="iterion-default"))
    assert (changed.preset, changed.rules) == ("iterion-default", parent.rules)


def test_enforcement_and_tls_are_inherited_unless_the_node_says_otherwise() -> None:
    parent = replace(PARENT, network=NetworkSpec(mode="allowlist", enforcement="cooperative", tls="inspect"))
    kept = refined(block(network=network(rules=items("a.example"))), parent).network
    assert (kept.enforcement, kept.tls) == ("cooperative", "inspect")
    said = refined(block(network=network(enforcement="enforced", tls="passthrough")), parent).network
    assert (said.enforcement, said.tls) == ("enforced", "passthrough")


def test_a_bad_node_block_is_told_with_its_place() -> None:
    with pytest.raises(SandboxConfigError, match=r"flow\.bot:12: sandbox\.user"):
        refined(block({"user": 12}, user="-x"))
