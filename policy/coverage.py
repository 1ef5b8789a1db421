"""Which pattern covers which: for lint, over rule lists of any length in one pass."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Hashable, Iterator
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from policy.address import IPNetwork
from policy.pattern import Kind, Pattern
from policy.rules import Rule


class PortRanges:
    """Port ranges of which none contains another, each with a rule number; in ascending order of both ends."""

    __slots__ = ("_highs", "_lows", "_numbers")

    def __init__(self) -> None:
        self._lows: list[int] = []
        self._highs: list[int] = []
        self._numbers: list[int] = []

    def find(self, low: int, high: int) -> int | None:
        """Return the number of a range that contains the given one, None if there is none."""
        # Of the ranges that start early enough, the last one reaches furthest.
        place = bisect_right(self._lows, low) - 1
        return self._numbers[place] if place >= 0 and self._highs[place] >= high else None

    def add(self, low: int, high: int, number: int) -> None:
        """Add a range that no other contains, in place of those that it contains."""
        first = bisect_left(self._lows, low)
        last = bisect_right(self._highs, high)
        self._lows[first:last] = [low]
        self._highs[first:last] = [high]
        self._numbers[first:last] = [number]


class Coverer(NamedTuple):
    """A rule that is covered by a later one, both by number."""

    hidden: int
    by: int


def hidden_rules(rules: tuple[Rule, ...]) -> Iterator[Coverer]:
    """Yield the rules that can never fire, because one later rule covers all that they cover; last to first."""
    later: defaultdict[Hashable, PortRanges] = defaultdict(PortRanges)
    prefix_lengths: set[int] = set()
    for number in range(len(rules) - 1, -1, -1):
        rule = rules[number]
        pattern = rule.pattern
        found = (
            later[key].find(pattern.low, pattern.high) for key in covering_keys(rule, prefix_lengths) if key in later
        )
        by = next((each for each in found if each is not None), None)
        if by is not None:
            yield Coverer(number, by)
            continue
        later[rule_key(rule)].add(pattern.low, pattern.high, number)
        if pattern.network is not None:
            prefix_lengths.add(pattern.network.prefixlen)


def rule_key(rule: Rule) -> Hashable:
    """Return what identifies the target of a rule, without ports and, but for `!**`, whichever way it decides."""
    pattern = rule.pattern
    if pattern.network is not None:
        return _network_key(pattern.network, pattern.network.prefixlen)
    if pattern.kind is Kind.ANY:
        return (Kind.ANY, rule.negated)
    return (pattern.kind, pattern.name)


def covering_keys(rule: Rule, prefix_lengths: AbstractSet[int]) -> Iterator[Hashable]:
    """Yield the keys of all targets that cover a rule's target, itself first.

    Args: `prefix_lengths`, the ones that occur, so that no time goes into ranges that do not.
    """
    yield rule_key(rule)
    pattern = rule.pattern
    if pattern.network is not None:
        for length in prefix_lengths:
            if length < pattern.network.prefixlen:
                yield _network_key(pattern.network, length)
        return
    # `!**` covers address literals as well, which no other name rule does.
    yield (Kind.ANY, True)
    if pattern.kind is Kind.ANY:
        return
    yield (Kind.ANY, False)
    if pattern.kind is Kind.ONE_LABEL:
        return
    parents = ancestors(pattern)
    if pattern.kind is Kind.EXACT:
        yield (Kind.CHILD, parents[0]) if parents else (Kind.ONE_LABEL, "")
    if pattern.kind is Kind.CHILD:
        yield (Kind.DESCENDANT, pattern.name)
    for name in parents:
        yield (Kind.DESCENDANT, name)


def ancestors(pattern: Pattern) -> tuple[str, ...]:
    """Return the names above a pattern's name, the nearest first."""
    labels = pattern.name.split(".")
    return tuple(".".join(labels[start:]) for start in range(1, len(labels)))


def _network_key(network: IPNetwork, length: int) -> Hashable:
    return (network.version, length, int(network.network_address) >> (network.max_prefixlen - length))
