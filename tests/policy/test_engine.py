"""Decisions and judgements: the vectors, the hostile rows, and the index against a plain scan."""

import json
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from policy.engine import Engine
from policy.host import Authority, Host, IPAddress
from policy.rules import Decision, DroppedAddress, Mode, Reason, RuleSource, RuleText, build_policy
from tests.policy.properties import USER, check_policy, fuzz_policy, policy_of

VECTORS = Path(__file__).parent / "vectors"


def vectors() -> Iterator[Any]:
    for path in sorted(VECTORS.glob("*.json")):
        for vector in json.loads(path.read_text())["vectors"]:
            label = f"{path.stem}-{vector['mode']}-{','.join(vector['rules'])}"
            for case in vector["cases"]:
                yield pytest.param(vector, case, id=f"{label}-{case['authority']}".encode("unicode_escape").decode())


def engine(mode: Mode, *rules: str, own: tuple[str, ...] = (), preset: str | None = None) -> Engine:
    return Engine(policy_of(mode, rules, preset), own_addresses=[ip_address(text) for text in own])


def judged(engine: Engine, authority: str, *addresses: str) -> list[str]:
    """Return the survivors among the addresses of a host that is allowed by name."""
    decision = engine.decide_text(authority)
    assert decision.allowed
    judgement = engine.judge(decision, [ip_address(text) for text in addresses])
    assert judgement.allowed is bool(judgement.survivors)
    return [str(address) for address in judgement.survivors]


@pytest.mark.parametrize(("vector", "case"), list(vectors()))
def test_vectors(vector: dict[str, Any], case: dict[str, Any]) -> None:
    decision = engine(Mode(vector["mode"]), *vector["rules"], preset=vector.get("preset")).decide_text(
        case["authority"]
    )
    if "error" in case:
        assert decision.reason is Reason.INVALID_HOST
        assert decision.detail
        assert decision.authority is None
    else:
        assert decision.reason is not Reason.INVALID_HOST
    assert decision.allowed is case.get("allowed", False)


def test_H01_an_empty_allowlist_denies_everything() -> None:
    empty = engine(Mode.ALLOWLIST)
    for host in ("a.com", "localhost", "8.8.8.8", "[2606:4700::1111]", "127.0.0.1"):
        assert not empty.decide_text(f"{host}:443").allowed


@pytest.mark.parametrize("host", ["evil.com.", "EVIL.com", "evil.com", "\uff25vil.com", "evil\u3002com"])
def test_H03_every_spelling_of_a_denied_host_is_denied(host: str) -> None:
    decision = engine(Mode.DENYLIST, "!evil.com").decide_text(f"{host}:443")
    assert decision.reason is Reason.DENIED_BY_RULE
    assert str(decision.rule) == "!evil.com"


@pytest.mark.parametrize(
    "address",
    [
        "168.63.129.16",
        "192.0.0.192",
        "100.100.100.200",
        "fd00:ec2::254",
        "224.0.0.1",
        "fec0::1",
        "ff02::1",
        "127.0.0.1",
    ],
)
def test_H09_refused_classes_are_refused_for_names_of_the_users_too(address: str) -> None:
    decider = engine(Mode.ALLOWLIST, "a.com")
    judgement = decider.judge(decider.decide_text("a.com:443"), [ip_address(address)])
    assert not judgement.allowed
    assert judgement.reason.startswith("address_")
    assert judged(engine(Mode.ALLOWLIST, "a.com", address), "a.com:443", address) == [address]


@pytest.mark.parametrize("host", ["169.254.169.254", "[::1]", "[::ffff:169.254.169.254]"])
def test_H10_any_name_is_not_any_address(host: str) -> None:
    decision = engine(Mode.ALLOWLIST, "**").decide_text(f"{host}:80")
    assert decision.reason is Reason.ADDRESS_LITERAL


def test_H11_an_address_rule_matches_every_spelling() -> None:
    decider = engine(Mode.ALLOWLIST, "2001:db8::1")
    assert decider.decide_text("[2001:DB8:0:0::1]:443").allowed
    assert judged(decider, "[2001:db8::1]:443", "2001:db8::1") == ["2001:db8::1"]


def test_H13_a_private_answer_is_dropped_and_the_public_one_dialled() -> None:
    decider = engine(Mode.ALLOWLIST, "*.example.com")
    decision = decider.decide_text("a.example.com:443")
    judgement = decider.judge(decision, [ip_address("10.0.0.1"), ip_address("8.8.8.8")])
    assert judgement.survivors == (IPv4Address("8.8.8.8"),)
    assert judgement.dropped == (DroppedAddress(address=IPv4Address("10.0.0.1"), reason=Reason.ADDRESS_PRIVATE),)
    assert judgement.reason is Reason.ALLOWED_BY_RULE
    assert judgement.rule is decision.rule


def test_H15_hostile_lengths_are_decided() -> None:
    for text in ("\u0660" * 60_000, "xn--" + "a" * 5_000):
        assert engine(Mode.OPEN).decide_text(text, default_port=443).reason is Reason.INVALID_HOST


def test_H16_a_port_is_part_of_what_is_decided() -> None:
    decider = engine(Mode.DENYLIST)
    for text in ("a:0", "a:65536", "a:+443", "a:4 43", "a:443x", "a:00443", "a"):
        assert decider.decide_text(text).reason is Reason.INVALID_HOST


def test_H17_letters_in_front_are_another_host() -> None:
    decider = engine(Mode.ALLOWLIST, "trusted.net", "*.trusted.net")
    assert decider.decide_text("nottrusted.net:443").reason is Reason.NOT_IN_ALLOWLIST


def test_H18_an_alias_of_the_host_is_judged_by_its_address() -> None:
    alias = "host.docker.internal:8080"
    assert judged(engine(Mode.ALLOWLIST, "**"), alias, "172.17.0.1") == []
    assert judged(engine(Mode.ALLOWLIST, "host.docker.internal"), alias, "172.17.0.1") == ["172.17.0.1"]
    own = engine(Mode.ALLOWLIST, "host.docker.internal", own=("172.17.0.1",))
    assert judged(own, alias, "172.17.0.1") == []


INTERNAL = ("10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "fd00::1")


@pytest.mark.parametrize("address", INTERNAL)
def test_internal_addresses_need_an_exact_rule_of_the_users_or_an_address_rule(address: str) -> None:
    for rules in (["a.b.com"], ["a.b.com:443"], ["**", "a.b.com"], ["**", address], ["*.b.com", "::/0", "0.0.0.0/0"]):
        assert judged(engine(Mode.ALLOWLIST, *rules), "a.b.com:443", address) == [address], rules
    for rules in (["*.b.com"], ["**.b.com"], ["**"], ["a.b.com", "**.b.com"], ["**", f"!{address}"]):
        assert judged(engine(Mode.ALLOWLIST, *rules), "a.b.com:443", address) == [], rules
    assert judged(engine(Mode.DENYLIST), "a.b.com:443", address) == []
    assert judged(engine(Mode.DENYLIST, "a.b.com"), "a.b.com:443", address) == [address]


def test_a_presets_exact_rule_does_not_open_internal_addresses() -> None:
    decider = engine(Mode.ALLOWLIST, preset="iterion-default")
    assert judged(decider, "github.com:443", "10.0.0.1", "140.82.121.3") == ["140.82.121.3"]
    decider = engine(Mode.ALLOWLIST, "github.com", preset="iterion-default")
    assert judged(decider, "github.com:443", "10.0.0.1") == ["10.0.0.1"]


@pytest.mark.parametrize("mode", list(Mode))
def test_denying_address_rules_hold_for_resolved_addresses_in_every_mode(mode: Mode) -> None:
    decider = engine(
        mode, "a.com", "!8.8.8.0/24", "!2001:4860::/32:443".replace("!2001:4860::/32", "![2001:4860::/32]")
    )
    assert judged(decider, "a.com:443", "8.8.8.8", "8.8.4.4", "2001:4860::1", "64:ff9b::808:808") == ["8.8.4.4"]
    assert judged(decider, "a.com:80", "2001:4860::1") == ["2001:4860::1"]


def test_the_last_address_rule_wins_on_its_ports() -> None:
    decider = engine(Mode.ALLOWLIST, "a.com", "!8.0.0.0/8", "8.8.0.0/16", "!8.8.8.8:22")
    assert judged(decider, "a.com:443", "8.1.1.1", "8.8.8.8") == ["8.8.8.8"]
    assert judged(decider, "a.com:22", "8.8.8.8", "8.8.8.9") == ["8.8.8.9"]


def test_denying_every_name_says_nothing_about_resolved_addresses() -> None:
    assert judged(engine(Mode.DENYLIST, "!**", "a.com"), "a.com:443", "8.8.8.8") == ["8.8.8.8"]


def test_an_allowed_ipv4_address_does_not_allow_the_tunnels_to_it() -> None:
    decider = engine(Mode.ALLOWLIST, "a.com", "169.254.169.254")
    assert judged(decider, "a.com:80", "169.254.169.254", "::ffff:169.254.169.254") == ["169.254.169.254"]
    assert judged(decider, "a.com:80", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::") == []


def test_a_later_rule_allows_what_an_embedded_address_denied() -> None:
    decider = engine(Mode.DENYLIST, "!10.0.0.0/8", "64:ff9b::/96")
    assert decider.decide_text("[64:ff9b::a00:1]:443").allowed
    decider = engine(Mode.DENYLIST, "64:ff9b::/96", "!10.0.0.0/8")
    assert decider.decide_text("[64:ff9b::a00:1]:443").reason is Reason.DENIED_BY_RULE


def test_the_gateways_own_addresses_are_refused_unless_a_rule_names_them() -> None:
    own = ("203.0.113.7", "8.8.8.8", "::ffff:9.9.9.9")
    decider = engine(Mode.DENYLIST, "a.com", own=own)
    judgement = decider.judge(decider.decide_text("a.com:443"), [ip_address("8.8.8.8"), ip_address("9.9.9.9")])
    assert judgement.reason is Reason.ADDRESS_OWN
    assert decider.decide_text("8.8.8.8:443").reason is Reason.ADDRESS_OWN
    assert decider.decide_text("[64:ff9b::808:808]:443").reason is Reason.ADDRESS_OWN
    inside = engine(Mode.DENYLIST, "a.com", own=("10.0.0.1", "127.0.0.1"))
    assert inside.judge(inside.decide_text("a.com:443"), [ip_address("10.0.0.1")]).reason is Reason.ADDRESS_OWN
    assert inside.decide_text("127.0.0.1:443").reason is Reason.ADDRESS_LOOPBACK
    assert inside.decide_text("localhost:443").reason is Reason.ADDRESS_LOOPBACK
    assert engine(Mode.DENYLIST, "8.8.8.8", own=own).decide_text("8.8.8.8:443").allowed
    assert engine(Mode.OPEN, own=own).decide_text("8.8.8.8:443").allowed


def test_open_mode_accepts_every_address_no_rule_denies() -> None:
    decider = engine(Mode.OPEN, "!8.8.8.8")
    assert judged(decider, "a.com:443", "169.254.169.254", "8.8.8.8", "10.0.0.1") == ["169.254.169.254", "10.0.0.1"]


def test_survivors_keep_their_order_and_are_named_once() -> None:
    decider = engine(Mode.DENYLIST)
    found = judged(decider, "a.com:443", "2606:4700::1", "8.8.8.8", "::ffff:8.8.8.8", "1.1.1.1", "2606:4700::1")
    assert found == ["2606:4700::1", "8.8.8.8", "1.1.1.1"]


def test_a_judgement_names_the_reason_if_there_is_one() -> None:
    decider = engine(Mode.ALLOWLIST, "**", "!8.8.8.0/24")
    decision = decider.decide_text("a.com:443")
    nothing = decider.judge(decision, [])
    assert (nothing.allowed, nothing.reason, nothing.rule) == (False, Reason.NO_ADDRESS_LEFT, None)
    denied = decider.judge(decision, [ip_address("8.8.8.8"), ip_address("8.8.8.9")])
    assert denied.reason is Reason.DENIED_BY_RULE
    assert str(denied.rule) == "!8.8.8.0/24"
    mixed = decider.judge(decision, [ip_address("8.8.8.8"), ip_address("10.0.0.1")])
    assert (mixed.reason, mixed.rule) == (Reason.NO_ADDRESS_LEFT, None)
    assert [drop.reason for drop in mixed.dropped] == [Reason.DENIED_BY_RULE, Reason.ADDRESS_PRIVATE]


def test_a_denied_host_has_no_survivors() -> None:
    decider = engine(Mode.ALLOWLIST, "!a.com")
    for text in ("a.com:443", "b.com:443", "not a host"):
        decision = decider.decide_text(text)
        judgement = decider.judge(decision, [ip_address("8.8.8.8")])
        assert not judgement.allowed
        assert judgement.reason is decision.reason
        assert judgement.rule is decision.rule
        assert [drop.reason for drop in judgement.dropped] == [decision.reason]


def test_an_address_that_was_not_decided_on_is_judged_on_its_own() -> None:
    decider = engine(Mode.ALLOWLIST, "1.2.3.4")
    decision = decider.decide_text("1.2.3.4:443")
    judgement = decider.judge(decision, [ip_address("1.2.3.5")])
    assert judgement.reason is Reason.ADDRESS_LITERAL


def test_a_zone_does_not_hide_an_address() -> None:
    decider = engine(Mode.DENYLIST)
    judgement = decider.judge(decider.decide_text("a.com:443"), [IPv6Address("fe80::1%eth0")])
    assert judgement.reason is Reason.ADDRESS_LINK_LOCAL


def test_localhost_is_loopback() -> None:
    decider = engine(Mode.DENYLIST, "!127.0.0.1:22", "127.0.0.1", "!127.0.0.1:25", "!::1")
    assert decider.decide_text("localhost:80").allowed
    refused = decider.decide_text("localhost:25")
    assert refused.reason is Reason.DENIED_BY_RULE
    assert engine(Mode.DENYLIST, "localhost").decide_text("x.localhost:1").reason is Reason.ADDRESS_LOOPBACK
    assert judged(decider, "localhost:80", "127.0.0.1", "::1", "127.0.0.2") == ["127.0.0.1"]


@pytest.mark.parametrize(
    ("rules", "silent"),
    [
        ([], True),
        (["**.com"], True),  # names another domain
        (["!**"], True),  # names no host
        (["!o1.ingest.us.sentry.io"], False),
        (["!**.sentry.io"], False),
        (["*.us.sentry.io"], True),
        (["o1.ingest.us.sentry.io:80"], False),  # denied on 443, but the user knows the host
    ],
)
def test_the_silent_list_never_silences_what_a_user_names(rules: list[str], silent: bool) -> None:
    decision = engine(Mode.ALLOWLIST, *rules).decide_text("o1.ingest.us.sentry.io:443")
    assert not decision.allowed
    assert decision.silent is silent


def test_the_silent_list_denies_nothing_itself() -> None:
    decision = engine(Mode.DENYLIST).decide_text("mcp-proxy.anthropic.com:443")
    assert decision.allowed
    assert not decision.silent
    decision = engine(Mode.ALLOWLIST, preset="iterion-default").decide_text("mcp-proxy.anthropic.com:443")
    assert not decision.allowed
    assert decision.silent
    assert not engine(Mode.ALLOWLIST).decide_text("evil.site:443").silent


def test_a_decision_names_the_rule_and_its_line() -> None:
    rules = [
        RuleText(text, RuleSource("user", "policy.yaml", line)) for line, text in ((4, "**.a.com"), (5, "!x.a.com"))
    ]
    decision = Engine(build_policy(Mode.ALLOWLIST, rules=rules)).decide_text("x.a.com:443")
    assert decision.rule is not None
    assert str(decision.rule.source) == "policy.yaml:5"


def test_an_engine_answers_for_a_policy_of_another_time() -> None:
    old = engine(Mode.ALLOWLIST, "a.com").decide_text("a.com:443")
    assert engine(Mode.ALLOWLIST).judge(old, [ip_address("8.8.8.8")]).allowed
    bare = Decision(allowed=True, reason=Reason.ALLOWED_BY_MODE)
    assert not engine(Mode.OPEN).judge(bare, [ip_address("8.8.8.8")]).allowed


def test_a_name_that_was_not_parsed_is_still_answered() -> None:
    for name in ("", ".", "..", "A.B", "*", "\0", "a" * 1_000):
        decision = engine(Mode.ALLOWLIST, "**.b").decide(Authority(Host(name), 443))
        assert decision.reason is Reason.NOT_IN_ALLOWLIST


def test_the_policy_can_be_asked_for() -> None:
    policy = policy_of(Mode.DENYLIST, ["!a.com"])
    assert Engine(policy).policy is policy
    assert policy.rules[0].source == USER


LABELS = st.sampled_from(["a", "b", "com", "localhost"])
NAMES = st.lists(LABELS, min_size=1, max_size=3).map(".".join)
ADDRESSES = st.sampled_from(
    [
        ip_address(text)
        for text in (
            "8.8.8.8",
            "8.8.8.9",
            "10.0.0.1",
            "100.64.0.1",
            "127.0.0.1",
            "169.254.169.254",
            "::ffff:10.0.0.1",
            "::1",
            "2606:4700::1",
            "fd00::1",
            "64:ff9b::808:808",
            "64:ff9b::a00:1",
            "2002:a00:1::",
            "224.0.0.1",
        )
    ]
)
TARGETS = st.one_of(
    NAMES,
    NAMES.map("*.{}".format),
    NAMES.map("**.{}".format),
    st.sampled_from(["*", "**"]),
    st.sampled_from(["8.8.8.8", "8.8.8.0/24", "10.0.0.0/8", "127.0.0.1", "0.0.0.0/0", "169.254.0.0/16"]),
)
IPV6_TARGETS = st.sampled_from(["::1", "2606:4700::/32", "64:ff9b::/96", "::/0", "fd00::/8"])
PORT_SUFFIXES = st.sampled_from(["", "", ":443", ":80", ":1-100", ":80-65535"])
RULES = st.one_of(
    st.builds("{}{}{}".format, st.sampled_from(["", "!"]), TARGETS, PORT_SUFFIXES),
    st.builds("{}{}".format, st.sampled_from(["", "!"]), IPV6_TARGETS),
    st.builds("{}[{}]:{}".format, st.sampled_from(["", "!"]), IPV6_TARGETS, st.sampled_from(["80", "443-444"])),
)
AUTHORITIES = st.one_of(
    st.builds("{}:{}".format, NAMES, st.sampled_from([80, 443, 8080])),
    st.builds(
        lambda address, port: f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}",
        ADDRESSES,
        st.sampled_from([80, 443, 8080]),
    ),
    st.text(max_size=12),
)


@given(
    st.sampled_from(list(Mode)),
    st.lists(RULES, max_size=8),
    st.lists(AUTHORITIES, min_size=1, max_size=4),
    st.lists(ADDRESSES, max_size=4),
)
def test_the_engine_agrees_with_a_plain_scan(
    mode: Mode, rules: list[str], authorities: list[str], addresses: list[IPAddress]
) -> None:
    check_policy(mode, rules, authorities, addresses)


@given(st.binary(max_size=200))
@example(b"d\n!10.0.0.0/8:22\n64:ff9b::a00:1\n2002:a00:1::\n[64:ff9b::a00:1]:22")
@example(b"a\n**\n!**\n1.2.3.4\n[::ffff:1.2.3.4]:443")
@example(b"o\nlocalhost\n127.0.0.1\nlocalhost:80")
@example(b"a\nNot.Canonical\na.com:443")
def test_any_bytes_are_answered(data: bytes) -> None:
    fuzz_policy(data)
