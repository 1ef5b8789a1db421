"""The cost of one policy decision, and how little it grows with the number of rules."""

import time

from bench.figures import Bar, Row, medians
from policy.engine import Engine
from policy.host import parse_authority
from policy.rules import Mode, RuleSource, RuleText, build_policy

RULE_COUNTS = (10, 1_000, 100_000)
DECISIONS = 20_000


def _engine(count: int) -> Engine:
    source = RuleSource(origin="user", file="policy.yaml", line=1)
    kinds = ("host-{}.example.com", "*.zone-{}.example.net", "**.deep-{}.example.org", "!no-{}.example.com:443")
    rules = [RuleText(kinds[number % len(kinds)].format(number), source) for number in range(count)]
    return Engine(build_policy(Mode.ALLOWLIST, rules=rules))


def _microseconds(engine: Engine, count: int) -> float:
    """Return the mean time of a decision over hosts that match first, last, by suffix and not at all."""
    names = ("host-0.example.com", f"host-{count - count % 4 - 4}.example.com", "a.zone-1.example.net", "a.b.evil.test")
    targets = [parse_authority(f"{name}:443") for name in names]
    began = time.perf_counter()
    for number in range(DECISIONS):
        engine.decide(targets[number & 3])
    return (time.perf_counter() - began) / DECISIONS * 1e6


def measure_decisions(rounds: int) -> list[Row]:
    """Return the time of a decision with 10 rules, and with 1,000 and 100,000 for comparison."""
    engines = {count: _engine(count) for count in RULE_COUNTS}
    seen: dict[str, list[float]] = {f"{count:,} rules": [] for count in RULE_COUNTS}
    for _ in range(rounds):
        for count, engine in engines.items():
            seen[f"{count:,} rules"].append(_microseconds(engine, count))
    values = medians(seen)
    slowest, fastest = max(values.values()), min(values.values())
    bars = (
        Bar(text="<= 5 us", seen=slowest, passed=slowest <= 5),
        Bar(text="within 1.5x for every count", seen=slowest / fastest, passed=slowest / fastest <= 1.5),
    )
    return [Row(figure="a policy decision", unit="us", ours=slowest, peers=values, bars=bars)]
