"""Rules, where they come from, and how policies are built and merged."""

import dataclasses

import pytest

from policy.address import AddressClass
from policy.pattern import PatternError
from policy.rules import (
    Inherit,
    Mode,
    Policy,
    PolicyError,
    Problem,
    Reason,
    RuleSource,
    RuleText,
    build_policy,
    merge_policy,
    parse_rule,
)

PRESET = "iterion-default"


def written(*texts: str, origin: str = "user") -> list[RuleText]:
    return [RuleText(text, RuleSource(origin, "policy.yaml", line)) for line, text in enumerate(texts, start=1)]


def own_rules(policy: Policy) -> list[str]:
    return [str(rule) for rule in policy.rules if not rule.source.is_preset]


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (RuleSource("user", "policy.yaml", 7), "policy.yaml:7"),
        (RuleSource("user", "policy.yaml"), "policy.yaml"),
        (RuleSource("preset:iterion-default"), "preset iterion-default"),
        (RuleSource("cli"), "--allow"),
        (RuleSource("node"), "node"),
    ],
)
def test_a_source_says_where_to_look(source: RuleSource, text: str) -> None:
    assert str(source) == text


def test_a_rule_keeps_what_was_written_and_prints_canonically() -> None:
    rule = parse_rule(RuleText("!b\u00fccher.example:443", RuleSource("cli")))
    assert rule.negated
    assert rule.text == "!b\u00fccher.example:443"
    assert str(rule) == "!xn--bcher-kva.example:443"
    assert str(parse_rule(RuleText("*.a.com", RuleSource("cli")))) == "*.a.com"


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [("!HTTP://x", "!x"), ("!!a.com", "!a.com"), ("! a.com", "!a.com"), ("A", "a"), ("!a b", None)],
)
def test_a_suggestion_keeps_the_denial(text: str, suggestion: str | None) -> None:
    with pytest.raises(PatternError) as caught:
        parse_rule(RuleText(text, RuleSource("cli")))
    assert caught.value.suggestion == suggestion


def test_preset_rules_come_first() -> None:
    policy = build_policy(Mode.ALLOWLIST, preset=PRESET, rules=written("!api.openai.com"))
    assert policy.presets == (PRESET,)
    assert policy.rules[0].source == RuleSource(f"preset:{PRESET}")
    assert [rule.source.is_preset for rule in policy.rules].index(False) == len(policy.rules) - 1
    assert own_rules(policy) == ["!api.openai.com"]


def test_every_problem_is_named_at_once() -> None:
    with pytest.raises(PolicyError) as caught:
        build_policy(Mode.ALLOWLIST, preset="iterion-defalt", rules=written("ok.com", "Example.COM", "a.*.com"))
    preset, upper, wildcard = caught.value.problems
    assert str(preset) == (
        "`iterion-defalt`: there is no such preset; there is `iterion-default`; write `iterion-default`"
    )
    assert str(upper) == "policy.yaml:2: `Example.COM`: not in canonical form; write `example.com`"
    assert wildcard == Problem(
        source=RuleSource("user", "policy.yaml", 3),
        value="a.*.com",
        detail="a wildcard is a whole first label: `*.example.com` or `**.example.com`",
    )
    assert str(caught.value).count("\n") == 2


def test_an_unknown_preset_without_a_likeness_has_no_suggestion() -> None:
    with pytest.raises(PolicyError) as caught:
        build_policy(Mode.ALLOWLIST, preset="zzz\n")
    assert caught.value.problems[0].suggestion is None
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("inherit", ["merge", "append"])
def test_a_node_adds_to_its_parent(inherit: Inherit) -> None:
    parent = build_policy(Mode.ALLOWLIST, preset=PRESET, rules=written("a.com"))
    merged = merge_policy(parent, rules=written("!a.com", origin="node"), inherit=inherit)
    assert merged.mode is Mode.ALLOWLIST
    assert merged.presets == (PRESET,)
    assert own_rules(merged) == ["a.com", "!a.com"]
    assert merged.rules[:-1] == parent.rules
    assert merged.rules[-1].source.origin == "node"


def test_a_nodes_preset_replaces_its_parents_and_stays_in_front() -> None:
    parent = build_policy(Mode.DENYLIST, rules=written("!a.com"))
    merged = merge_policy(parent, mode=Mode.ALLOWLIST, preset=PRESET, rules=written("b.com"))
    assert merged.mode is Mode.ALLOWLIST
    assert merged.presets == (PRESET,)
    assert own_rules(merged) == ["!a.com", "b.com"]
    assert merged.rules[0].source.is_preset
    again = merge_policy(merged, preset=PRESET)
    assert again == merged


def test_a_node_may_replace_its_parent() -> None:
    parent = build_policy(Mode.ALLOWLIST, preset=PRESET, rules=written("a.com"))
    replaced = merge_policy(parent, rules=written("b.com"), inherit="replace")
    assert replaced == build_policy(Mode.ALLOWLIST, rules=written("b.com"))


def test_a_bad_rule_of_a_node_is_a_problem() -> None:
    with pytest.raises(PolicyError, match="write `b`"):
        merge_policy(build_policy(Mode.OPEN), rules=written("B"))


def test_every_reason_has_a_message_and_every_class_a_reason() -> None:
    for reason in Reason:
        assert reason.message
        assert reason.message == reason.message.strip().rstrip(".")
    for each in AddressClass:
        if each is not AddressClass.PUBLIC:
            assert Reason.of_address(each).value == f"address_{each.value}"
    with pytest.raises(ValueError, match="address_public"):
        Reason.of_address(AddressClass.PUBLIC)


def test_values_are_frozen() -> None:
    policy = build_policy(Mode.ALLOWLIST, rules=written("a.com"))
    with pytest.raises(dataclasses.FrozenInstanceError):
        policy.mode = Mode.OPEN  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        policy.rules[0].negated = True  # type: ignore[misc]
