"""Names to addresses: the contract on the fake and on the real resolver, then what is special to the real one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import dns.rcode
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from gateway.egress.limits import Limits
from gateway.egress.resolver import (
    ResolveError,
    ResolveFailure,
    Resolver,
    SystemResolver,
    parse_hosts_file,
)
from policy.host import InvalidHost
from tests.gateway.egress.name_server import FakeResolver, NameServer, name_server

pytestmark = pytest.mark.usefixtures("no_leaks")

FAST = Limits(resolve_timeout_s=0.5, resolution_delay_s=0.1)


def resolver_for(server: NameServer, limits: Limits = FAST, hosts_file: Path | None = None) -> SystemResolver:
    return SystemResolver(limits=limits, hosts_file=hosts_file, nameservers=["127.0.0.1"], port=server.port)


@asynccontextmanager
async def contract_resolver(kind: str) -> AsyncIterator[Resolver]:
    if kind == "fake":
        yield FakeResolver(
            {
                "both.example": ("2001:db8::1", "192.0.2.1", "192.0.2.2"),
                "empty.example": ResolveFailure.NO_ADDRESS,
                "broken.example": ResolveFailure.SERVER_FAILURE,
                "silent.example": ResolveFailure.TIMEOUT,
            }
        )
        return
    async with name_server() as server:
        server.records["both.example."] = ["60 A 192.0.2.1", "60 A 192.0.2.2", "60 AAAA 2001:db8::1"]
        server.records["empty.example."] = ["60 TXT x"]
        server.rcodes["broken.example."] = dns.rcode.SERVFAIL
        server.silent |= {("silent.example.", "A"), ("silent.example.", "AAAA")}
        yield resolver_for(server)


@pytest.mark.parametrize("kind", ["fake", "real"])
async def test_contract_addresses_of_both_families(kind: str) -> None:
    async with contract_resolver(kind) as resolver:
        assert await resolver.resolve("both.example") == (
            IPv6Address("2001:db8::1"),
            IPv4Address("192.0.2.1"),
            IPv4Address("192.0.2.2"),
        )


@pytest.mark.parametrize("kind", ["fake", "real"])
@pytest.mark.parametrize(
    ("name", "failure"),
    [
        ("nowhere.example", ResolveFailure.NO_SUCH_NAME),
        ("empty.example", ResolveFailure.NO_ADDRESS),
        ("broken.example", ResolveFailure.SERVER_FAILURE),
        ("silent.example", ResolveFailure.TIMEOUT),
    ],
)
async def test_contract_failures_are_typed(kind: str, name: str, failure: ResolveFailure) -> None:
    async with contract_resolver(kind) as resolver:
        with pytest.raises(ResolveError, match=name) as caught:
            await resolver.resolve(name)
        assert caught.value.failure is failure
        assert caught.value.name == name


async def test_static_hosts_come_first_and_are_canonical() -> None:
    resolver = SystemResolver(
        static_hosts={"Example.COM.": ["192.0.2.7", "::ffff:192.0.2.8"], "localhost": ["192.0.2.9"]}, hosts_file=None
    )
    assert await resolver.resolve("example.com") == (IPv4Address("192.0.2.7"), IPv4Address("192.0.2.8"))
    assert await resolver.resolve("localhost") == (IPv4Address("192.0.2.9"),)


def test_static_hosts_that_are_none_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"example\.com: 'elsewhere' is not an IP address"):
        SystemResolver(static_hosts={"example.com": ["elsewhere"]})
    with pytest.raises(InvalidHost, match=r"192\.0\.2\.1"):
        SystemResolver(static_hosts={"192.0.2.1": ["192.0.2.1"]})


@pytest.mark.parametrize("name", ["localhost", "a.localhost", "a.b.localhost"])
async def test_localhost_is_loopback_without_a_query(name: str) -> None:
    async with name_server() as server:
        assert await resolver_for(server).resolve(name) == (IPv4Address("127.0.0.1"), IPv6Address("::1"))
        assert server.asked == []


async def test_the_hosts_file_is_read_before_dns_and_again_when_it_changes(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    async with name_server() as server:
        server.records["b.example."] = ["60 A 192.0.2.20"]
        resolver = resolver_for(server, hosts_file=hosts)
        assert await resolver.resolve("b.example") == (IPv4Address("192.0.2.20"),)
        hosts.write_text("192.0.2.10 a.example\n")
        assert await resolver.resolve("a.example") == (IPv4Address("192.0.2.10"),)
        hosts.write_text("192.0.2.111 a.example b.example\n")
        assert await resolver.resolve("a.example") == (IPv4Address("192.0.2.111"),)
        assert await resolver.resolve("b.example") == (IPv4Address("192.0.2.111"),)
        assert {name for name, _ in server.asked} == {"b.example."}


def test_a_hosts_file_is_read_as_the_c_library_does() -> None:
    text = """
    # a comment
    127.0.0.1\tLocalHost  a.example # the rest
    ::1 a.example
    ::ffff:192.0.2.1 mapped.example
    fe80::1%lo0 zone.example
    not-an-address b.example
    192.0.2.1
    192.0.2.2 bad..name c.example 192.0.2.3
    192.0.2.2 c.example
    """
    assert parse_hosts_file(text) == {
        "localhost": (IPv4Address("127.0.0.1"),),
        "a.example": (IPv4Address("127.0.0.1"), IPv6Address("::1")),
        "mapped.example": (IPv4Address("192.0.2.1"),),
        "c.example": (IPv4Address("192.0.2.2"),),
    }


async def test_aliases_are_followed_and_the_shortest_ttl_counts(autojump_clock: trio.testing.MockClock) -> None:
    async with name_server() as server:
        server.records["www.example."] = ["10 CNAME cdn.example."]
        server.records["cdn.example."] = ["300 A 192.0.2.1"]
        resolver = resolver_for(server, Limits())
        assert await resolver.resolve("www.example") == (IPv4Address("192.0.2.1"),)
        assert len(server.asked) == 2
        await trio.sleep(9)
        await resolver.resolve("www.example")
        assert len(server.asked) == 2
        await trio.sleep(2)
        await resolver.resolve("www.example")
        assert len(server.asked) == 4


async def test_the_cache_is_bounded_in_time_and_number(autojump_clock: trio.testing.MockClock) -> None:
    async with name_server() as server:
        for name in "abc":
            server.records[f"{name}.example."] = ["86400 A 192.0.2.1"]
        server.records["zero.example."] = ["0 A 192.0.2.1"]
        resolver = resolver_for(server, Limits(dns_cache_entries=2, dns_cache_max_ttl_s=20))

        async def queries(name: str) -> int:
            before = len(server.asked)
            await resolver.resolve(name)
            return len(server.asked) - before

        assert [await queries("a.example"), await queries("a.example")] == [2, 0]
        await trio.sleep(21)
        assert await queries("a.example") == 2
        assert [await queries("b.example"), await queries("c.example")] == [2, 2]  # the second one drives out a
        assert [await queries("c.example"), await queries("b.example"), await queries("a.example")] == [0, 0, 2]
        assert [await queries("zero.example"), await queries("zero.example")] == [2, 2]


async def test_a_slow_family_does_not_hold_the_other_back_for_long() -> None:
    async with name_server() as server:
        server.records["half.example."] = ["60 A 192.0.2.1", "60 AAAA 2001:db8::1"]
        server.silent.add(("half.example.", "AAAA"))
        resolver = resolver_for(server)
        assert await resolver.resolve("half.example") == (IPv4Address("192.0.2.1"),)
        server.silent.clear()
        assert len(await resolver.resolve("half.example")) == 2  # half an answer is not kept


async def test_one_family_may_fail() -> None:
    async with name_server() as server:
        server.records["v6.example."] = ["60 AAAA 2001:db8::1"]
        assert await resolver_for(server).resolve("v6.example") == (IPv6Address("2001:db8::1"),)


async def test_long_answers_are_cut_and_doubles_dropped() -> None:
    async with name_server() as server:
        server.records["many.example."] = [f"60 A 192.0.2.{number}" for number in range(1, 20)] + [
            "60 AAAA ::ffff:192.0.2.1"
        ]
        addresses = await resolver_for(server, Limits(max_addresses=5)).resolve("many.example")
        assert len(addresses) == len(set(addresses)) == 5
        assert all(isinstance(address, IPv4Address) for address in addresses)


async def test_search_domains_are_never_used() -> None:
    async with name_server() as server:
        server.records["intranet.example."] = ["60 A 192.0.2.1"]
        resolver = resolver_for(server)
        with pytest.raises(ResolveError):
            await resolver.resolve("intranet")
        assert {name for name, _ in server.asked} == {"intranet."}


async def test_nothing_is_left_when_a_query_is_cancelled() -> None:
    async with name_server() as server:
        server.silent |= {("slow.example.", "A"), ("slow.example.", "AAAA")}
        resolver = resolver_for(server, Limits())
        with trio.move_on_after(0.3) as scope:
            await resolver.resolve("slow.example")
        assert scope.cancelled_caught
        assert len(server.asked) == 2


async def test_a_name_server_that_cannot_be_reached_is_a_failure() -> None:
    resolver = SystemResolver(limits=FAST, hosts_file=None, nameservers=["127.0.0.1"], port=1)
    with pytest.raises(ResolveError) as caught:
        await resolver.resolve("x.example")
    assert caught.value.failure in (ResolveFailure.SERVER_FAILURE, ResolveFailure.TIMEOUT)


@given(st.text(st.sampled_from("127.0:1afg#% \n\t-xé\x00"), max_size=80))
def test_any_text_is_a_hosts_file(text: str) -> None:
    for name, addresses in parse_hosts_file(text).items():
        assert name
        assert addresses
