"""The pipeline: decide, resolve, judge, dial - and never another order."""

from ipaddress import IPv4Address

import pytest

from gateway.egress.connect import FAILURES, LivePolicy, Route
from gateway.egress.dial import DialFailure
from gateway.egress.limits import Limits
from gateway.egress.resolver import ResolveFailure
from policy.rules import Reason
from tests.gateway.egress.loopback import free_port, listen, port_of
from tests.gateway.egress.name_server import FakeResolver
from tests.gateway.egress.world import engine_for

pytestmark = pytest.mark.usefixtures("no_leaks")

LOOPBACK = IPv4Address("127.0.0.1")


def route(text: str, *rules: str) -> Route:
    return Route(LivePolicy(engine_for(*rules), 10), text)


async def open_route(text: str, resolver: FakeResolver, *rules: str) -> Route:
    opened = route(text, *rules)
    assert opened.denied is None
    await opened.open(resolver, Limits())
    if opened.sock is not None:
        opened.sock.close()
    return opened


def test_every_failure_has_a_status_and_a_text() -> None:
    assert set(FAILURES) == {*ResolveFailure, *DialFailure}
    assert {failure.status for failure in FAILURES.values()} <= {502, 503, 504}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("denied.example:443", Reason.NOT_IN_ALLOWLIST),
        ("127.0.0.1:443", Reason.ADDRESS_LITERAL),
        ("a..example:443", Reason.INVALID_HOST),
        ("ok.example", Reason.INVALID_HOST),
    ],
)
def test_a_denied_host_is_known_without_a_resolver(text: str, reason: Reason) -> None:
    assert route(text, "ok.example").denied is reason


async def test_an_address_is_dialled_without_a_resolver() -> None:
    resolver = FakeResolver({})
    with listen() as listener:
        opened = await open_route(f"127.0.0.1:{port_of(listener)}", resolver, "127.0.0.1")
    assert opened.address == LOOPBACK
    assert resolver.asked == []


async def test_H12_one_resolution_and_that_address_is_dialled() -> None:
    resolver = FakeResolver({"ok.example": [["127.0.0.1"], ["169.254.169.254"]]})
    with listen() as listener:
        authority = f"ok.example:{port_of(listener)}"
        first = await open_route(authority, resolver, "ok.example", "127.0.0.1")
        assert first.address == LOOPBACK
        assert resolver.asked == ["ok.example"]
        second = await open_route(authority, resolver, "ok.example", "127.0.0.1")
        assert second.denied is Reason.ADDRESS_METADATA
        assert second.sock is None


async def test_H13_what_policy_drops_is_not_dialled() -> None:
    resolver = FakeResolver({"a.wild.example": ("10.0.0.1", "127.0.0.1")})
    with listen() as listener:
        opened = await open_route(f"a.wild.example:{port_of(listener)}", resolver, "**.wild.example", "127.0.0.1")
    assert opened.address == LOOPBACK
    assert opened.judgement is not None
    assert [(drop.address, drop.reason) for drop in opened.judgement.dropped] == [
        (IPv4Address("10.0.0.1"), Reason.ADDRESS_PRIVATE)
    ]


async def test_a_name_without_an_allowed_address_is_denied() -> None:
    opened = await open_route("ok.example:443", FakeResolver({"ok.example": ("127.0.0.1", "::1")}), "ok.example")
    assert opened.denied is Reason.ADDRESS_LOOPBACK
    assert opened.failure is None


def test_following_an_earlier_route_leads_to_the_same_connection() -> None:
    earlier, later = route("127.0.0.1:1", "127.0.0.1"), route("127.0.0.1:1", "127.0.0.1")
    earlier.addresses, earlier.address = (LOOPBACK,), LOOPBACK
    later.follow(earlier)
    assert (later.addresses, later.address) == ((LOOPBACK,), LOOPBACK)


@pytest.mark.parametrize("failure", list(ResolveFailure))
async def test_a_name_that_cannot_be_resolved_is_a_failure(failure: ResolveFailure) -> None:
    opened = await open_route("ok.example:443", FakeResolver({"ok.example": failure}), "ok.example")
    assert opened.denied is None
    assert opened.failure is FAILURES[failure]


async def test_an_upstream_that_refuses_is_a_failure() -> None:
    opened = await open_route(f"127.0.0.1:{free_port()}", FakeResolver({}), "127.0.0.1")
    assert opened.failure is FAILURES[DialFailure.REFUSED]
    assert opened.address is None


async def test_the_rule_is_that_of_the_latest_answer() -> None:
    opened = await open_route(
        "ok.example:443", FakeResolver({"ok.example": ("192.0.2.1",)}), "ok.example", "!192.0.2.0/24"
    )
    assert opened.denied is Reason.DENIED_BY_RULE
    assert opened.rule is not None
    assert opened.rule.text == "!192.0.2.0/24"


def test_decisions_are_remembered_and_the_oldest_forgotten() -> None:
    policy = LivePolicy(engine_for("ok.example"), 2)
    first = policy.decide("ok.example:443")
    assert policy.decide("ok.example:443") is first
    policy.decide("b.example:443")
    policy.decide("c.example:443")
    again = policy.decide("ok.example:443")
    assert again == first
    assert again is not first
