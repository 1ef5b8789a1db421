"""The rules of a policy, arranged so that finding the last matching one does not slow down as rules are added.

A rule is known by its number, its place in the policy; "last match wins" is then "the highest number wins", and the
highest number among a few look-ups is the answer:

* a name is looked up once as an exact name, once as a child of its parent, and once under each of its ancestors;
* an address is one bisection: CIDR ranges are nested or disjoint, so they flatten into disjoint intervals, and each
  interval keeps what the chain of ranges around it says.

Behind each key stands a slot: the number of a rule for every port, or port tables. A port table flattens any number of
rules with ports (100,000 on one host, in whatever order) into disjoint port intervals and the rule that wins in each,
so it is one bisection too. An address may need one table for each nested range with ports around it: at most 33 for
IPv4 and 129 for IPv6, whatever the number of rules.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Address
from typing import Final, NamedTuple

from policy.address import IPNetwork
from policy.host import MAX_PORT, IPAddress
from policy.pattern import Kind
from policy.rules import Rule

NO_RULE: Final = -1
"""The number that stands for "no rule matches"; lower than that of every rule."""


class PortTable(NamedTuple):
    """The winning rule number from each port on, up to the next start; `highest` is the highest of them all."""

    starts: Sequence[int]
    winners: Sequence[int]
    highest: int


class Span(NamedTuple):
    """A rule's number and its port range, both ends inclusive."""

    number: int
    low: int
    high: int


Slot = int | tuple[PortTable, ...]


def winner(slot: Slot, port: int) -> int:
    """Return the number of the rule that wins on a port, or NO_RULE."""
    if isinstance(slot, int):
        return slot
    return max(winners[bisect_right(starts, port) - 1] for starts, winners, _ in slot)


def compile_ports(spans: Sequence[Span]) -> int | PortTable:
    """Return what spans in ascending order of number come to: a number if the last covers every port, else a table."""
    number, low, high = spans[-1]
    if low <= 1 and high >= MAX_PORT:
        return number
    starts = sorted({0, *(span.low for span in spans), *(span.high + 1 for span in spans)})
    place = {start: position for position, start in enumerate(starts)}
    winners = [NO_RULE] * len(starts)
    # Painted from the last rule to the first, each interval once: next_free leads past what is painted already.
    next_free = list(range(len(starts) + 1))
    for span in reversed(spans):
        end = place[span.high + 1]
        position = _first_free(next_free, place[span.low])
        while position < end:
            winners[position] = span.number
            next_free[position] = position + 1
            position = _first_free(next_free, position)
    return PortTable(starts, winners, number)


def _first_free(next_free: list[int], position: int) -> int:
    while next_free[position] != position:
        next_free[position] = next_free[next_free[position]]
        position = next_free[position]
    return position


def _slot(spans: Sequence[Span]) -> Slot:
    compiled = compile_ports(spans) if spans else NO_RULE
    return compiled if isinstance(compiled, int) else (compiled,)


class _Chain(NamedTuple):
    """What the ranges around an interval say: the best rule for every port, and the tables that can beat it."""

    best: int
    tables: tuple[PortTable, ...]

    def joined(self, compiled: int | PortTable) -> "_Chain":
        if isinstance(compiled, PortTable):
            return _Chain(self.best, (*self.tables, compiled))
        best = max(self.best, compiled)
        return _Chain(best, tuple(table for table in self.tables if table.highest > best))

    def slot(self) -> Slot:
        if not self.tables:
            return self.best
        return (*self.tables, PortTable((0,), (self.best,), self.best))


class AddressIndex:
    """The IP and CIDR rules of one address family as disjoint intervals."""

    __slots__ = ("_slots", "_starts")

    def __init__(self, spans: Mapping[IPNetwork, Sequence[Span]]) -> None:
        self._starts: list[int] = []
        self._slots: list[Slot] = []
        nothing = _Chain(NO_RULE, ())
        self._emit(0, nothing)
        around: list[tuple[int, _Chain]] = []  # (last address, chain) of each range that is open, outermost first
        # Outer ranges first, which is the order of ip_network: by first address, then by netmask.
        for network in sorted(spans, key=lambda network: (int(network.network_address), network.prefixlen)):
            first, last = int(network.network_address), int(network.broadcast_address)
            self._close(around, first, nothing)
            chain = (around[-1][1] if around else nothing).joined(compile_ports(spans[network]))
            around.append((last, chain))
            self._emit(first, chain)
        self._close(around, 1 << 128, nothing)

    def _close(self, around: list[tuple[int, _Chain]], before: int, nothing: _Chain) -> None:
        while around and around[-1][0] < before:
            last, _ = around.pop()
            self._emit(last + 1, around[-1][1] if around else nothing)

    def _emit(self, start: int, chain: _Chain) -> None:
        if self._starts and self._starts[-1] == start:
            self._slots[-1] = chain.slot()
        else:
            self._starts.append(start)
            self._slots.append(chain.slot())

    def find(self, number: int, port: int) -> int:
        """Return the number of the last rule that covers an address, given as an integer, and a port, or NO_RULE."""
        return winner(self._slots[bisect_right(self._starts, number) - 1], port)


class RuleIndex:
    """All rules of a policy, for look-up by host and port. Immutable once made."""

    __slots__ = ("_any", "_any_denied", "_child", "_descendant", "_exact", "_ipv4", "_ipv6", "_one_label")

    def __init__(self, rules: Iterable[Rule]) -> None:
        named: dict[Kind, dict[str, list[Span]]] = {kind: defaultdict(list) for kind in Kind}
        networks: dict[int, dict[IPNetwork, list[Span]]] = {4: defaultdict(list), 6: defaultdict(list)}
        any_denied: list[Span] = []
        for number, rule in enumerate(rules):
            pattern = rule.pattern
            span = Span(number, pattern.low, pattern.high)
            if pattern.network is not None:
                networks[pattern.network.version][pattern.network].append(span)
                continue
            named[pattern.kind][pattern.name].append(span)
            if pattern.kind is Kind.ANY and rule.negated:
                any_denied.append(span)
        slots = {kind: {name: _slot(spans) for name, spans in names.items()} for kind, names in named.items()}
        self._exact = slots[Kind.EXACT]
        self._child = slots[Kind.CHILD]
        self._descendant = slots[Kind.DESCENDANT]
        self._one_label = slots[Kind.ONE_LABEL].get("", NO_RULE)
        self._any = slots[Kind.ANY].get("", NO_RULE)
        self._any_denied = _slot(any_denied)
        self._ipv4 = AddressIndex(networks[4])
        self._ipv6 = AddressIndex(networks[6])

    def find_name(self, name: str, port: int) -> int:
        """Return the number of the last rule that covers a name and port, or NO_RULE."""
        best = winner(self._any, port)
        slot = self._exact.get(name)
        if slot is not None:
            best = max(best, winner(slot, port))
        dot = name.find(".")
        if dot < 0:
            return max(best, winner(self._one_label, port))
        ancestor = name[dot + 1 :]
        slot = self._child.get(ancestor)
        if slot is not None:
            best = max(best, winner(slot, port))
        descendant = self._descendant
        while descendant:
            slot = descendant.get(ancestor)
            if slot is not None:
                best = max(best, winner(slot, port))
            dot = ancestor.find(".")
            if dot < 0:
                break
            ancestor = ancestor[dot + 1 :]
        return best

    def find_address(self, address: IPAddress, port: int) -> int:
        """Return the number of the last IP or CIDR rule that covers an address and port, or NO_RULE."""
        family = self._ipv4 if isinstance(address, IPv4Address) else self._ipv6
        return family.find(int(address), port)

    def find_denied_any(self, port: int) -> int:
        """Return the number of the last `!**` rule on a port, the only name rule that covers literals, or NO_RULE."""
        return winner(self._any_denied, port)
