"""What is wrong or useless in a rule list that is, line by line, correct.

A finding never changes a decision. Whether a rule works is asked of the engine, not worked out a second time; whether a
later rule hides it is looked up in an index of the later rules, so that a list of 100,000 rules is read in one pass.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network, IPv6Address
from typing import Final

from policy.address import SPECIAL_RANGES, AddressClass
from policy.coverage import ancestors, covering_keys, hidden_rules, rule_key
from policy.engine import Engine
from policy.host import Authority, Host
from policy.pattern import Kind, Pattern
from policy.rules import Mode, Policy, Rule

_METADATA: Final = tuple(
    row.network.network_address for row in SPECIAL_RANGES if row.address_class is AddressClass.METADATA
)
# The prefixes that every translator and tunnel knows, with an IPv4 address behind them: NAT64 and 6to4.
_METADATA_BEHIND: Final = tuple(
    IPv6Address(prefix << 96 | int(address) << shift)
    for address in _METADATA
    if isinstance(address, IPv4Address)
    for prefix, shift in ((0x0064FF9B, 0), (0x20020000, 80))
)
_WELL_KNOWN_PORTS: Final = (80, 443)
_PROBE: Final = "iterion-lint"  # a label that nobody writes rules for


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding: a stable code, a message that ends with what to write, and the rule it is about if there is one."""

    code: str
    message: str
    rule: Rule | None = None

    def __str__(self) -> str:
        where = f"{self.rule.source}: " if self.rule is not None else ""
        return f"{where}{self.message} ({self.code})"


def lint(policy: Policy) -> tuple[Finding, ...]:
    """Return the findings on a policy: those on the whole first, then rule by rule. Rules of presets are not judged."""
    engine = Engine(policy)
    hidden = dict(hidden_rules(policy.rules))
    findings = [*_whole_policy(policy)]
    denials = _Denials()
    for number, rule in enumerate(policy.rules):
        if rule.negated:
            denials.add(rule)
        if rule.source.is_preset:
            continue
        if number in hidden:
            findings.append(_hidden(rule, policy.rules[hidden[number]]))
            continue
        if policy.mode is Mode.DENYLIST and not denials.concern(rule):
            findings.append(_plain_in_denylist(rule))
        for check in _CHECKS:
            findings.extend(check(rule, policy, engine))
    return tuple(findings)


class _Denials:
    """The denying rules so far, to tell whether a plain rule lifts any of them."""

    def __init__(self) -> None:
        self._keys: set[object] = set()
        self._parents: set[str] = set()
        self._of_one_label = False

    def add(self, rule: Rule) -> None:
        """Take note of a denying rule; one that denies addresses is nothing a rule for names could lift."""
        pattern = rule.pattern
        if pattern.kind is Kind.NETWORK:
            return
        self._keys.add(rule_key(rule))
        self._parents.update((pattern.name, *ancestors(pattern)))
        is_wide = pattern.kind in (Kind.ANY, Kind.ONE_LABEL)
        self._of_one_label |= is_wide or (pattern.kind is Kind.EXACT and "." not in pattern.name)

    def concern(self, rule: Rule) -> bool:
        """Return whether a rule denies, or names addresses, or shares hosts with an earlier denial."""
        if rule.negated or rule.pattern.kind is Kind.NETWORK:
            return True
        if rule.pattern.kind is Kind.ANY:
            return bool(self._keys)
        if rule.pattern.kind is Kind.ONE_LABEL:
            return self._of_one_label
        if rule.pattern.kind is not Kind.EXACT and rule.pattern.name in self._parents:
            return True
        return any(key in self._keys for key in covering_keys(rule, frozenset()))


def _whole_policy(policy: Policy) -> Iterator[Finding]:
    if policy.mode is Mode.OPEN and policy.rules:
        yield Finding(
            code="open-with-rules",
            message="mode `open` skips the proxy, so no rule has an effect; "
            "write `mode: denylist` or `mode: allowlist`",
        )
    if policy.mode is Mode.ALLOWLIST and all(rule.negated for rule in policy.rules):
        yield Finding(
            code="empty-allowlist",
            message="the allowlist has no rule that allows anything, so everything is denied; "
            "write a rule such as `api.example.com`, or `preset: iterion-default`",
        )


def _hidden(rule: Rule, later: Rule) -> Finding:
    if rule.pattern == later.pattern and rule.negated == later.negated:
        message = f"`{rule}` is repeated at {later.source}; remove one of the two"
        return Finding(code="duplicate-rule", message=message, rule=rule)
    message = (
        f"`{rule}` never fires: `{later}` at {later.source} comes later and covers it; "
        f"remove it, or move it below that rule"
    )
    return Finding(code="hidden-rule", message=message, rule=rule)


def _plain_in_denylist(rule: Rule) -> Finding:
    effect = ", and only lets the name resolve to private addresses" if rule.pattern.kind is Kind.EXACT else ""
    return Finding(
        code="plain-rule-in-denylist",
        message=f"`{rule}` denies nothing: a plain rule allows, in a denylist too{effect}; write `!{rule}` to deny it",
        rule=rule,
    )


def _names_too_narrow(rule: Rule, policy: Policy, engine: Engine) -> Iterator[Finding]:
    """A denying wildcard leaves its apex alone, `*.` deeper names too: a finding where those are allowed."""
    pattern = rule.pattern
    if not rule.negated or pattern.kind not in (Kind.CHILD, Kind.DESCENDANT):
        return
    if _stays_allowed(engine, pattern.name, pattern):
        apex = replace(pattern, kind=Kind.EXACT)
        yield Finding(
            code="apex-not-denied",
            message=f"`{rule}` does not cover `{pattern.name}` itself, which stays allowed; write `!{apex}` as well",
            rule=rule,
        )
    if pattern.kind is Kind.CHILD and _stays_allowed(engine, f"{_PROBE}.{_PROBE}.{pattern.name}", pattern):
        wider = replace(pattern, kind=Kind.DESCENDANT)
        yield Finding(
            code="deeper-names-not-denied",
            message=f"`{rule}` covers one label only, so `a.b.{pattern.name}` stays allowed; write `!{wider}`",
            rule=rule,
        )


def _every_name_allowed(rule: Rule, policy: Policy, engine: Engine) -> Iterator[Finding]:
    if policy.mode is Mode.ALLOWLIST and not rule.negated and rule.pattern.kind is Kind.ANY:
        yield Finding(
            code="any-host-in-allowlist",
            message=f"`{rule}` allows every host name, so the list no longer limits names; "
            "write the hosts that are needed, or `mode: denylist`",
            rule=rule,
        )


def _metadata_allowed(rule: Rule, policy: Policy, engine: Engine) -> Iterator[Finding]:
    if rule.negated or rule.pattern.network is None:
        return
    for address in (*_METADATA, *_METADATA_BEHIND):
        if address not in rule.pattern.network:
            continue
        host = Host(address=address)
        if any(engine.decide(Authority(host, port)).rule is rule for port in _ports(rule.pattern)):
            yield Finding(
                code="metadata-allowed",
                message=f"`{rule}` lets the sandbox reach {host}, a cloud metadata service that hands out credentials; "
                f"write `!{host}` below it unless that is what it is for",
                rule=rule,
            )
            return


def _localhost_refused(rule: Rule, policy: Policy, engine: Engine) -> Iterator[Finding]:
    pattern = rule.pattern
    if rule.negated or not f".{pattern.name}".endswith(".localhost"):
        return
    name = pattern.name if pattern.kind is Kind.EXACT else f"{_PROBE}.{pattern.name}"
    if not _allows(engine, name, pattern):
        loopback = replace(pattern, kind=Kind.NETWORK, name="", network=IPv4Network("127.0.0.1"))
        yield Finding(
            code="localhost-needs-address",
            message=f"`{rule}` alone allows nothing: it is loopback, which only an address rule opens; "
            f"write `{loopback}` as well",
            rule=rule,
        )


def _ports(pattern: Pattern) -> tuple[int, ...]:
    """Return the ports of a pattern that are asked about: its ends, and those that most traffic goes to."""
    return (pattern.low, *(port for port in _WELL_KNOWN_PORTS if pattern.low < port < pattern.high), pattern.high)


def _stays_allowed(engine: Engine, name: str, pattern: Pattern) -> bool:
    """Return whether a name is allowed on a port of a pattern, and not because a rule names it: then that is meant."""
    decisions = (engine.decide(Authority(Host(name), port)) for port in _ports(pattern))
    return any(each.allowed and (each.rule is None or each.rule.pattern.kind is not Kind.EXACT) for each in decisions)


def _allows(engine: Engine, name: str, pattern: Pattern) -> bool:
    return engine.decide(Authority(Host(name), pattern.low)).allowed


_Check = Callable[[Rule, Policy, Engine], Iterator[Finding]]
_CHECKS: Final[tuple[_Check, ...]] = (
    _names_too_narrow,
    _every_name_allowed,
    _metadata_allowed,
    _localhost_refused,
)
