"""Which rules a later rule hides; the oracle compares every pair."""

from hypothesis import given
from hypothesis import strategies as st

from policy.coverage import PortRanges, hidden_rules
from policy.pattern import Kind, Pattern
from policy.rules import Mode, Rule
from tests.policy.properties import policy_of

RULES = st.lists(
    st.builds(
        "{}{}{}".format,
        st.sampled_from(["", "!"]),
        st.sampled_from(
            ["a", "a.b", "*.b", "**.b", "x.a.b", "*.a.b", "**.a.b", "*", "**", "10.0.0.0/8", "10.1.0.0/16", "10.1.0.1"]
        ),
        st.sampled_from(["", ":80", ":80-90", ":85-95", ":1-89"]),
    ),
    max_size=10,
)
NAMES = ("a", "z", "a.b", "y.b", "x.a.b", "w.x.a.b", "v.y.b", "c.d")


def covers(later: Rule, earlier: Rule) -> bool:
    wide, narrow = later.pattern, earlier.pattern
    if not (wide.low <= narrow.low and narrow.high <= wide.high):
        return False
    if wide.network is not None or narrow.network is not None:
        return (
            wide.network is not None
            and narrow.network is not None
            and int(wide.network.network_address) <= int(narrow.network.network_address)
            and int(narrow.network.broadcast_address) <= int(wide.network.broadcast_address)
        )
    if earlier.negated and narrow.kind is Kind.ANY and not (later.negated and wide.kind is Kind.ANY):
        return False
    return names_of(narrow) <= names_of(wide)


def names_of(pattern: Pattern) -> set[str]:
    from policy.host import Host

    # Names below the pattern's own tell *. and **. apart; the rest is a sample of everything else.
    more = {f"p.{pattern.name}", f"p.q.{pattern.name}"} if pattern.name else set()
    probes = {*NAMES, *more, "p.b", "p.q.b", "p.a.b", "p.q.a.b", "p", "p.q"}
    return {name for name in probes if pattern.matches_host(Host(name))}


@given(RULES)
def test_a_rule_is_hidden_when_one_later_rule_covers_it(texts: list[str]) -> None:
    rules = policy_of(Mode.ALLOWLIST, texts).rules
    found = dict(hidden_rules(rules))
    expected = {
        number for number, rule in enumerate(rules) if any(covers(later, rule) for later in rules[number + 1 :])
    }
    assert set(found) == expected
    for number, by in found.items():
        assert by > number
        assert covers(rules[by], rules[number])


def test_port_ranges_keep_what_no_other_contains() -> None:
    ranges = PortRanges()
    assert ranges.find(1, 1) is None
    ranges.add(10, 20, 1)
    ranges.add(30, 40, 2)
    assert ranges.find(12, 15) == 1
    assert ranges.find(12, 21) is None
    assert ranges.find(30, 40) == 2
    assert ranges.find(9, 10) is None
    ranges.add(5, 35, 3)  # takes the place of the first, overlaps the second
    assert ranges.find(10, 20) == 3
    assert ranges.find(36, 40) == 2
    ranges.add(1, 65535, 4)
    assert ranges.find(36, 40) == 4
