"""The cost of one policy decision, and how little it grows with the number of rules, whatever the rules are."""

import time
from collections.abc import Callable, Sequence

from bench.figures import Bar, Row, medians
from policy.engine import Engine
from policy.host import Authority, parse_authority
from policy.rules import Mode, RuleSource, RuleText, build_policy

RULE_COUNTS = (10, 1_000, 100_000)
DECISIONS = 20_000
MAX_DECISION_US = 5
MAX_GROWTH = 1.5


def _names(number: int) -> str:
    kinds = ("host-{}.example.com", "*.zone-{}.example.net", "**.deep-{}.example.org", "!no-{}.example.com:443")
    return kinds[number % len(kinds)].format(number)


def _ports_of_one_host(number: int) -> str:
    low = number * 7 % 65_000 + 1
    return f"one.example.com:{low}-{low + number % 400 + 1}"


def _ranges(number: int) -> str:
    """Return a CIDR range that lies inside ranges of lower numbers, or beside them."""
    length = 12 + number % 20
    address = number * 2_654_435_761 % 2**32 >> (32 - length) << (32 - length)
    return f"{address >> 24}.{address >> 16 & 255}.{address >> 8 & 255}.{address & 255}/{length}"


_KINDS: dict[str, tuple[Callable[[int], str], tuple[str, ...]]] = {
    "a decision on a name": (
        _names,
        ("host-0.example.com", "host-8.example.com", "a.zone-1.example.net", "a.b.evil.test"),
    ),
    "... all rules on the ports of one host": (
        _ports_of_one_host,
        ("one.example.com:1", "one.example.com:60000", "a.b"),
    ),
    "... on an address, among ranges": (_ranges, ("93.184.216.34", "0.0.0.1", "203.0.113.9")),
}
"What is decided -> how its rules are made, and the hosts that are asked about: matching early, late, and not at all."


def _engine(make: Callable[[int], str], count: int) -> Engine:
    source = RuleSource(origin="user", file="policy.yaml", line=1)
    rules = [RuleText(make(number), source) for number in range(count)]
    return Engine(build_policy(Mode.ALLOWLIST, rules=rules))


def _microseconds(engine: Engine, targets: Sequence[Authority]) -> float:
    """Return the mean time of a decision."""
    rounds = DECISIONS // len(targets)
    began = time.perf_counter()
    for _ in range(rounds):
        for target in targets:
            engine.decide(target)
    return (time.perf_counter() - began) / (rounds * len(targets)) * 1e6


def _measure(figure: str, make: Callable[[int], str], hosts: Sequence[str], rounds: int) -> Row:
    targets = [parse_authority(host, default_port=443) for host in hosts]
    engines = {count: _engine(make, count) for count in RULE_COUNTS}
    seen: dict[str, list[float]] = {f"{count:,} rules": [] for count in RULE_COUNTS}
    for _ in range(rounds):
        for count, engine in engines.items():
            seen[f"{count:,} rules"].append(_microseconds(engine, targets))
    values = medians(seen)
    slowest, fastest = max(values.values()), min(values.values())
    growth = slowest / fastest
    bars = (
        Bar(text=f"<= {MAX_DECISION_US} us", seen=slowest, passed=slowest <= MAX_DECISION_US),
        Bar(text=f"within {MAX_GROWTH}x for every count", seen=growth, passed=growth <= MAX_GROWTH),
    )
    return Row(figure=figure, unit="us", ours=slowest, peers=values, bars=bars)


def measure_decisions(rounds: int) -> list[Row]:
    """Return the time of a decision with 10 rules, and with 1,000 and 100,000 for comparison, for each kind of rule."""
    return [_measure(figure, make, hosts, rounds) for figure, (make, hosts) in _KINDS.items()]
