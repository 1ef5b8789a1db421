"""Names to addresses, once for each connection: static hosts, localhost, the hosts file, then DNS.

dnspython is imported in a worker thread at the first query: it takes longer to load than most runs take to start.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import trio

from gateway.egress.limits import Limits
from policy.host import InvalidHost, parse_host, unmapped

if TYPE_CHECKING:
    from dns.asyncresolver import Resolver as DnsResolver

__all__ = ["ResolveError", "ResolveFailure", "Resolver", "SystemResolver", "parse_hosts_file"]

IPAddress = IPv4Address | IPv6Address

LOOPBACK: Final = (IPv4Address("127.0.0.1"), IPv6Address("::1"))
HOSTS_FILE: Final = Path("/etc/hosts")


class ResolveFailure(StrEnum):
    """Why a name has no address."""

    NO_SUCH_NAME = "no_such_name"
    NO_ADDRESS = "no_address"
    "The name exists and has no A or AAAA record."
    TIMEOUT = "resolve_timeout"
    SERVER_FAILURE = "resolve_failed"


class ResolveError(Exception):
    """A name could not be resolved.

    Args:
        name: what was asked.
        failure: why.
        detail: what the name servers said, for the log of the gateway.
    """

    def __init__(self, name: str, failure: ResolveFailure, detail: str = "") -> None:
        super().__init__(f"{name}: {failure}" + (f" ({detail})" if detail else ""))
        self.name: Final = name
        self.failure: Final = failure


class Resolver(Protocol):
    """Resolves canonical host names."""

    async def resolve(self, name: str) -> tuple[IPAddress, ...]:
        """Return every address of a name, at least one, in the order to try them.

        Args:
            name: canonical: A-labels in lower case, no trailing dot.

        Raises:
            ResolveError: there is none, or nobody knows.

        Cancellation abandons the queries and closes their sockets.
        """
        ...


@dataclass(frozen=True, slots=True)
class _Cached:
    addresses: tuple[IPAddress, ...]
    expires_at: float


@dataclass(slots=True)
class _Answer:
    """What one address family said: addresses (none: the name has no such record), or an error."""

    addresses: tuple[IPAddress, ...] = ()
    ttl_s: float = float("inf")
    failure: ResolveFailure | None = None
    detail: str = ""


class SystemResolver:
    """Resolves as the gateway's host does, without search domains.

    In this order: ``static_hosts``; ``localhost`` and ``*.localhost``, which are loopback (RFC 6761 section 6.3);
    the hosts file; DNS (A and AAAA at the same time, aliases followed), kept for its TTL within the limits.

    Args:
        static_hosts: name to addresses, as text.
        limits: the resolver's limits are used; None for the defaults.
        hosts_file: read again whenever it has changed; None for none.
        nameservers: addresses to ask instead of those of resolv.conf.
        port: UDP and TCP port of the name servers.

    Raises:
        ValueError: a static host or address that is none; the message names it.
    """

    def __init__(
        self,
        *,
        limits: Limits | None = None,
        static_hosts: Mapping[str, Sequence[str]] | None = None,
        hosts_file: Path | None = HOSTS_FILE,
        nameservers: Sequence[str] | None = None,
        port: int = 53,
    ) -> None:
        self._limits = limits or Limits()
        self._static = {
            _host_name(name): tuple(unmapped(_static_address(name, text)) for text in addresses)
            for name, addresses in (static_hosts or {}).items()
        }
        self._hosts_file = hosts_file
        self._hosts: dict[str, tuple[IPAddress, ...]] = {}
        self._hosts_stamp: tuple[int, int] | None = None
        self._nameservers = nameservers
        self._port = port
        self._dns: DnsResolver | None = None
        self._dns_lock = trio.Lock()
        self._cache: dict[str, _Cached] = {}

    async def resolve(self, name: str) -> tuple[IPAddress, ...]:
        """Return every address of a name; see ``Resolver.resolve``. Checkpoints only where DNS is asked."""
        if (static := self._static.get(name)) is not None:
            return static
        if name == "localhost" or name.endswith(".localhost"):
            return LOOPBACK
        if (listed := self._from_hosts_file(name)) is not None:
            return listed
        cached = self._cache.get(name)
        if cached is not None:
            if cached.expires_at > trio.current_time():
                return cached.addresses
            del self._cache[name]
        return await self._from_dns(name)

    def _from_hosts_file(self, name: str) -> tuple[IPAddress, ...] | None:
        if self._hosts_file is None:
            return None
        try:
            status = os.stat(self._hosts_file)
            stamp = (status.st_mtime_ns, status.st_size)
            if stamp != self._hosts_stamp:
                self._hosts = parse_hosts_file(self._hosts_file.read_text(encoding="utf-8", errors="replace"))
                self._hosts_stamp = stamp
        except OSError:  # not there, or not for us: as if it were empty
            self._hosts, self._hosts_stamp = {}, None
        return self._hosts.get(name)

    async def _from_dns(self, name: str) -> tuple[IPAddress, ...]:
        dns = self._dns or await self._load_dns(name)
        answers: list[_Answer] = []
        with trio.move_on_after(self._limits.resolve_timeout_s):
            async with trio.open_nursery() as nursery:

                async def ask(record: str) -> None:
                    answer = await _ask(dns, name, record, self._limits.resolve_timeout_s)
                    answers.append(answer)
                    if answer.addresses:
                        # RFC 8305 section 3: do not hold an answer back for the slower family for long.
                        latest = trio.current_time() + self._limits.resolution_delay_s
                        nursery.cancel_scope.deadline = min(nursery.cancel_scope.deadline, latest)

                nursery.start_soon(ask, "AAAA")
                nursery.start_soon(ask, "A")
        found = [address for answer in answers for address in answer.addresses]
        if not found:
            raise _no_address(name, answers)
        found.sort(key=lambda address: -address.version)  # stable: AAAA before A, each in the server's order
        addresses = tuple(dict.fromkeys(found))[: self._limits.max_addresses]
        if len(answers) == 2 and not any(answer.failure for answer in answers):
            self._keep(name, addresses, min(answer.ttl_s for answer in answers))
        return addresses

    def _keep(self, name: str, addresses: tuple[IPAddress, ...], ttl_s: float) -> None:
        ttl_s = min(ttl_s, self._limits.dns_cache_max_ttl_s)
        if ttl_s <= 0:
            return
        if len(self._cache) >= self._limits.dns_cache_entries:
            del self._cache[next(iter(self._cache))]  # the oldest
        self._cache[name] = _Cached(addresses, trio.current_time() + ttl_s)

    async def _load_dns(self, name: str) -> "DnsResolver":
        async with self._dns_lock:
            if self._dns is None:
                try:
                    self._dns = await trio.to_thread.run_sync(_make_dns, self._nameservers, self._port)
                except OSError as error:
                    raise ResolveError(name, ResolveFailure.SERVER_FAILURE, str(error)) from error
            return self._dns


def parse_hosts_file(text: str) -> dict[str, tuple[IPAddress, ...]]:
    """Read a hosts file (hosts(5)): canonical name to addresses, in the file's order.

    Lines and names that cannot be read are skipped, as the C library does. Never raises.
    """
    hosts: dict[str, dict[IPAddress, None]] = {}
    for line in text.splitlines():
        fields = line.partition("#")[0].split()
        try:
            address = unmapped(ip_address(fields[0])) if fields else None
        except ValueError:
            continue
        if address is None or getattr(address, "scope_id", None):
            continue
        for name in fields[1:]:
            try:
                hosts.setdefault(_host_name(name), {})[address] = None
            except ValueError:
                continue
    return {name: tuple(addresses) for name, addresses in hosts.items()}


def _host_name(text: str) -> str:
    host = parse_host(text)
    if host.name is None:
        raise InvalidHost(text, "an address, where the name of a host belongs")
    return host.name


def _static_address(name: str, text: str) -> IPAddress:
    try:
        return ip_address(text)
    except ValueError:
        raise ValueError(f"hosts: {name}: {text!r} is not an IP address") from None


def _make_dns(nameservers: Sequence[str] | None, port: int) -> "DnsResolver":
    """Load dnspython and its configuration (about 100 ms: in a thread). OSError where there is none."""
    import dns.asyncbackend
    import dns.asyncresolver
    import dns.rdata
    import dns.rdataclass
    import dns.rdatatype
    import dns.resolver

    # dnspython loads these at first use. By then no descriptor may be left, and that would not be an error of DNS.
    dns.asyncbackend.get_backend("trio")
    for record in ("A", "AAAA", "CNAME", "SOA", "OPT"):
        dns.rdata.get_rdata_class(dns.rdataclass.IN, dns.rdatatype.from_text(record))  # type: ignore[no-untyped-call]
    try:
        resolver = dns.asyncresolver.Resolver(configure=nameservers is None)
    except dns.resolver.NoResolverConfiguration as error:
        raise OSError(f"no usable resolv.conf: {error}") from error
    if nameservers is not None:
        resolver.nameservers = list(nameservers)
    resolver.port = port
    return resolver


async def _ask(resolver: "DnsResolver", name: str, record: str, lifetime_s: float) -> _Answer:
    """Ask for one kind of record; errors become part of the answer."""
    import dns.asyncbackend
    import dns.exception
    import dns.name
    import dns.resolver

    try:
        answer = await resolver.resolve(
            dns.name.from_text(f"{name}."),
            record,
            raise_on_no_answer=False,
            search=False,
            lifetime=lifetime_s,
            backend=dns.asyncbackend.get_backend("trio"),
        )
    except dns.resolver.NXDOMAIN:
        return _Answer(failure=ResolveFailure.NO_SUCH_NAME)
    except dns.exception.Timeout as error:
        return _Answer(failure=ResolveFailure.TIMEOUT, detail=str(error))
    except dns.exception.DNSException as error:
        return _Answer(failure=ResolveFailure.SERVER_FAILURE, detail=str(error))
    if answer.rrset is None:
        return _Answer()
    return _Answer(
        addresses=tuple(unmapped(ip_address(record_data.address)) for record_data in answer.rrset),
        ttl_s=answer.chaining_result.minimum_ttl,
    )


def _no_address(name: str, answers: Sequence[_Answer]) -> ResolveError:
    """Say why there is no address: a name that does not exist outweighs a failure, which outweighs an empty answer."""
    failures = {answer.failure: answer.detail for answer in answers if answer.failure}
    if len(answers) < 2:
        failures.setdefault(ResolveFailure.TIMEOUT, "no answer in time")
    for failure in (ResolveFailure.NO_SUCH_NAME, ResolveFailure.SERVER_FAILURE, ResolveFailure.TIMEOUT):
        if failure in failures:
            return ResolveError(name, failure, failures[failure])
    return ResolveError(name, ResolveFailure.NO_ADDRESS)
