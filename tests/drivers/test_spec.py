"""Every mistake in a spec is found, all at once, with its field, its value and what to write instead."""

from typing import Any

import pytest

from drivers.spec import BuildSpec, NetworkSpec, SandboxSpec, SpecError
from policy.rules import Mode, RuleSource, RuleText


def rule(text: str) -> RuleText:
    return RuleText(text=text, source=RuleSource(origin="user", file="policy.yaml", line=7))


def problems(**fields: Any) -> tuple[str, ...]:
    try:
        SandboxSpec(**fields).validate()
    except SpecError as error:
        return error.problems
    return ()


def network_problems(**fields: Any) -> tuple[str, ...]:
    return problems(network=NetworkSpec(**fields))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"mode": "none"},
        {"mode": "inline", "image": "ghcr.io/acme/tools:1.2@sha256:00ff"},
        {"mode": "inline", "image": "localhost:5000/x"},
        {"mode": "inline", "build": BuildSpec(dockerfile="docker/Dockerfile", context="docker", args={"VERSION": "1"})},
        {"user": "1000:1000"},
        {"user": "node"},
        {"user": "0"},
        {"workspace_folder": "/workspace"},
        {"host_state": "none"},
        {"post_create": "npm ci\nnpm test\t# twice"},
        {"env": {"_A1": "-Xmx1g = ä"}},
        {"mounts": ("type=bind,source=${localEnv:HOME}/.cache,target=/cache", "type=pvc,source=a,target=/b,readonly")},
        {"memory": "512m", "cpus": 0.5, "pids": 100},
        {"memory": "2G"},
    ],
)
def test_good_specs(fields: dict[str, Any]) -> None:
    assert problems(**fields) == ()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"mode": "docker"}, ("mode", "`docker`", "auto")),
        ({"host_state": "maybe"}, ("host_state", "`maybe`", "auto or none")),
        ({"mode": "inline"}, ("mode", "inline", "image")),
        ({"image": "a", "build": BuildSpec()}, ("image", "`a`", "build", "exclude")),
        ({"image": "-v/:/host"}, ("image", "`-v/:/host`", "such as")),
        ({"image": "a b"}, ("image", "`a b`")),
        ({"image": ""}, ("image",)),
        ({"image": "a\nb"}, ("image", "`a\\nb`")),
        ({"build": BuildSpec(dockerfile="../Dockerfile")}, ("build.dockerfile", "leaves the workspace")),
        ({"build": BuildSpec(context="/etc")}, ("build.context", "leaves the workspace")),
        ({"build": BuildSpec(context="-x")}, ("build.context", "option")),
        ({"build": BuildSpec(args={"a b": "c"})}, ("build.args", "`a b`")),
        ({"user": "-u0"}, ("user", "`-u0`", "1000:1000")),
        ({"user": "a:b:c"}, ("user",)),
        ({"user": "a b"}, ("user",)),
        ({"workspace_folder": "workspace"}, ("workspace_folder", "not absolute", "`/`")),
        ({"workspace_folder": "/a/../b"}, ("workspace_folder", "write `/b`")),
        ({"workspace_folder": "/a/"}, ("workspace_folder", "write `/a`")),
        ({"workspace_folder": "//a"}, ("workspace_folder", "write `/a`")),
        ({"workspace_folder": "/"}, ("workspace_folder", "whole system")),
        ({"workspace_folder": "/a\0b"}, ("workspace_folder", "control")),
        ({"post_create": ""}, ("post_create", "empty")),
        ({"post_create": "-c x"}, ("post_create", "`-c x`")),
        ({"post_create": "a\0b"}, ("post_create", "control")),
        ({"mounts": ("type=bind,target=/x",)}, ("mounts", "source")),
        ({"mounts": ("-v",)}, ("mounts", "option")),
        ({"mounts": ("",)}, ("mounts", "empty")),
        ({"cpus": 0}, ("cpus", "0", "1.5")),
        ({"cpus": float("nan")}, ("cpus", "nan")),
        ({"cpus": float("inf")}, ("cpus", "inf")),
        ({"memory": "lots"}, ("memory", "`lots`", "512m")),
        ({"memory": "512"}, ("memory", "unit")),
        ({"memory": "0m"}, ("memory",)),
        ({"pids": 0}, ("pids", "0", "512")),
    ],
)
def test_bad_specs(fields: dict[str, Any], words: tuple[str, ...]) -> None:
    (problem,) = problems(**fields)
    for word in words:
        assert word in problem


@pytest.mark.parametrize("name", ["A=B", "", "1A", "A-B", "A B", "A\n", "Ä"])
def test_H49_variable_names(name: str) -> None:
    (problem,) = problems(env={name: "x"})
    assert "not a variable name" in problem


@pytest.mark.parametrize("value", ["a\nb", "a\rb", "a\0b", "\n"])
def test_H49_variable_values(value: str) -> None:
    (problem,) = problems(env={"NAME": value})
    assert problem.startswith("env.NAME: ")


@pytest.mark.parametrize("field", ["image", "user", "workspace_folder", "post_create"])
def test_H49_nothing_starts_like_an_option(field: str) -> None:
    assert problems(**{field: "-privileged"}) != ()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"mode": "closed"}, ("network.mode", "`closed`", "open or allowlist or denylist")),
        ({"inherit": "mix"}, ("network.inherit", "`mix`", "merge")),
        ({"enforcement": "hard"}, ("network.enforcement", "`hard`", "cooperative")),
        ({"tls": "mitm"}, ("network.tls", "`mitm`", "inspect")),
        ({"rules": (rule("a.com"),)}, ("network.mode", "`mode: allowlist`")),
        ({"preset": "iterion-default"}, ("network.mode", "`mode: allowlist`")),
        ({"mode": "open", "rules": (rule("!a.com"),)}, ("network.mode", "`mode: denylist`")),
        ({"mode": "allowlist", "preset": "nope"}, ("network.rules", "nope")),
        ({"mode": "allowlist", "rules": (rule("a..com"),)}, ("network.rules", "policy.yaml:7")),
        ({"mode": "allowlist", "inspect_hosts": ("a.com",)}, ("network.inspect_hosts", "`tls: inspect`")),
        ({"mode": "allowlist", "tls": "inspect", "exclude_hosts": ("-x",)}, ("network.exclude_hosts", "option")),
        ({"mode": "allowlist", "hosts": {"a.com": ()}}, ("network.hosts.a.com", "no addresses")),
        ({"mode": "allowlist", "hosts": {"a.com": ("b.com",)}}, ("network.hosts.a.com", "`b.com` is a name")),
        ({"mode": "allowlist", "hosts": {"a.com": ("127.1",)}}, ("network.hosts.a.com", "127.1")),
        ({"mode": "allowlist", "hosts": {"1.2.3.4": ("1.2.3.4",)}}, ("network.hosts", "is an address")),
        (
            {"mode": "allowlist", "hosts": {"a.com": ("1.2.3.4",), "A.com": ("1.2.3.5",)}},
            ("network.hosts.A.com", "the same host as `a.com`"),
        ),
        ({"mode": "allowlist", "hosts": {"a b": ("1.2.3.4",)}}, ("network.hosts", "not a host name")),
    ],
)
def test_bad_networks(fields: dict[str, Any], words: tuple[str, ...]) -> None:
    (problem,) = network_problems(**fields)
    for word in words:
        assert word in problem


def test_good_networks() -> None:
    rules = (rule("a.com"), rule("!b.a.com"))
    hosts = {"a.com": ("192.0.2.1", "2001:db8::1")}
    for mode in ("allowlist", "denylist"):
        assert network_problems(mode=mode, rules=rules, preset="iterion-default", hosts=hosts) == ()
    assert network_problems(mode="open") == ()
    assert network_problems(mode="allowlist", tls="inspect", inspect_hosts=("a.com",), exclude_hosts=("b.com",)) == ()


def test_all_problems_come_together() -> None:
    found = problems(mode="x", image="-a", user="-b", pids=-1, env={"1": "\n"}, network=NetworkSpec(tls="x"))  # type: ignore[arg-type]
    assert [problem.split(":")[0] for problem in found] == [
        "mode",
        "image",
        "user",
        "env",
        "env.1",
        "pids",
        "network.tls",
    ]
    assert str(SpecError(found)) == "\n".join(found)


def test_long_values_are_cut_and_stay_on_their_line() -> None:
    (problem,) = problems(user="x\n" * 10_000)
    assert len(problem) < 400
    assert "\n" not in problem


def test_the_effective_mode() -> None:
    assert NetworkSpec().effective_mode is Mode.OPEN
    assert NetworkSpec(mode="denylist").effective_mode is Mode.DENYLIST


def test_a_policy_is_built_from_the_rules() -> None:
    policy = NetworkSpec(mode="allowlist", rules=(rule("a.com"),)).build_policy()
    assert policy.mode is Mode.ALLOWLIST
    assert [each.text for each in policy.rules] == ["a.com"]
