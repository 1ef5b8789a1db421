"""The precedence chain, tier by tier and at its corners."""

import itertools
from typing import Any

import pytest

from drivers.base import DriverError
from drivers.spec import NetworkSpec, SandboxSpec
from gateway.errors import ConfigError, UsageError
from gateway.workflow.model import BuildBlock, ListItem, NetworkBlock, SandboxBlock, SourcePos
from gateway.workflow.resolution import (
    EntryPoint,
    Placement,
    Request,
    SandboxConfigError,
    builtin_image,
    degrade,
    resolve,
    resolve_node,
)

SLIM = "ghcr.io/socialgouv/iterion-sandbox-slim"
BLOCK_SOURCE = "workflow sandbox: block (flow.bot)"
NODE_SOURCE = "node sandbox: block (flow.bot)"


def word(mode: str) -> SandboxBlock:
    return SandboxBlock(word=True, mode=mode, position=SourcePos(file="flow.bot", line=4, column=3))


def block(**fields: Any) -> SandboxBlock:
    return SandboxBlock(word=False, position=SourcePos(file="flow.bot", line=4, column=3), **fields)


def network(mode: str | None, *rules: str, **fields: Any) -> NetworkBlock:
    position = SourcePos(file="flow.bot", line=6, column=5)
    return NetworkBlock(
        mode=mode, rules=tuple(ListItem(text=text, position=position) for text in rules), position=position, **fields
    )


def request(workflow: SandboxBlock | None = None, flag: str | None = None, **fields: Any) -> Request:
    fields.setdefault("version", "1.2.3")
    return Request(workflow=workflow, mode_flag=flag, **fields)


# -- Mode -------------------------------------------------------------------------------------------------

INLINE = block(image="acme:1")
AUTO, NONE = word("auto"), word("none")
FLAG, OVERRIDE, DEFAULT = "cli flag --sandbox", "ITERION_SANDBOX_OVERRIDE", "ITERION_SANDBOX_DEFAULT"


@pytest.mark.parametrize(
    ("flag", "override", "workflow", "default", "mode", "source"),
    [
        # the flag
        ("none", "auto", INLINE, "auto", "none", FLAG),
        ("none", "", AUTO, "", "none", FLAG),
        ("auto", "none", NONE, "none", "auto", FLAG),
        ("auto", "none", None, "none", "auto", FLAG),
        ("auto", "", AUTO, "", "auto", FLAG),
        ("auto", "", INLINE, "none", "inline", BLOCK_SOURCE),
        ("auto", "", block(build=BuildBlock(position=INLINE.position)), "", "inline", BLOCK_SOURCE),
        ("auto", "", block(env={"A": "1"}), "", "auto", FLAG),
        # the override, same tier
        (None, "none", INLINE, "auto", "none", OVERRIDE),
        (None, "none", AUTO, "auto", "none", OVERRIDE),
        (None, "auto", NONE, "none", "auto", OVERRIDE),
        (None, "auto", INLINE, "none", "inline", BLOCK_SOURCE),
        (None, "auto", None, "none", "auto", OVERRIDE),
        # the workflow
        (None, "", AUTO, "none", "auto", BLOCK_SOURCE),
        (None, "", NONE, "auto", "none", BLOCK_SOURCE),
        (None, "", block(mode="none"), "auto", "none", BLOCK_SOURCE),
        (None, "", INLINE, "none", "inline", BLOCK_SOURCE),
        (None, "", block(mode="auto", env={"A": "1"}), "none", "auto", BLOCK_SOURCE),
        # the environment, then the product
        (None, "", None, "none", "none", DEFAULT),
        (None, "", None, "auto", "auto", DEFAULT),
        (None, "", None, "", "auto", "default"),
    ],
)
def test_mode_and_source(
    flag: str | None, override: str, workflow: SandboxBlock | None, default: str, mode: str, source: str
) -> None:
    found = resolve(request(workflow, flag, environ={OVERRIDE: override, DEFAULT: default}))
    assert (found.mode, found.source) == (mode, source)
    assert (found.spec is None) == (mode == "none")
    if found.spec is not None:
        assert found.spec.mode == mode
    assert found.explicit == (source not in (DEFAULT, "default"))


def test_every_combination_resolves_and_none_of_the_top_tier_always_wins() -> None:
    choices = (None, "auto", "none")
    for flag, override, default, workflow, git, entry in itertools.product(
        choices, ("", "auto", "none"), ("", "auto", "none"), (None, AUTO, NONE, INLINE), (True, False), EntryPoint
    ):
        found = resolve(
            request(
                workflow,
                flag,
                environ={OVERRIDE: override, DEFAULT: default},
                in_git_repository=git,
                entry_point=entry,
            )
        )
        assert (found.spec is None) == (found.mode == "none")
        if flag == "none" or (flag is None and override == "none"):
            assert found.mode == "none"
        if not git and not found.explicit:
            assert found.mode == "none"
        if found.explicit:
            assert found.mode == found.wanted


def test_an_embedded_engine_stays_neutral() -> None:
    found = resolve(request(entry_point=EntryPoint.EMBEDDED))
    assert (found.mode, found.source, found.explicit, found.warnings) == ("none", "default", False, ())
    assert resolve(request(AUTO, entry_point=EntryPoint.EMBEDDED)).mode == "auto"


@pytest.mark.parametrize("default", ["auto", ""])
def test_an_ambient_sandbox_does_not_apply_outside_a_git_repository_and_says_nothing(default: str) -> None:
    found = resolve(request(in_git_repository=False, environ={DEFAULT: default}))
    assert (found.mode, found.wanted, found.spec) == ("none", "auto", None)
    assert (found.skip_reason, found.warnings) == (None, ())


@pytest.mark.parametrize(("workflow", "flag"), [(AUTO, None), (INLINE, None), (None, "auto")])
def test_an_explicit_sandbox_applies_outside_a_git_repository(workflow: SandboxBlock | None, flag: str | None) -> None:
    assert resolve(request(workflow, flag, in_git_repository=False)).spec is not None


def test_opting_out_from_outside_the_workflow_is_shown() -> None:
    # The workflow's own `sandbox: none` is told by its diagnostic, with the line.
    assert resolve(request(NONE)).warnings == ()
    assert resolve(request(None, "none")).warnings == (
        "cli flag --sandbox: commands run without a sandbox, with the host's credentials and files",
    )
    for name in (OVERRIDE, DEFAULT):
        assert resolve(request(environ={name: "none"})).warnings[0].startswith(name)


@pytest.mark.parametrize("value", ["yes", "inline", "AUTO", " auto", "x" * 500])
def test_other_values_are_refused_by_name(value: str) -> None:
    for variable in (OVERRIDE, DEFAULT, "ITERION_SANDBOX_HOST_STATE"):
        with pytest.raises(ConfigError, match=f"{variable}=.*is not a mode") as caught:
            resolve(request(environ={variable: value}))
        assert len(str(caught.value)) < 300
    with pytest.raises(UsageError, match=r"--sandbox=.*is not a mode"):
        resolve(request(None, value))
    with pytest.raises(UsageError, match=r"--sandbox-host-state=.*is not a mode"):
        resolve(request(host_state_flag=value))


# -- What auto is made from ---------------------------------------------------------------------------------


def test_the_block_applies_to_an_auto_sandbox() -> None:
    written = block(
        env={"A": "1"}, user="jo", post_create="make", workspace_folder="/ws", network=network("allowlist", "a.example")
    )
    found = resolve(request(written, "auto"))
    assert found.spec is not None
    assert (found.spec.mode, found.spec.image) == ("auto", f"{SLIM}:v1.2.3")
    assert (found.spec.env, found.spec.user, found.spec.workspace_folder) == ({"A": "1"}, "jo", "/ws")
    assert found.spec.network.mode == "allowlist"


def test_a_block_of_a_workflow_that_opts_out_is_not_used() -> None:
    found = resolve(request(block(mode="none", env={"A": "1"}), "auto"))
    assert found.spec == SandboxSpec(mode="auto", image=f"{SLIM}:v1.2.3")


def test_a_devcontainer_comes_before_the_fallback_image() -> None:
    found = resolve(request(block(mode="auto", image="acme:1"), devcontainer=".devcontainer/devcontainer.json"))
    assert found.spec is not None
    assert found.spec.image is None
    assert found.devcontainer == ".devcontainer/devcontainer.json"
    inline = resolve(request(INLINE, devcontainer=".devcontainer/devcontainer.json"))
    assert inline.devcontainer is None
    assert inline.spec is not None
    assert inline.spec.image == "acme:1"


def test_an_auto_block_may_name_its_own_fallback_image() -> None:
    found = resolve(request(block(mode="auto", image="acme:1"), image_flag="flag:1"))
    assert found.spec is not None
    assert found.spec.image == "acme:1"


@pytest.mark.parametrize(
    ("version", "tag"),
    [
        ("1.2.3", "v1.2.3"),
        ("v1.2.3", "v1.2.3"),
        ("1.2.3.dev4", "edge"),
        ("1.2.3-SNAPSHOT", "edge"),
        ("1.2.3rc1", "edge"),
        ("1.2", "edge"),
        ("", "edge"),
        ("dev", "edge"),
        ("1.2.3\n", "edge"),
    ],
)
def test_the_builtin_image_follows_the_version(version: str, tag: str) -> None:
    assert builtin_image(version) == f"{SLIM}:{tag}"


@pytest.mark.parametrize(
    ("flag", "variable", "image"),
    [
        ("flag:1", "env:1", "flag:1"),
        (None, "env:1", "env:1"),
        ("", "env:1", "env:1"),
        (None, "", f"{SLIM}:v1.2.3"),
    ],
)
def test_the_fallback_image(flag: str | None, variable: str, image: str) -> None:
    found = resolve(request(AUTO, image_flag=flag, environ={"ITERION_SANDBOX_DEFAULT_IMAGE": variable}))
    assert found.spec is not None
    assert found.spec.image == image


def test_an_embedded_engine_without_a_fallback_image_says_so() -> None:
    embedded = request(AUTO, image_flag="", entry_point=EntryPoint.EMBEDDED)
    with pytest.raises(ConfigError, match=r"mode=auto but no \.devcontainer/devcontainer\.json found"):
        resolve(embedded)
    unset = resolve(request(AUTO, entry_point=EntryPoint.EMBEDDED))
    assert unset.spec is not None
    assert unset.spec.image == f"{SLIM}:v1.2.3"


def test_problems_of_the_block_name_their_line() -> None:
    with pytest.raises(SandboxConfigError, match=r"flow\.bot:4: sandbox\.mode: `inline` needs"):
        resolve(request(word("inline")))
    with pytest.raises(SandboxConfigError, match=r"flow\.bot:4: sandbox\.user"):
        resolve(request(block(image="a", user="-")))


def test_project_dir_is_the_workspace() -> None:
    found = resolve(request(block(image="a", env={"D": "${PROJECT_DIR}"}), workspace="/w"))
    assert found.spec is not None
    assert found.spec.env == {"D": "/w"}


# -- host_state -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flag", "workflow", "variable", "state", "source"),
    [
        ("none", "auto", "auto", "none", "cli flag --sandbox-host-state"),
        ("auto", "none", "none", "auto", "cli flag --sandbox-host-state"),
        (None, "none", "auto", "none", BLOCK_SOURCE),
        (None, "auto", "none", "auto", BLOCK_SOURCE),
        (None, None, "none", "none", "ITERION_SANDBOX_HOST_STATE"),
        (None, None, "", "auto", "default"),
    ],
)
def test_host_state(flag: str | None, workflow: str | None, variable: str, state: str, source: str) -> None:
    written = block(image="a", host_state=workflow)
    found = resolve(request(written, host_state_flag=flag, environ={"ITERION_SANDBOX_HOST_STATE": variable}))
    assert (found.host_state, found.host_state_source) == (state, source)
    assert found.spec is not None
    assert found.spec.host_state == state


# -- No driver --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("default", ["auto", ""])
def test_an_ambient_sandbox_is_given_up_without_a_driver(default: str) -> None:
    found = degrade(resolve(request(environ={DEFAULT: default})), "install bubblewrap")
    assert (found.mode, found.wanted, found.spec, found.skip_reason) == ("none", "auto", None, "install bubblewrap")


@pytest.mark.parametrize(("workflow", "flag"), [(AUTO, None), (INLINE, None), (None, "auto")])
def test_an_explicit_sandbox_is_an_error_without_a_driver(workflow: SandboxBlock | None, flag: str | None) -> None:
    with pytest.raises(DriverError, match=r"asks for a sandbox .*install bubblewrap"):
        degrade(resolve(request(workflow, flag)), "install bubblewrap")


# -- Nodes ------------------------------------------------------------------------------------------------


def node(written: SandboxBlock | None, asked: Request) -> tuple[Placement, SandboxSpec | None, str]:
    found = resolve_node(asked, resolve(asked), written)
    assert (found.spec is None) == (found.placement is Placement.HOST)
    return found.placement, found.spec, found.source


def test_a_node_that_says_nothing_shares_the_sandbox_of_the_run() -> None:
    asked = request(INLINE)
    assert node(None, asked) == (Placement.RUN, resolve(asked).spec, BLOCK_SOURCE)
    assert node(None, request(None, "none")) == (Placement.HOST, None, FLAG)


def test_a_node_may_run_on_the_host_and_that_is_shown() -> None:
    asked = request(INLINE)
    assert node(NONE, asked) == (Placement.HOST, None, NODE_SOURCE)
    assert resolve_node(asked, resolve(asked), NONE).warnings == (
        f"{NODE_SOURCE}: commands run without a sandbox, with the host's credentials and files",
    )


def test_a_node_that_wants_what_the_run_has_shares_it() -> None:
    assert node(AUTO, request(AUTO))[0] is Placement.RUN


def test_a_node_wins_over_the_flag() -> None:
    placement, spec, source = node(AUTO, request(None, "none"))
    assert (placement, source) == (Placement.OWN, NODE_SOURCE)
    assert spec == SandboxSpec(mode="auto", image=f"{SLIM}:v1.2.3")
    assert node(INLINE, request(None, "none"))[1] == SandboxSpec(mode="inline", image="acme:1")


def test_a_node_block_refines_the_policy_of_the_run() -> None:
    asked = request(block(image="acme:1", network=network("allowlist", "a.example")))
    placement, spec, _ = node(block(network=network(None, "b.example")), asked)
    assert placement is Placement.OWN
    assert spec is not None
    assert [(rule.text, rule.source.origin) for rule in spec.network.rules] == [
        ("a.example", "user"),
        ("b.example", "node"),
    ]
    assert spec.network.mode == "allowlist"


def test_a_node_with_another_image_keeps_the_policy_of_the_run() -> None:
    asked = request(block(image="acme:1", network=network("denylist", "!a.example")))
    spec = node(block(image="other:1"), asked)[1]
    assert spec is not None
    assert spec.image == "other:1"
    assert spec.network != NetworkSpec()


def test_host_state_of_a_node() -> None:
    asked = request(block(image="a", host_state="auto"))
    spec = node(block(host_state="none"), asked)[1]
    assert spec is not None
    assert spec.host_state == "none"
    flagged = request(block(image="a"), host_state_flag="none")
    spec = node(block(image="b", host_state="auto"), flagged)[1]
    assert spec is not None
    assert spec.host_state == "none"


def test_a_node_block_that_needs_an_image_says_so() -> None:
    with pytest.raises(SandboxConfigError, match="`inline` needs an image"):
        node(block(env={"A": "1"}), request(None, "none"))
