"""What must hold for any input: one set of functions for Hypothesis, the fuzz target and its corpus.

The oracle is a plain scan over the rules, last to first, written without a look at the index.
"""

import re
from collections.abc import Sequence
from ipaddress import IPv6Address, ip_address

from policy.address import AddressClass, classify, embedded_ipv4
from policy.engine import Engine
from policy.host import MAX_NAME_BYTES, Authority, Host, InvalidHost, IPAddress, parse_authority, parse_host
from policy.lint import lint
from policy.pattern import Kind, Pattern, PatternError, parse_pattern
from policy.rules import (
    Decision,
    Mode,
    Policy,
    PolicyError,
    Reason,
    Rule,
    RuleSource,
    RuleText,
    build_policy,
)

CANONICAL_NAME = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*", re.ASCII)
USER = RuleSource("user", "policy.yaml", 7)


def check_host(text: str) -> Host | None:
    """A host is canonical and parses to itself, or the text is refused with the one documented error."""
    try:
        host = parse_host(text)
    except InvalidHost as error:
        _check_refusal(error)
        return None
    canonical = str(host)
    assert parse_host(canonical) == host
    assert canonical.isascii()
    assert len(canonical) <= MAX_NAME_BYTES
    if host.address is None:
        assert CANONICAL_NAME.fullmatch(canonical)
        last = canonical.rpartition(".")[2]
        assert not last.isdigit()
    else:
        assert ip_address(canonical) == host.address
        assert not isinstance(host.address, IPv6Address) or host.address.ipv4_mapped is None
    return host


def check_authority(text: str) -> Authority | None:
    """An authority parses to itself, or the text is refused with the one documented error."""
    try:
        authority = parse_authority(text)
    except InvalidHost as error:
        _check_refusal(error)
        return None
    assert 0 < authority.port < 65536
    assert parse_authority(str(authority)) == authority
    return authority


def _check_refusal(error: InvalidHost) -> None:
    assert error.value.isascii()
    assert error.value.isprintable()
    assert error.detail


def _check_pattern_refusal(error: PatternError, text: str) -> None:
    assert error.value.isprintable()
    if error.suggestion is not None:
        assert error.suggestion != text
        parse_pattern(error.suggestion)


def check_pattern(text: str) -> Pattern | None:
    """A pattern prints to itself, or is refused; a suggestion is a pattern, and other than the text."""
    try:
        pattern = parse_pattern(text)
    except PatternError as error:
        _check_pattern_refusal(error, text)
        return None
    assert parse_pattern(str(pattern)) == pattern
    assert str(pattern) == text or not text.isascii()
    return pattern


def policy_of(mode: Mode, texts: Sequence[str], preset: str | None = None) -> Policy:
    """Return the policy of rules that are the user's own."""
    return build_policy(mode, preset=preset, rules=[RuleText(text, USER) for text in texts])


def check_policy(mode: Mode, texts: Sequence[str], authorities: Sequence[str], addresses: Sequence[IPAddress]) -> None:
    """The engine answers every question as the oracle does; lint never raises."""
    try:
        policy = policy_of(mode, texts)
    except PolicyError:
        assert any(check_pattern(text.removeprefix("!")) is None for text in texts)
        return
    engine = Engine(policy, own_addresses=addresses[:1])
    for text in authorities:
        check_decision(engine, text, addresses)
    lint(policy)


def check_decision(engine: Engine, text: str, addresses: Sequence[IPAddress]) -> None:
    """One decision and the judgement of its addresses equal the oracle's."""
    decision = engine.decide_text(text)
    authority = check_authority(text)
    if authority is None:
        assert decision.reason is Reason.INVALID_HOST
        assert not decision.allowed
        assert not engine.judge(decision, addresses).allowed
        return
    assert decision == engine.decide(authority)
    own = frozenset(addresses[:1])
    assert (decision.allowed, decision.reason, decision.rule) == decide_naively(engine.policy, authority, own)
    judgement = engine.judge(decision, addresses)
    expected = [
        address
        for address in dict.fromkeys(as_ipv4(each) for each in addresses)
        if decision.allowed and judge_naively(engine.policy, decision, address, own)
    ]
    assert list(judgement.survivors) == expected
    assert judgement.allowed is bool(expected)
    assert {*judgement.survivors, *(drop.address for drop in judgement.dropped)} == {
        as_ipv4(each) for each in addresses
    }
    if authority.host.address is not None:
        assert engine.judge(decision, [authority.host.address]).allowed is decision.allowed


def as_ipv4(address: IPAddress) -> IPAddress:
    """Return the IPv4 address that a mapped one is."""
    return address.ipv4_mapped or address if isinstance(address, IPv6Address) else address


def last_match(policy: Policy, authority: Authority, *, networks_only: bool = False) -> Rule | None:
    """Return the last rule that covers an authority, by a scan."""
    address = authority.host.address
    for rule in reversed(policy.rules):
        pattern = rule.pattern
        if networks_only and pattern.kind is not Kind.NETWORK:
            continue
        if pattern.matches(authority):
            return rule
        in_ports = pattern.low <= authority.port <= pattern.high
        if address is not None and pattern.kind is Kind.ANY and rule.negated and in_ports:
            return rule
        inner = [Authority(Host(address=each), authority.port) for each in embedded_ipv4(address)] if address else []
        if pattern.kind is Kind.NETWORK and rule.negated and any(map(pattern.matches, inner)):
            # A denial reaches an address that leads to the denied one, unless a later rule allows the inner one.
            for each in inner:
                if pattern.matches(each) and last_match(policy, each, networks_only=True) is rule:
                    return rule
    return None


def decide_naively(policy: Policy, authority: Authority, own: frozenset[IPAddress]) -> tuple[bool, Reason, Rule | None]:
    """Return the verdict, reason and rule for a host, by a scan."""
    rule = last_match(policy, authority)
    if rule is not None and rule.negated:
        return False, Reason.DENIED_BY_RULE, rule
    address = authority.host.address
    if rule is not None:
        reason = Reason.ALLOWED_BY_RULE
    elif policy.mode is Mode.ALLOWLIST:
        return False, Reason.ADDRESS_LITERAL if address else Reason.NOT_IN_ALLOWLIST, None
    elif policy.mode is Mode.DENYLIST and address is not None and refused_class(address, own) is not None:
        return False, refused_class(address, own) or Reason.ADDRESS_OWN, None
    else:
        reason = Reason.ALLOWED_BY_MODE
    if f".{authority.host}".endswith(".localhost"):
        allowed = Decision(allowed=True, reason=reason, rule=rule, authority=authority)
        loopback = [ip_address("127.0.0.1"), ip_address("::1")]
        if not any(judge_naively(policy, allowed, each, own) for each in loopback):
            judgement = Engine(policy, own_addresses=own).judge(allowed, loopback)
            return False, judgement.reason, judgement.rule
    return True, reason, rule


def judge_naively(policy: Policy, decision: Decision, address: IPAddress, own: frozenset[IPAddress]) -> bool:
    """Return whether an address of an allowed host may be dialled, by a scan."""
    assert decision.authority is not None
    target = Authority(Host(address=address), decision.authority.port)
    if decision.authority.host.is_address:
        return decide_naively(policy, target, own)[0]
    rule = last_match(policy, target, networks_only=True)
    if rule is not None:
        return not rule.negated
    if policy.mode is Mode.OPEN:
        return True
    reason = refused_class(address, own)
    internal = {Reason.ADDRESS_PRIVATE, Reason.ADDRESS_UNIQUE_LOCAL, Reason.ADDRESS_CGNAT}
    fired = decision.rule
    named = fired is not None and fired.pattern.kind is Kind.EXACT and not fired.source.is_preset
    return reason is None or (named and reason in internal)


def refused_class(address: IPAddress, own: frozenset[IPAddress]) -> Reason | None:
    """Return the reason to refuse an address by what it is for."""
    kind = classify(address)
    is_own = {address, *embedded_ipv4(address)} & {as_ipv4(each) for each in own}
    if is_own and not kind.is_always_refused:
        return Reason.ADDRESS_OWN
    return None if kind is AddressClass.PUBLIC else Reason(f"address_{kind}")


def fuzz_policy(data: bytes) -> None:
    """Read bytes as lines: a mode's first letter, rules, and a last line of host and port; check everything on them."""
    text = data.decode("utf-8", "surrogateescape")
    lines = text.split("\n")
    for line in lines:
        check_host(line)
        check_authority(line)
        check_pattern(line.removeprefix("!"))
    modes = {"d": Mode.DENYLIST, "o": Mode.OPEN}
    rules = [line for line in lines[1:-1] if check_pattern(line.removeprefix("!")) is not None]
    addresses = [host.address for line in lines if (host := check_host(line)) is not None and host.address is not None]
    check_policy(modes.get(lines[0], Mode.ALLOWLIST), rules, [lines[-1], f"{lines[-1]}:443"], addresses)
