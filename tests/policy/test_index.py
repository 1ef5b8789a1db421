"""The arrangement of rules: port tables, nested ranges, and adversarial rule lists."""

import random
from ipaddress import ip_address

from hypothesis import given
from hypothesis import strategies as st

from policy.index import NO_RULE, RuleIndex, Span, compile_ports, winner
from policy.pattern import parse_pattern
from policy.rules import Rule, RuleSource

PORTS = st.one_of(st.integers(1, 12), st.sampled_from([80, 443, 65534, 65535]))


def rules_of(*texts: str) -> list[Rule]:
    return [
        Rule(
            pattern=parse_pattern(text.removeprefix("!")),
            negated=text.startswith("!"),
            source=RuleSource("user"),
            text=text,
        )
        for text in texts
    ]


@given(st.lists(st.tuples(PORTS, PORTS).map(sorted), min_size=1, max_size=12), PORTS)
def test_a_port_table_agrees_with_a_scan(ranges: list[list[int]], port: int) -> None:
    spans = [Span(number, low, high) for number, (low, high) in enumerate(ranges)]
    compiled = compile_ports(spans)
    expected = max((span.number for span in spans if span.low <= port <= span.high), default=NO_RULE)
    assert winner(compiled if isinstance(compiled, int) else (compiled,), port) == expected


def test_a_rule_for_every_port_needs_no_table() -> None:
    assert compile_ports([Span(3, 80, 90), Span(7, 1, 65535)]) == 7


def test_many_rules_on_one_host_are_one_table() -> None:
    chosen = random.Random(7)
    texts = []
    for _ in range(3_000):
        low = chosen.randint(1, 65_000)
        texts.append(f"a.com:{low}-{low + chosen.randint(1, 500)}")
    index = RuleIndex(rules_of(*texts))
    patterns = [parse_pattern(text) for text in texts]
    for port in (1, 2, 1_000, 30_000, 65_535):
        expected = max((n for n, p in enumerate(patterns) if p.low <= port <= p.high), default=NO_RULE)
        assert index.find_name("a.com", port) == expected


def test_nested_ranges_keep_the_last_rule_not_the_narrowest() -> None:
    index = RuleIndex(rules_of("10.1.0.0/16", "10.0.0.0/8", "10.1.2.0/24", "10.1.2.3:22", "10.2.0.0/16:443"))
    for text, port, expected in (
        ("9.255.255.255", 1, NO_RULE),
        ("10.0.0.0", 1, 1),
        ("10.1.0.0", 1, 1),
        ("10.1.2.0", 1, 2),
        ("10.1.2.3", 1, 2),
        ("10.1.2.3", 22, 3),
        ("10.1.2.4", 22, 2),
        ("10.2.0.1", 443, 4),
        ("10.2.0.1", 80, 1),
        ("10.255.255.255", 443, 1),
        ("11.0.0.0", 1, NO_RULE),
        ("::a01:203", 22, NO_RULE),
    ):
        assert index.find_address(ip_address(text), port) == expected, (text, port)


def test_a_later_wide_rule_hides_earlier_tables_inside_it() -> None:
    index = RuleIndex(rules_of("10.0.0.0/8:80", "10.1.0.0/16", "10.1.0.0/24:80"))
    assert index.find_address(ip_address("10.1.1.1"), 80) == 1
    assert index.find_address(ip_address("10.1.0.1"), 80) == 2
    assert index.find_address(ip_address("10.2.0.1"), 80) == 0


def test_ranges_at_the_ends_of_the_address_space() -> None:
    index = RuleIndex(rules_of("0.0.0.0/0", "255.255.255.255", "::/0", "ffff::/16"))
    assert index.find_address(ip_address("0.0.0.0"), 1) == 0
    assert index.find_address(ip_address("255.255.255.255"), 1) == 1
    assert index.find_address(ip_address("::"), 1) == 2
    assert index.find_address(ip_address("ffff:ffff::"), 1) == 3


def test_names_are_found_under_each_of_their_keys() -> None:
    index = RuleIndex(rules_of("**", "*", "**.com", "**.a.com", "*.a.com", "x.a.com", "!**:25"))
    for name, port, expected in (
        ("host", 1, 1),
        ("b.org", 1, 0),
        ("b.com", 1, 2),
        ("y.y.a.com", 1, 3),
        ("y.a.com", 1, 4),
        ("x.a.com", 1, 5),
        ("x.a.com", 25, 6),
    ):
        assert index.find_name(name, port) == expected
    assert index.find_denied_any(25) == 6
    assert index.find_denied_any(443) == NO_RULE


def test_an_empty_index_finds_nothing() -> None:
    index = RuleIndex([])
    assert index.find_name("a.com", 443) == NO_RULE
    assert index.find_address(ip_address("1.2.3.4"), 443) == NO_RULE
    assert index.find_address(ip_address("::1"), 443) == NO_RULE
    assert index.find_denied_any(443) == NO_RULE
