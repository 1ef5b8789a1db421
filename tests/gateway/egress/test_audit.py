"""What the record and the summary say, without a connection."""

from ipaddress import IPv4Address

from gateway.egress.audit import MAX_HOST_CHARACTERS, Audit, rule_label
from gateway.egress.connect import LivePolicy, Route
from gateway.events import DroppedAddress, EgressSaturated, NetworkAllowed, NetworkBlocked
from policy.rules import Rule
from tests.gateway.egress.world import MemoryRecorder, engine_for


def judged(text: str, addresses: list[str], *rules: str) -> Route:
    policy = LivePolicy(engine_for(*rules), 1)
    route = Route(policy, text)
    route.addresses = tuple(map(IPv4Address, addresses))
    route.judgement = policy.engine.judge(route.decision, route.addresses)
    return route


async def test_an_allowed_route_with_dropped_addresses() -> None:
    recorder = MemoryRecorder()
    audit = Audit(recorder, node_id="n")
    route = judged("a.wild.example:443", ["10.0.0.1", "192.0.2.1"], "**.wild.example", "!192.0.2.1", "127.0.0.1")
    route.addresses = (IPv4Address("10.0.0.1"), IPv4Address("192.0.2.1"), IPv4Address("127.0.0.1"))
    route.judgement = route.policy.engine.judge(route.decision, route.addresses)
    route.address = IPv4Address("127.0.0.1")
    passage = audit.allowed(7, route, "connect")
    passage.close("completed", 3, 4)
    passage.close("cancelled", 5, 6)
    allowed = recorder.events[0]
    assert isinstance(allowed, NetworkAllowed)
    assert allowed.dropped == (
        DroppedAddress(address="10.0.0.1", code="address_private"),
        DroppedAddress(address="192.0.2.1", code="denied_by_rule", rule="!192.0.2.1 (--allow)"),
    )
    assert (allowed.connection, allowed.address) == (7, "127.0.0.1")
    assert recorder.network[1:] == [("closed", "a.wild.example:443", "completed")]
    assert (audit.stats.bytes_up, audit.stats.bytes_down) == (3, 4)


async def test_a_route_that_was_never_judged_is_recorded_too() -> None:
    recorder = MemoryRecorder()
    route = Route(LivePolicy(engine_for("ok.example"), 1), "ok.example:443")
    Audit(recorder).allowed(1, route, "http").close("cancelled")
    (allowed, _) = recorder.events
    assert isinstance(allowed, NetworkAllowed)
    assert (allowed.addresses, allowed.dropped, allowed.address, allowed.code) == ((), (), None, "allowed_by_rule")


def test_all_addresses_of_a_denied_route_are_recorded() -> None:
    recorder = MemoryRecorder()
    Audit(recorder).denied(1, judged("ok.example:443", ["10.0.0.1", "169.254.169.254"], "**.example", "ok.example:1"))
    (blocked,) = recorder.events
    assert isinstance(blocked, NetworkBlocked)
    assert blocked.addresses == ("10.0.0.1", "169.254.169.254")


def test_a_host_that_is_none_is_kept_short() -> None:
    recorder = MemoryRecorder()
    audit = Audit(recorder)
    audit.denied(1, Route(LivePolicy(engine_for("ok.example"), 1), "x" * 5_000 + ":443"))
    (blocked,) = recorder.events
    assert isinstance(blocked, NetworkBlocked)
    assert (blocked.code, blocked.port, len(blocked.host)) == ("invalid_host", None, MAX_HOST_CHARACTERS)
    assert audit.stats.blocked == {"invalid_host": 1}


def test_of_a_row_of_saturations_the_first_is_recorded() -> None:
    recorder = MemoryRecorder()
    audit = Audit(recorder)
    for _ in range(3):
        audit.saturated("connection cap", 10)
    audit.relieved()
    audit.saturated("connection cap", 10)
    assert recorder.events == [EgressSaturated(reason="connection cap", active=0, limit=10)] * 2
    assert audit.stats.unavailable == 4


def test_a_rule_is_shown_with_its_place() -> None:
    rule: Rule = engine_for("!*.evil.example:443").policy.rules[0]
    assert rule_label(rule) == "!*.evil.example:443 (--allow)"
    assert rule_label(None) is None
