"""Names for tests: a resolver without a network, and a name server on loopback for the real one."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset
import trio

from gateway.egress.resolver import ResolveError, ResolveFailure

IPAddress = IPv4Address | IPv6Address


class FakeResolver:
    """Answers from a table; of several answers to one name, one after the other, the last one for good.

    Args:
        names: name to addresses, to a failure, or to a list of both.
    """

    def __init__(self, names: Mapping[str, Sequence[str] | ResolveFailure | list[list[str]]]) -> None:
        self.asked: list[str] = []
        self._names = dict(names)

    async def resolve(self, name: str) -> tuple[IPAddress, ...]:
        self.asked.append(name)
        await trio.lowlevel.checkpoint()
        answer = self._names.get(name, ResolveFailure.NO_SUCH_NAME)
        if isinstance(answer, ResolveFailure):
            raise ResolveError(name, answer)
        if answer and isinstance(answer[0], list):
            texts = answer.pop(0) if isinstance(answer, list) and len(answer) > 1 else answer[0]
        else:
            texts = answer
        return tuple(ip_address(str(text)) for text in texts)


@dataclass(slots=True)
class NameServer:
    """A DNS server's table, and what it was asked: (name, type) with the final dot.

    ``records``: name to lines like ``60 A 192.0.2.1`` (TTL, type, data). ``rcodes``: names that fail. ``silent``:
    (name, type) that get no answer. Other names do not exist.
    """

    port: int
    records: dict[str, list[str]] = field(default_factory=dict)
    rcodes: dict[str, dns.rcode.Rcode] = field(default_factory=dict)
    silent: set[tuple[str, str]] = field(default_factory=set)
    asked: list[tuple[str, str]] = field(default_factory=list)

    def answer(self, data: bytes) -> bytes | None:
        """Return the answer to one query, None for silence."""
        query = dns.message.from_wire(data)
        question = query.question[0]
        name, record = question.name.to_text(), dns.rdatatype.to_text(question.rdtype)
        self.asked.append((name, record))
        if (name, record) in self.silent:
            return None
        response = dns.message.make_response(query)
        response.flags |= dns.flags.RA
        response.set_rcode(self.rcodes.get(name, dns.rcode.NOERROR))
        if name not in self.records and name not in self.rcodes:
            response.set_rcode(dns.rcode.NXDOMAIN)
        while True:
            alias = None
            for line in self.records.get(name, []):
                ttl, kind, value = line.split()
                if kind in (record, "CNAME"):
                    response.answer.append(dns.rrset.from_text(name, int(ttl), "IN", kind, value))
                if kind == "CNAME":
                    alias = value
            if alias is None:
                return response.to_wire()
            name = alias


@asynccontextmanager
async def name_server() -> AsyncIterator[NameServer]:
    """Serve DNS over UDP on a free loopback port."""
    with trio.socket.socket(trio.socket.AF_INET, trio.socket.SOCK_DGRAM) as sock:
        await sock.bind(("127.0.0.1", 0))
        server = NameServer(port=sock.getsockname()[1])

        async def serve() -> None:
            while True:
                data, peer = await sock.recvfrom(4_096)
                if (answer := server.answer(data)) is not None:
                    await sock.sendto(answer, peer)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            yield server
            nursery.cancel_scope.cancel()
