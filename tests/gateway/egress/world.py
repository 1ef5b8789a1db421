"""A whole egress server for tests: policy, record in memory, names without a network, origins on loopback."""

import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import trio

from gateway.egress.limits import Limits
from gateway.egress.resolver import Resolver
from gateway.egress.server import EgressServer
from gateway.events import Event, NetworkAllowed, NetworkBlocked, NetworkClosed
from policy.engine import Engine
from policy.rules import Mode, RuleSource, RuleText, build_policy
from tests.gateway.egress.loopback import connect, listen, port_of, receive_all, send
from tests.gateway.egress.name_server import FakeResolver

RULES = ("ok.example", "**.wild.example", "127.0.0.0/8", "!denied.example")
NAMES = {"ok.example": ("127.0.0.1",), "a.wild.example": ("10.0.0.1", "127.0.0.1"), "gone.example": ()}
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"

Handler = Callable[[socket.socket], Awaitable[None]]


class MemoryRecorder:
    """Keeps events; ``healthy`` and how long ``settled`` takes are the test's to set."""

    def __init__(self) -> None:
        self.run_id = "run-1"
        self.healthy = True
        self.settles = True
        self.events: list[Event] = []

    def emit(self, event: Event, *, node_id: str | None = None) -> None:
        self.events.append(event)

    async def settled(self, timeout_s: float) -> bool:
        await trio.sleep(timeout_s)
        return self.settles

    def of(self, *types: type[Event]) -> list[Event]:
        """The events of these types, in order."""
        return [event for event in self.events if isinstance(event, types)]

    @property
    def network(self) -> list[tuple[str, str, str]]:
        """What the record says in short: (kind, host:port, code or outcome)."""
        lines = []
        for event in self.events:
            match event:
                case NetworkAllowed():
                    lines.append(("allowed", f"{event.host}:{event.port}", event.code))
                case NetworkBlocked():
                    lines.append(("blocked", f"{event.host}:{event.port}", event.code))
                case NetworkClosed():
                    lines.append(("closed", f"{event.host}:{event.port}", event.outcome))
        return lines


def engine_for(*rules: str, mode: Mode = Mode.ALLOWLIST) -> Engine:
    """An engine for rules as a user would write them."""
    return Engine(build_policy(mode, rules=[RuleText(text, RuleSource("cli")) for text in rules]))


@dataclass(slots=True, kw_only=True)
class World:
    """A running server and what surrounds it."""

    server: EgressServer
    recorder: MemoryRecorder
    resolver: Resolver
    port: int
    nursery: trio.Nursery
    bugs: list[str]

    async def connect(self) -> socket.socket:
        """A client's connection to the proxy; the caller closes it."""
        return await connect(self.port)

    async def exchange(self, request: bytes, *, end: bool = False) -> bytes:
        """Send a request and return everything up to the end of the connection."""
        with await self.connect() as client:
            await send(client, request)
            if end:
                client.shutdown(socket.SHUT_WR)
            return await receive_all(client)

    async def tunnel(self, authority: str) -> socket.socket:
        """A client's connection with an open tunnel; the caller closes it."""
        client = await self.connect()
        await send(client, f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())
        head = await read_head(client)
        assert head.startswith(b"HTTP/1.1 200 "), head
        return client

    async def origin(self, handler: Handler) -> int:
        """Serve an origin on loopback as long as the world lasts; returns its port."""
        port: int = await self.nursery.start(_serve_origin, handler)
        return port


@asynccontextmanager
async def world(
    *rules: str,
    limits: Limits | None = None,
    resolver: Resolver | None = None,
    token: str | None = None,
    engine: Engine | None = None,
) -> AsyncIterator[World]:
    """Run an egress server on loopback; it is aborted at the end."""
    recorder = MemoryRecorder()
    bugs: list[str] = []
    names = resolver or FakeResolver(NAMES)
    server = EgressServer(
        engine or engine_for(*(rules or RULES)), names, recorder, token, limits or Limits(), log=bugs.append
    )
    listener = listen()
    async with trio.open_nursery() as nursery:
        made = World(
            server=server, recorder=recorder, resolver=names, port=port_of(listener), nursery=nursery, bugs=bugs
        )
        await nursery.start(server.serve, [listener])
        yield made
        server.abort()
        nursery.cancel_scope.cancel()
    assert not bugs, bugs[0]
    allowed, closed = len(recorder.of(NetworkAllowed)), len(recorder.of(NetworkClosed))
    assert allowed == closed, f"{allowed} allowed, {closed} closed"
    assert server.stats.active == 0


async def _serve_origin(handler: Handler, *, task_status: trio.TaskStatus[int]) -> None:
    async def one(sock: socket.socket) -> None:
        with sock, suppress(OSError):
            await handler(sock)

    with listen() as listener:
        async with trio.open_nursery() as nursery:
            task_status.started(port_of(listener))
            while True:
                await trio.lowlevel.wait_readable(listener)
                sock, _ = listener.accept()
                sock.setblocking(False)
                nursery.start_soon(one, sock)


async def read_head(sock: socket.socket) -> bytes:
    """Read one HTTP head, byte by byte, so that nothing behind it is taken."""
    head = bytearray()
    while not head.endswith(b"\r\n\r\n"):
        await trio.lowlevel.wait_readable(sock)
        try:
            piece = sock.recv(1)
        except BlockingIOError:
            continue
        if not piece:
            break
        head += piece
    return bytes(head)


async def echo(sock: socket.socket) -> None:
    """An origin that sends back what it gets, and ends when its peer does."""
    while True:
        await trio.lowlevel.wait_readable(sock)
        data = sock.recv(65_536)
        if not data:
            return
        await send(sock, data)


def answering(answer: bytes = OK, *, seen: list[bytes] | None = None, times: int | None = None) -> Handler:
    """An origin that answers every request head alike, ``times`` times on one connection."""

    async def handler(sock: socket.socket) -> None:
        left = times
        while left is None or left:
            head = await read_head(sock)
            if not head:
                return
            if seen is not None:
                seen.append(head)
            await send(sock, answer)
            left = left - 1 if left is not None else None

    return handler


def get(authority: str, path: str = "/", *, extra: Sequence[str] = ()) -> bytes:
    """A plain request for a proxy."""
    lines = [f"GET http://{authority}{path} HTTP/1.1", f"Host: {authority}", *extra, "", ""]
    return "\r\n".join(lines).encode()
