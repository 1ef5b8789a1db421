"""The one function that decides: the proxy, `policy check`, doctor and replay all call it.

The order is fixed. First the host and port are decided, by name or as an address literal, before anything is resolved.
Then, for a name, every address it resolved to is judged, and only a survivor may be dialled. Every question has an
answer: nothing here raises, and what no rule or mode allows is denied.
"""

from collections.abc import Collection, Sequence
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from policy.address import AddressClass, classify, embedded_ipv4
from policy.host import Authority, InvalidHost, IPAddress, parse_authority, unmapped
from policy.index import RuleIndex
from policy.pattern import Kind
from policy.presets import SILENT_DENY
from policy.rules import (
    Decision,
    DroppedAddress,
    Judgement,
    Mode,
    Policy,
    Reason,
    Rule,
    RuleSource,
    RuleText,
    parse_rule,
)

# What `localhost` and the names below it are (RFC 6761 section 6.3).
_LOCALHOST_ADDRESSES: Final[tuple[IPAddress, ...]] = (IPv4Address("127.0.0.1"), IPv6Address("::1"))

_SILENT: Final = RuleIndex(parse_rule(RuleText(entry.pattern, RuleSource("silent-deny"))) for entry in SILENT_DENY)
_ANY_PORT: Final = 443  # The silent-deny list has no ports.

_NAMING_KINDS: Final = frozenset({Kind.EXACT, Kind.CHILD, Kind.DESCENDANT})


class Engine:
    """A policy, indexed, ready to answer. Immutable; safe to share between tasks and threads.

    Args: `own_addresses`, the addresses that the gateway itself listens on or is reached by.
    """

    __slots__ = ("_index", "_mode", "_own", "_rules", "_users_names", "policy")

    def __init__(self, policy: Policy, *, own_addresses: Collection[IPAddress] = ()) -> None:
        self.policy = policy
        self._mode = policy.mode
        self._rules = policy.rules
        self._index = RuleIndex(policy.rules)
        self._own = frozenset(map(unmapped, own_addresses))
        self._users_names = RuleIndex(_without_ports(rule) for rule in policy.rules if _names_hosts(rule))

    def decide_text(self, text: str, default_port: int | None = None) -> Decision:
        """Return the decision on `host:port` as it was written; text that is no authority is denied as invalid.

        Args: `default_port`, used where the text has no port; None makes the port mandatory.
        """
        try:
            authority = parse_authority(text, default_port=default_port)
        except InvalidHost as error:
            return Decision(allowed=False, reason=Reason.INVALID_HOST, detail=error.detail)
        return self.decide(authority)

    def decide(self, authority: Authority) -> Decision:
        """Return the decision on a host and port: complete for an address, subject to `judge` for a name."""
        address = authority.host.address
        if address is not None:
            return self._decide_literal(authority, address)
        name = authority.host.name or ""
        number = self._index.find_name(name, authority.port)
        if number >= 0:
            rule = self._rules[number]
            if rule.negated:
                return self._deny(authority, Reason.DENIED_BY_RULE, rule)
            decision = Decision(allowed=True, reason=Reason.ALLOWED_BY_RULE, rule=rule, authority=authority)
        elif self._mode is Mode.ALLOWLIST:
            return self._deny(authority, Reason.NOT_IN_ALLOWLIST, None)
        else:
            decision = Decision(allowed=True, reason=Reason.ALLOWED_BY_MODE, authority=authority)
        if name == "localhost" or name.endswith(".localhost"):
            return self._decide_localhost(decision, authority)
        return decision

    def judge(self, decision: Decision, addresses: Sequence[IPAddress]) -> Judgement:
        """Return which of the addresses that a decided host resolved to may be dialled.

        Args: `addresses`, in order of preference; survivors keep the order, IPv4-mapped ones become IPv4, and an
        address given twice counts once.
        """
        authority = decision.authority
        unique = dict.fromkeys(map(unmapped, addresses))
        if not decision.allowed or authority is None:
            refused = (DroppedAddress(address=each, reason=decision.reason, rule=decision.rule) for each in unique)
            return Judgement(allowed=False, reason=decision.reason, dropped=tuple(refused), rule=decision.rule)
        is_named = _is_named_by_user(decision.rule)
        survivors: list[IPAddress] = []
        dropped: list[DroppedAddress] = []
        for address in unique:
            if authority.host.is_address:
                refusal = self._refuse_literal(address, authority.port)
            else:
                refusal = self._refuse_resolved(address, authority.port, is_named=is_named)
            if refusal is None:
                survivors.append(address)
            else:
                dropped.append(refusal)
        if survivors:
            return Judgement(
                allowed=True,
                reason=decision.reason,
                survivors=tuple(survivors),
                dropped=tuple(dropped),
                rule=decision.rule,
            )
        return _nothing_left(dropped)

    def _deny(self, authority: Authority, reason: Reason, rule: Rule | None) -> Decision:
        return Decision(allowed=False, reason=reason, rule=rule, authority=authority, silent=self._is_silent(authority))

    def _is_silent(self, authority: Authority) -> bool:
        name = authority.host.name or ""
        return _SILENT.find_name(name, _ANY_PORT) >= 0 and self._users_names.find_name(name, _ANY_PORT) < 0

    def _decide_localhost(self, decision: Decision, authority: Authority) -> Decision:
        """Hold an allowed `localhost` to what the addresses it stands for are held to."""
        judgement = self.judge(decision, _LOCALHOST_ADDRESSES)
        if judgement.allowed:
            return decision
        return self._deny(authority, judgement.reason, judgement.rule)

    def _decide_literal(self, authority: Authority, address: IPAddress) -> Decision:
        refusal = self._refuse_literal(address, authority.port)
        if refusal is not None:
            return Decision(allowed=False, reason=refusal.reason, rule=refusal.rule, authority=authority)
        number = self._find_address_rule(address, authority.port)
        if number >= 0:
            return Decision(allowed=True, reason=Reason.ALLOWED_BY_RULE, rule=self._rules[number], authority=authority)
        return Decision(allowed=True, reason=Reason.ALLOWED_BY_MODE, authority=authority)

    def _find_address_rule(self, address: IPAddress, port: int) -> int:
        """Return the number of the last IP rule on an address, or on an IPv4 address in it if that rule denies.

        A rule that denies 10.0.0.0/8 also stops 64:ff9b::10.0.0.1, which a translator delivers to 10.0.0.1. A rule
        that allows an IPv4 address says nothing about the tunnels that may lead to it.
        """
        number = self._index.find_address(address, port)
        for inner in embedded_ipv4(address):
            other = self._index.find_address(inner, port)
            if other > number and self._rules[other].negated:
                number = other
        return number

    def _refuse_literal(self, address: IPAddress, port: int) -> DroppedAddress | None:
        """Return why an address may not be named as a host, None if it may."""
        number = max(self._find_address_rule(address, port), self._index.find_denied_any(port))
        if number >= 0:
            return self._refuse_by_rule(address, number)
        if self._mode is Mode.ALLOWLIST:
            return DroppedAddress(address=address, reason=Reason.ADDRESS_LITERAL)
        return self._refuse_by_class(address, is_named=False)

    def _refuse_resolved(self, address: IPAddress, port: int, *, is_named: bool) -> DroppedAddress | None:
        """Return why an address that a name resolved to may not be dialled, None if it may."""
        number = self._find_address_rule(address, port)
        if number >= 0:
            return self._refuse_by_rule(address, number)
        return self._refuse_by_class(address, is_named=is_named)

    def _refuse_by_rule(self, address: IPAddress, number: int) -> DroppedAddress | None:
        rule = self._rules[number]
        return DroppedAddress(address=address, reason=Reason.DENIED_BY_RULE, rule=rule) if rule.negated else None

    def _refuse_by_class(self, address: IPAddress, *, is_named: bool) -> DroppedAddress | None:
        if self._mode is Mode.OPEN:
            return None
        address_class = classify(address)
        # Loopback is called loopback, although it is one of the gateway's own addresses as well.
        if not address_class.is_always_refused and self._is_own(address):
            return DroppedAddress(address=address, reason=Reason.ADDRESS_OWN)
        if address_class is AddressClass.PUBLIC or (is_named and address_class.is_internal):
            return None
        return DroppedAddress(address=address, reason=Reason.of_address(address_class))

    def _is_own(self, address: IPAddress) -> bool:
        return bool(self._own) and not self._own.isdisjoint((address, *embedded_ipv4(address)))


def _names_hosts(rule: Rule) -> bool:
    return not rule.source.is_preset and rule.pattern.kind in _NAMING_KINDS


def _without_ports(rule: Rule) -> Rule:
    pattern = type(rule.pattern)(kind=rule.pattern.kind, name=rule.pattern.name)
    return Rule(pattern=pattern, negated=rule.negated, source=rule.source, text=rule.text)


def _is_named_by_user(rule: Rule | None) -> bool:
    """Return whether a rule of the user's own names one host exactly, the wish that opens internal addresses."""
    return rule is not None and rule.pattern.kind is Kind.EXACT and not rule.source.is_preset


def _nothing_left(dropped: Sequence[DroppedAddress]) -> Judgement:
    reasons = {drop.reason for drop in dropped}
    rules = {id(drop.rule): drop.rule for drop in dropped}
    return Judgement(
        allowed=False,
        reason=reasons.pop() if len(reasons) == 1 else Reason.NO_ADDRESS_LEFT,
        dropped=tuple(dropped),
        rule=next(iter(rules.values())) if len(rules) == 1 else None,
    )
