"""The server around its sessions: stopping, limits, running out of descriptors, policies that change, bugs."""

import os
import resource
import socket
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import trio
import trio.testing

from gateway.egress.limits import Limits
from gateway.egress.server import EgressServer
from gateway.event_log import EventLog, read_events
from gateway.events import EgressSaturated, NetworkAllowed
from tests.gateway.egress.loopback import abort, connect, listen, port_of, receive, receive_all, receive_exactly, send
from tests.gateway.egress.name_server import FakeResolver, IPAddress
from tests.gateway.egress.world import NAMES, RULES, MemoryRecorder, World, echo, engine_for, get, read_head, world

pytestmark = pytest.mark.usefixtures("no_leaks")


def server_with(recorder: MemoryRecorder, limits: Limits | None = None) -> EgressServer:
    return EgressServer(engine_for(*RULES), FakeResolver(NAMES), recorder, "secret-token", limits or Limits())


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def test_the_token_is_not_shown() -> None:
    server = server_with(MemoryRecorder())
    assert "secret" not in repr(server)
    server.relay.close()


async def test_several_listeners_are_served_and_closed_at_the_end() -> None:
    first, second = listen(), listen()
    server = server_with(MemoryRecorder())
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve, [first, second])
        for listener in (first, second):
            with await connect(port_of(listener)) as client:
                await send(client, b"CONNECT ok.example:443 HTTP/1.1\r\n\r\n")
                assert status(await receive_all(client)) == 407
        server.stop()
    assert first.fileno() == second.fileno() == -1


async def test_a_server_serves_once() -> None:
    server = server_with(MemoryRecorder())
    server.stop()
    await server.serve([listen()])
    with pytest.raises(RuntimeError, match="served already"):
        await server.serve([])


async def _open_line(w: World) -> socket.socket:
    client = await w.tunnel(f"ok.example:{await w.origin(echo)}")
    await send(client, b"x")
    assert await receive_exactly(client, 1) == b"x"
    return client


async def test_after_a_stop_open_tunnels_go_on_for_a_while(autojump_clock: trio.testing.MockClock) -> None:
    async with world(limits=Limits(drain_timeout_s=5)) as w:
        with await _open_line(w) as client:
            began = trio.current_time()
            w.server.stop()
            await trio.sleep(4)
            await send(client, b"still")
            assert await receive_exactly(client, 5) == b"still"
            with pytest.raises(ConnectionResetError):
                await receive(client)
            assert trio.current_time() - began == pytest.approx(5, abs=0.1)
        assert w.recorder.network[-1][2] == "cancelled"


async def test_a_stop_ends_at_once_when_the_last_tunnel_is_over(autojump_clock: trio.testing.MockClock) -> None:
    recorder = MemoryRecorder()
    listener = listen()
    server = server_with(recorder)
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve, [listener])
        with await connect(port_of(listener)) as client:
            await trio.testing.wait_all_tasks_blocked()
            server.stop()
            await trio.sleep(1)
            client.close()
    assert trio.current_time() < 2


async def test_a_cancelled_server_drains_first(autojump_clock: trio.testing.MockClock) -> None:
    listener = listen()
    server = server_with(MemoryRecorder(), Limits(drain_timeout_s=3))
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve, [listener])
        client = await connect(port_of(listener))
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert trio.current_time() == pytest.approx(3, abs=0.1)
    client.close()


async def test_an_aborted_server_does_not_wait(autojump_clock: trio.testing.MockClock) -> None:
    async with world() as w:
        with await _open_line(w) as client:
            w.server.abort()
            with pytest.raises(ConnectionResetError):
                await receive(client)
    assert trio.current_time() < 1


async def test_a_client_that_arrives_in_the_moment_of_the_abort_is_closed() -> None:
    async with world() as w:
        with await w.connect() as client:
            w.server.abort()
            with trio.move_on_after(1), suppress(ConnectionResetError):
                assert await receive_all(client) == b""


async def test_over_the_cap_there_is_a_503_and_room_again_later() -> None:
    async with world(limits=Limits(max_connections=2, max_refusals=1)) as w:
        port = await w.origin(echo)
        held = [await w.tunnel(f"ok.example:{port}") for _ in range(2)]
        request = f"CONNECT ok.example:{port} HTTP/1.1\r\n\r\n".encode()
        for _ in range(2):
            answer = await w.exchange(request)
            assert status(answer) == 503
            assert b"Retry-After: 1\r\n" in answer
        lingering = [await w.connect() for _ in range(3)]
        for client in lingering:  # the first is waited for, the others are answered and closed
            assert status(await read_head(client)) == 503
        for client in lingering + held:
            client.close()
        await trio.testing.wait_all_tasks_blocked()
        (await w.tunnel(f"ok.example:{port}")).close()
        assert w.recorder.of(EgressSaturated) == [EgressSaturated(reason="connection cap", active=2, limit=2)]
        assert w.server.stats.unavailable == 5


async def test_a_refused_client_that_is_gone_already_does_no_harm() -> None:
    async with world(limits=Limits(max_connections=1, max_refusals=1)) as w:
        port = await w.origin(echo)
        with await w.tunnel(f"ok.example:{port}"):
            for _ in range(3):
                abort(await w.connect())
            await trio.testing.wait_all_tasks_blocked()
        await trio.testing.wait_all_tasks_blocked()
        (await w.tunnel(f"ok.example:{port}")).close()


async def test_H65_out_of_descriptors_clients_get_503_and_it_recovers() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with world() as w:
        port = await w.origin(echo)
        await trio.testing.wait_all_tasks_blocked()
        with ExitStack() as stack:
            clients = []
            for _ in range(3):
                sock = stack.enter_context(socket.socket())
                sock.setblocking(False)
                clients.append(sock)
            resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
            taken = []
            try:
                while True:
                    try:
                        taken.append(os.dup(0))
                    except OSError:
                        break
                for client in clients:
                    client.connect_ex(("127.0.0.1", w.port))
                    await send_soon(client, f"CONNECT ok.example:{port} HTTP/1.1\r\n\r\n".encode())
                answers = [await receive_all(client) for client in clients]
            finally:
                for fd in taken:
                    os.close(fd)
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert [status(answer) for answer in answers] == [503] * 3
        assert all(b"Retry-After: 1\r\n" in answer for answer in answers)
        (event,) = w.recorder.of(EgressSaturated)
        assert isinstance(event, EgressSaturated)
        assert event.reason == "out of file descriptors"
        (await w.tunnel(f"ok.example:{port}")).close()


async def send_soon(client: socket.socket, data: bytes) -> None:
    await trio.lowlevel.wait_writable(client)
    await send(client, data)


async def test_H65_out_of_descriptors_while_dialling_is_a_503() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    class TakesAll(FakeResolver):
        async def resolve(self, name: str) -> tuple[IPAddress, ...]:
            addresses = await super().resolve(name)
            resource.setrlimit(resource.RLIMIT_NOFILE, (1, hard))
            return addresses

    async with world(resolver=TakesAll(NAMES)) as w:
        with await w.connect() as client:
            await send(client, b"CONNECT ok.example:443 HTTP/1.1\r\n\r\n")
            try:
                answer = await receive_all(client)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert status(answer) == 503
        assert w.recorder.network[-1][2] == "gateway_resources"


async def test_a_replaced_policy_counts_from_the_next_request_and_spares_open_tunnels() -> None:
    async with world() as w:
        port = await w.origin(echo)
        with await w.tunnel(f"ok.example:{port}") as client:
            w.server.replace_engine(engine_for("other.example"))
            assert status(await w.exchange(f"CONNECT ok.example:{port} HTTP/1.1\r\n\r\n".encode())) == 403
            await send(client, b"still")
            assert await receive_exactly(client, 5) == b"still"


async def test_a_bug_ends_its_connection_is_logged_and_spares_the_others() -> None:
    class Buggy(FakeResolver):
        async def resolve(self, name: str) -> tuple[IPAddress, ...]:
            if name == "a.wild.example":
                raise ZeroDivisionError("boom")
            return await super().resolve(name)

    async with world(resolver=Buggy(NAMES)) as w:
        port = await w.origin(echo)
        with await w.tunnel(f"ok.example:{port}") as client:
            with await w.connect() as victim:
                await send(victim, b"CONNECT a.wild.example:443 HTTP/1.1\r\n\r\n")
                assert await receive_all(victim) == b""
            await send(client, b"x")
            assert await receive_exactly(client, 1) == b"x"
        (bug,) = w.bugs
        assert "ZeroDivisionError: boom" in bug
        assert "Traceback" in bug
        w.bugs.clear()
        assert ("closed", "a.wild.example:443", "internal_error") in w.recorder.network


async def test_the_counts_for_the_summary() -> None:
    async with world() as w:
        port = await w.origin(echo)
        with await w.tunnel(f"ok.example:{port}") as client:
            assert w.server.stats.active == 1
            await send(client, b"12345")
            await receive_exactly(client, 5)
        for _ in range(2):
            await w.exchange(b"CONNECT denied.example:443 HTTP/1.1\r\n\r\n")
        await w.exchange(get("nowhere.example"))
        await w.exchange(b"CONNECT statsig.anthropic.com:443 HTTP/1.1\r\n\r\n")
        await trio.testing.wait_all_tasks_blocked()
        stats = w.server.stats
        assert (stats.allowed, stats.silent, stats.bytes_up, stats.bytes_down) == (1, 1, 5, 5)
        assert stats.blocked == {"denied_by_rule": 2, "not_in_allowlist": 1}


async def test_many_clients_at_once_all_get_their_tunnel_and_their_lines() -> None:
    async with world(limits=Limits(accept_batch=4)) as w:
        port = await w.origin(echo)

        async def one(number: int) -> None:
            data = f"client {number}".encode()
            with await w.tunnel(f"ok.example:{port}") as client:
                await send(client, data)
                assert await receive_exactly(client, len(data)) == data
                client.shutdown(socket.SHUT_WR)
                assert await receive_all(client) == b""

        async with trio.open_nursery() as nursery:
            for number in range(100):
                nursery.start_soon(one, number)
        connections = [event.connection for event in w.recorder.of(NetworkAllowed) if isinstance(event, NetworkAllowed)]
        assert len(set(connections)) == 100


async def test_the_real_record_has_an_allowed_and_a_closed_line(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl", "run-1")
    server = EgressServer(engine_for(*RULES), FakeResolver(NAMES), log, None, Limits(), node_id="build")
    listener = listen()
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve, [listener])
        origin = listen()
        with await connect(port_of(listener)) as client, origin:
            await send(client, f"CONNECT ok.example:{port_of(origin)} HTTP/1.1\r\n\r\n".encode())
            assert status(await read_head(client)) == 200
            assert [event["type"] for event in read_events(log.path)] == ["network_allowed"]
        server.abort()
    log.close()
    allowed, closed = read_events(log.path)
    assert (allowed["type"], closed["type"]) == ("network_allowed", "network_closed")
    assert allowed["node_id"] == closed["node_id"] == "build"
    assert allowed["data"]["connection"] == closed["data"]["connection"]
