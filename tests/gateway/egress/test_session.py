"""One client's connection, end to end on loopback: what it is answered, and what the record says."""

import base64
import socket
from contextlib import suppress

import pytest
import trio
import trio.testing

from gateway.egress.limits import Limits
from gateway.egress.resolver import ResolveFailure, SystemResolver
from gateway.egress.server import EgressServer
from gateway.events import NetworkAllowed, NetworkBlocked, NetworkClosed
from policy.rules import Mode
from tests.gateway.egress.hellos import hello, real_hello
from tests.gateway.egress.loopback import abort, free_port, receive, receive_all, receive_exactly, send
from tests.gateway.egress.name_server import FakeResolver, IPAddress, name_server
from tests.gateway.egress.world import World, answering, echo, engine_for, get, read_head, world

pytestmark = pytest.mark.usefixtures("no_leaks")

TOKEN = "0123456789abcdef"
BASIC = base64.b64encode(f"t:{TOKEN}".encode()).decode()


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


# Tunnels


async def test_a_tunnel_is_recorded_before_it_is_opened_and_when_it_is_over() -> None:
    async with world() as w:
        port = await w.origin(echo)
        with await w.tunnel(f"OK.example.:{port}") as client:
            assert w.recorder.network == [("allowed", f"ok.example:{port}", "allowed_by_rule")]
            await send(client, b"ping")
            assert await receive_exactly(client, 4) == b"ping"
            client.shutdown(socket.SHUT_WR)
            assert await receive_all(client) == b""
        await trio.testing.wait_all_tasks_blocked()
        allowed, closed = w.recorder.events
        assert isinstance(allowed, NetworkAllowed)
        assert (allowed.addresses, allowed.address, allowed.protocol) == (("127.0.0.1",), "127.0.0.1", "connect")
        assert allowed.rule == "ok.example (--allow)"
        assert isinstance(closed, NetworkClosed)
        assert (closed.connection, closed.bytes_up, closed.bytes_down) == (allowed.connection, 4, 4)
        assert closed.outcome == "completed"
        assert (w.server.stats.allowed, w.server.stats.bytes_up, w.server.stats.bytes_down) == (1, 4, 4)


@pytest.mark.parametrize(
    "request_line", ["CONNECT {} HTTP/1.0\r\n\r\n", "CONNECT {} HTTP/1.1\r\nHost: ok.example\r\n\r\n"]
)
async def test_connects_as_real_clients_write_them(request_line: str) -> None:
    async with world() as w:
        port = await w.origin(echo)
        with await w.connect() as client:
            await send(client, request_line.format(f"ok.example:{port}").encode())
            assert await read_head(client) == b"HTTP/1.1 200 Connection established\r\n\r\n"


async def test_the_same_head_again_is_judged_and_authenticated_again() -> None:
    async with world(token=TOKEN) as w:
        port = await w.origin(echo)
        request = f"CONNECT ok.example:{port} HTTP/1.1\r\nProxy-Authorization: Bearer {TOKEN}\r\n\r\n".encode()
        for _ in range(2):
            with await w.connect() as client:
                await send(client, request)
                assert status(await read_head(client)) == 200
        w.server.replace_engine(engine_for("other.example"))
        assert status(await w.exchange(request)) == 403


async def test_bytes_behind_the_head_belong_to_the_tunnel() -> None:
    async with world() as w:
        port = await w.origin(echo)
        with await w.connect() as client:
            await send(client, f"CONNECT ok.example:{port} HTTP/1.1\r\n\r\nGET / smuggled".encode())
            assert status(await read_head(client)) == 200
            assert await receive_exactly(client, 14) == b"GET / smuggled"


async def test_a_server_that_speaks_first() -> None:
    async def banner(sock: socket.socket) -> None:
        await send(sock, b"SSH-2.0-server\r\n")
        await receive(sock)

    async with world() as w:
        port = await w.origin(banner)
        with await w.tunnel(f"ok.example:{port}") as client:
            assert await receive_exactly(client, 16) == b"SSH-2.0-server\r\n"


async def test_H64_half_close_through_the_whole_server() -> None:
    answer = bytes(range(256)) * 20_000

    async def after_the_end(sock: socket.socket) -> None:
        request = await receive_all(sock)
        await send(sock, request + answer)

    async with world() as w:
        port = await w.origin(after_the_end)
        with await w.tunnel(f"ok.example:{port}") as client:
            await send(client, b"question")
            client.shutdown(socket.SHUT_WR)
            assert await receive_all(client) == b"question" + answer


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (hello(b"evil.example"), "server_name_mismatch"),
        (real_hello(None), "server_name_missing"),
        (b"\x16\x03\x01\0\0", "client_hello_invalid"),
    ],
)
async def test_H23_a_tunnel_for_somebody_else_is_refused_and_recorded(data: bytes, code: str) -> None:
    seen: list[bytes] = []

    async def upstream(sock: socket.socket) -> None:
        seen.append(await receive_all(sock))

    async with world() as w:
        port = await w.origin(upstream)
        with await w.tunnel(f"ok.example:{port}") as client:
            await send(client, data)
            assert await receive_all(client) == bytes((0x15, 3, 3, 0, 2, 2, 49))
        await trio.testing.wait_all_tasks_blocked()
        assert seen == [b""]
        assert w.recorder.network == [
            ("allowed", f"ok.example:{port}", "allowed_by_rule"),
            ("blocked", f"ok.example:{port}", code),
            ("closed", f"ok.example:{port}", code),
        ]


async def test_H23_the_right_name_passes_in_one_byte_pieces() -> None:
    data = hello(b"OK.Example.")
    async with world() as w:
        port = await w.origin(echo)
        with await w.tunnel(f"ok.example:{port}") as client:
            for at in range(len(data)):
                await send(client, data[at : at + 1])
                await trio.lowlevel.checkpoint()
            assert await receive_exactly(client, len(data)) == data


async def test_H23_no_name_passes_to_an_address() -> None:
    data = real_hello(None)
    async with world() as w:
        port = await w.origin(echo)
        with await w.tunnel(f"127.0.0.1:{port}") as client:
            await send(client, data)
            assert await receive_exactly(client, len(data)) == data


@pytest.mark.parametrize("by_client", [True, False])
async def test_a_reset_is_passed_on(by_client: bool) -> None:
    failed = trio.Event()

    async def upstream(sock: socket.socket) -> None:
        await receive(sock)
        if not by_client:
            abort(sock)
            return
        try:
            await receive(sock)
        except ConnectionResetError:
            failed.set()

    async with world() as w:
        port = await w.origin(upstream)
        client = await w.tunnel(f"ok.example:{port}")
        await send(client, b"x")
        if by_client:
            await trio.testing.wait_all_tasks_blocked()
            abort(client)
            await failed.wait()
        else:
            with pytest.raises(ConnectionResetError):
                await receive(client)
            client.close()
        await trio.testing.wait_all_tasks_blocked()
        assert w.recorder.network[-1][2] == ("client_reset" if by_client else "upstream_reset")


async def test_an_upstream_that_cannot_be_reached() -> None:
    port = free_port()
    async with world() as w:
        answer = await w.exchange(f"CONNECT ok.example:{port} HTTP/1.1\r\n\r\n".encode())
        assert status(answer) == 502
        assert b"127.0.0.1" not in answer
        assert w.recorder.network == [
            ("allowed", f"ok.example:{port}", "allowed_by_rule"),
            ("closed", f"ok.example:{port}", "connection_refused"),
        ]
        assert w.server.stats.failed == {"connection_refused": 1}


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (ResolveFailure.NO_SUCH_NAME, 502),
        (ResolveFailure.NO_ADDRESS, 502),
        (ResolveFailure.SERVER_FAILURE, 502),
        (ResolveFailure.TIMEOUT, 504),
    ],
)
async def test_a_name_that_cannot_be_resolved(failure: ResolveFailure, expected: int) -> None:
    async with world(resolver=FakeResolver({"ok.example": failure})) as w:
        assert status(await w.exchange(b"CONNECT ok.example:443 HTTP/1.1\r\n\r\n")) == expected
        assert status(await w.exchange(get("ok.example"))) == expected
        assert [line[2] for line in w.recorder.network] == ["allowed_by_rule", failure.value] * 2


# Refusals


async def test_a_denied_host_is_told_why_and_recorded() -> None:
    async with world() as w:
        answer = await w.exchange(b"CONNECT denied.example:443 HTTP/1.1\r\n\r\n")
        assert status(answer) == 403
        assert b"X-Iterion-Reason: denied_by_rule\r\n" in answer
        assert answer.endswith(b"blocked by sandbox network policy: denied.example:443 (denied_by_rule)\n")
        (event,) = w.recorder.events
        assert isinstance(event, NetworkBlocked)
        assert (event.host, event.port, event.code, event.rule) == (
            "denied.example",
            443,
            "denied_by_rule",
            "!denied.example (--allow)",
        )
        assert event.run_id == "run-1"
        assert event.security


async def test_H01_an_allowlist_without_rules_denies_everything() -> None:
    async with world(engine=engine_for(mode=Mode.ALLOWLIST)) as w:
        for authority in ("ok.example:443", "127.0.0.1:443", "[::1]:443"):
            assert status(await w.exchange(f"CONNECT {authority} HTTP/1.1\r\n\r\n".encode())) == 403


async def test_H13_what_was_dropped_stands_in_the_record() -> None:
    async with world() as w:
        port = await w.origin(echo)
        with await w.tunnel(f"a.wild.example:{port}"):
            pass
        allowed = w.recorder.events[0]
        assert isinstance(allowed, NetworkAllowed)
        assert allowed.addresses == ("10.0.0.1", "127.0.0.1")
        assert allowed.address == "127.0.0.1"
        assert [(drop.address, drop.code) for drop in allowed.dropped] == [("10.0.0.1", "address_private")]


async def test_H14_a_denied_name_causes_no_query() -> None:
    async with name_server() as dns:
        dns.records["ok.example."] = ["60 A 127.0.0.1"]
        resolver = SystemResolver(hosts_file=None, nameservers=["127.0.0.1"], port=dns.port)
        async with world(resolver=resolver) as w:
            port = await w.origin(echo)
            assert status(await w.exchange(b"CONNECT c2VjcmV0.evil.example:443 HTTP/1.1\r\n\r\n")) == 403
            assert status(await w.exchange(get("c2VjcmV0.evil.example"))) == 403
            assert dns.asked == []
            (await w.tunnel(f"ok.example:{port}")).close()
            assert {name for name, _ in dns.asked} == {"ok.example."}


@pytest.mark.parametrize(
    "authority",
    ["ok.example:0", "ok.example:65536", "ok.example:+443", "ok.example:4 43", "ok.example:443x", "ok.example:00443",
     "ok.example", "ok.example:", ":443"],
)  # fmt: skip
async def test_H16_a_port_that_is_none_is_a_bad_request(authority: str) -> None:
    async with world() as w:
        assert status(await w.exchange(f"CONNECT {authority} HTTP/1.1\r\n\r\n".encode())) == 400
        assert {line[0] for line in w.recorder.network} == {"blocked"}


@pytest.mark.parametrize(
    "host", ["127.1", "0x7f.1", "2130706433", "evil..example", "[::1%25eth0]", "[evil.com]", "-a.b"]
)
async def test_H06_a_host_that_is_none_is_a_bad_request_and_recorded(host: str) -> None:
    async with world() as w:
        assert status(await w.exchange(f"CONNECT {host}:443 HTTP/1.1\r\n\r\n".encode())) == 400
        assert [line[2] for line in w.recorder.network] in (["invalid_host"], ["malformed_request"])


async def test_silent_denials_are_counted_and_not_recorded() -> None:
    async with world() as w:
        assert status(await w.exchange(b"CONNECT statsig.anthropic.com:443 HTTP/1.1\r\n\r\n")) == 403
        assert w.recorder.events == []
        assert w.server.stats.silent == 1
        assert not w.server.stats.blocked


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (b"GET ftp://ok.example/ HTTP/1.1\r\nHost: ok.example\r\n\r\n", 400),
        (b"GET http://ok.example/a b HTTP/1.1\r\nHost: ok.example\r\n\r\n", 400),
        (b"GET http://ok.example/\x01 HTTP/1.1\r\nHost: ok.example\r\n\r\n", 400),
        (b"GET http://ok.example/ HTTP/1.1\r\nHost: ok.example\r\nX: " + b"a" * (1 << 20) + b"\r\n\r\n", 431),
        (b"GET http://ok.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n", 400),
        (b"GET http://ok.example/ HTTP/1.1\nHost: ok.example\n\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00", 400),
    ],
)
async def test_H28_malformed_requests_are_refused_and_recorded(request_: bytes, expected: int) -> None:
    async with world() as w:
        assert status(await w.exchange(request_, end=True)) == expected
        assert w.recorder.network == [("blocked", ":None", "malformed_request")]


async def test_H28_a_slow_head_is_closed_at_the_deadline(autojump_clock: trio.testing.MockClock) -> None:
    async with world() as w:
        with await w.connect() as client:
            for byte in b"CONNECT ok":
                await send(client, bytes((byte,)))
                await trio.sleep(0.99)
            assert status(await receive_all(client)) == 408
            assert 10 <= trio.current_time() <= 11


async def test_H28_a_silent_client_is_closed_at_the_deadline(autojump_clock: trio.testing.MockClock) -> None:
    async with world() as w:
        with await w.connect() as client:
            assert await receive_all(client) == b""
            assert trio.current_time() == pytest.approx(10, abs=0.1)


async def test_a_client_that_leaves_without_a_word_is_no_event() -> None:
    async with world() as w:
        assert await w.exchange(b"", end=True) == b""
        assert await w.exchange(b"CONNECT ok", end=True) == b""
        client = await w.connect()
        abort(client)
        await trio.testing.wait_all_tasks_blocked()
        assert w.recorder.events == []


async def test_H30_an_error_page_echoes_nothing_of_the_request() -> None:
    secret = "c2VjcmV0LXNlY3JldA"
    headers = [f"Authorization: Bearer {secret}", f"Cookie: s={secret}", f"X-{secret}: {secret}"]
    async with world(resolver=FakeResolver({"ok.example": ResolveFailure.NO_SUCH_NAME})) as w:
        for request in (
            get("ok.example", f"/{secret}", extra=headers),
            get("denied.example", f"/?{secret}", extra=headers),
            get("ok.example", extra=[*headers, "bad header"]),
            get("a..b", f"/{secret}", extra=headers),
        ):
            answer = await w.exchange(request)
            assert status(answer) in (400, 403, 502)
            assert secret.encode() not in answer
        assert secret not in str(w.recorder.events)


# Authentication


@pytest.mark.parametrize("credentials", [f"Bearer {TOKEN}", f"Basic {BASIC}", f"basic {BASIC}"])
async def test_the_token_opens(credentials: str) -> None:
    async with world(token=TOKEN) as w:
        port = await w.origin(echo)
        with await w.connect() as client:
            await send(
                client, f"CONNECT ok.example:{port} HTTP/1.1\r\nProxy-Authorization: {credentials}\r\n\r\n".encode()
            )
            assert status(await read_head(client)) == 200


async def test_without_a_token_there_is_a_challenge_and_no_event() -> None:
    async with world(token=TOKEN) as w:
        answer = await w.exchange(b"CONNECT ok.example:443 HTTP/1.1\r\n\r\n")
        assert status(answer) == 407
        assert b'Proxy-Authenticate: Basic realm="iterion-sandbox"\r\n' in answer
        assert w.recorder.events == []
        assert w.server.stats.challenged == 1


async def test_a_wrong_token_is_recorded_and_not_shown() -> None:
    async with world(token=TOKEN) as w:
        answer = await w.exchange(b"CONNECT ok.example:443 HTTP/1.1\r\nProxy-Authorization: Bearer guess\r\n\r\n")
        assert status(answer) == 407
        assert [line[2] for line in w.recorder.network] == ["bad_credentials"]
        assert "guess" not in str(w.recorder.events)


# Plain requests


async def test_a_plain_request_is_forwarded_without_our_credentials() -> None:
    seen: list[bytes] = []
    async with world(token=TOKEN) as w:
        port = await w.origin(answering(seen=seen))
        with await w.connect() as client:
            await send(client, get(f"ok.example:{port}", "/x", extra=[f"Proxy-Authorization: Bearer {TOKEN}"]))
            assert status(await read_head(client)) == 200
            assert await receive_exactly(client, 2) == b"hi"
        await trio.testing.wait_all_tasks_blocked()
        assert seen[0].startswith(b"GET /x HTTP/1.1\r\n")
        assert TOKEN.encode() not in seen[0]
        allowed, closed = w.recorder.events
        assert isinstance(allowed, NetworkAllowed)
        assert isinstance(closed, NetworkClosed)
        assert allowed.protocol == "http"
        assert (closed.outcome, closed.bytes_up > 0, closed.bytes_down > 0) == ("completed", True, True)


async def test_H22_of_two_pipelined_requests_the_denied_one_is_refused() -> None:
    async with world() as w:
        port = await w.origin(answering())
        answer = await w.exchange(get(f"ok.example:{port}") + get("denied.example"))
        first, _, second = answer.partition(b"hi")
        assert status(first) == 200
        assert status(second) == 403
        assert [line[2] for line in w.recorder.network] == ["allowed_by_rule", "completed", "denied_by_rule"]


async def test_every_request_of_a_kept_connection_is_judged_and_the_upstream_is_kept_for_its_host_only() -> None:
    seen: list[bytes] = []
    connections = 0
    handler = answering(seen=seen)

    async def counting(sock: socket.socket) -> None:
        nonlocal connections
        connections += 1
        await handler(sock)

    async with world() as w:
        port = await w.origin(counting)

        async def ask(client: socket.socket, host: str) -> None:
            await send(client, get(f"{host}:{port}"))
            assert status(await read_head(client)) == 200
            assert await receive_exactly(client, 2) == b"hi"

        with await w.connect() as client:
            await ask(client, "ok.example")
            await ask(client, "ok.example")
            assert connections == 1
            await ask(client, "127.0.0.1")
            assert connections == 2
            await ask(client, "ok.example")
            assert connections == 3
            w.server.replace_engine(engine_for("ok.example", "127.0.0.1"))
            await ask(client, "ok.example")
            assert connections == 4
            w.server.replace_engine(engine_for("other.example"))
            await send(client, get(f"ok.example:{port}"))
            assert status(await receive_all(client)) == 403
        assert len(w.recorder.of(NetworkAllowed)) == 5
        assert w.server.stats.blocked == {"not_in_allowlist": 1}


@pytest.mark.parametrize("while_asked", [False, True])
async def test_a_kept_upstream_that_died_is_replaced(while_asked: bool) -> None:
    async def once(sock: socket.socket) -> None:
        await answering(times=1)(sock)
        if while_asked and b"second" in (head := await read_head(sock)):
            assert head.startswith(b"GET /second")

    async with world() as w:
        port = await w.origin(once)
        with await w.connect() as client:
            for path in ("/first", "/second"):
                await send(client, get(f"ok.example:{port}", path))
                assert status(await read_head(client)) == 200
                assert await receive_exactly(client, 2) == b"hi"
                await trio.testing.wait_all_tasks_blocked()
        await trio.testing.wait_all_tasks_blocked()
        again = ["allowed_by_rule", "upstream_stale"] if while_asked else []
        served = ["allowed_by_rule", "completed"]
        assert [line[2] for line in w.recorder.network] == served + again + served


async def test_an_idle_kept_connection_is_closed(autojump_clock: trio.testing.MockClock) -> None:
    async with world() as w:
        port = await w.origin(answering())
        with await w.connect() as client:
            await send(client, get(f"ok.example:{port}"))
            assert status(await read_head(client)) == 200
            assert await receive_exactly(client, 2) == b"hi"
            began = trio.current_time()
            await trio.sleep(70)
            await send(client, b"GET http")  # now the head's own deadline counts, and the earlier of the two wins
            assert status(await receive_all(client)) == 408
            assert 75 <= trio.current_time() - began <= 77


@pytest.mark.parametrize(
    "answer", [b"HTTP/2 what\r\n\r\n", b"", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"]
)
async def test_an_upstream_that_does_not_speak_http(answer: bytes) -> None:
    async with world() as w:
        port = await w.origin(answering(answer, times=1))
        assert status(await w.exchange(get(f"ok.example:{port}"))) == 502
        assert w.recorder.network[-1][2] == "upstream_error"


async def test_a_silent_upstream_times_out(autojump_clock: trio.testing.MockClock) -> None:
    async def silent(sock: socket.socket) -> None:
        await receive_all(sock)

    async with world(limits=Limits(idle_timeout_s=20)) as w:
        port = await w.origin(silent)
        assert status(await w.exchange(get(f"ok.example:{port}"))) == 504
        assert w.recorder.network[-1][2] == "upstream_error"


async def test_a_malformed_body_is_the_client_s_fault() -> None:
    async with world() as w:
        port = await w.origin(answering())
        head = (
            f"POST http://ok.example:{port}/ HTTP/1.1\r\nHost: ok.example:{port}\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        assert status(await w.exchange(head.encode() + b"zz\r\n")) in (400, 200)
        assert w.recorder.network[-1][2] in ("client_error", "completed")


async def test_an_answer_that_breaks_off_closes_the_connection() -> None:
    async with world() as w:
        port = await w.origin(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhi", times=1))
        with await w.connect() as client:
            await send(client, get(f"ok.example:{port}"))
            assert status(await read_head(client)) == 200
            assert await receive_exactly(client, 2) == b"hi"
            with pytest.raises(ConnectionResetError):
                await receive(client)
        assert w.recorder.network[-1][2] == "upstream_error"


async def test_a_websocket_goes_through_both_ways_and_is_counted() -> None:
    async def upstream(sock: socket.socket) -> None:
        await read_head(sock)
        await send(sock, b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nfirst")
        await echo(sock)

    async with world() as w:
        port = await w.origin(upstream)
        with await w.connect() as client:
            await send(
                client, get(f"ok.example:{port}", extra=["Connection: Upgrade", "Upgrade: websocket"]) + b"early"
            )
            assert status(await read_head(client)) == 101
            assert sorted(await receive_exactly(client, 10)) == sorted(b"firstearly")
            await send(client, b"late")
            assert await receive_exactly(client, 4) == b"late"
            client.shutdown(socket.SHUT_WR)
            assert await receive_all(client) == b""
        await trio.testing.wait_all_tasks_blocked()
        closed = w.recorder.events[-1]
        assert isinstance(closed, NetworkClosed)
        assert closed.outcome == "completed"
        assert closed.bytes_up > 9


# The record cannot be written


async def test_while_the_record_is_behind_new_requests_get_503() -> None:
    async with world() as w:
        w.recorder.healthy = False
        for request in (b"CONNECT ok.example:443 HTTP/1.1\r\n\r\n", get("ok.example")):
            answer = await w.exchange(request)
            assert status(answer) == 503
            assert b"Retry-After: 1\r\n" in answer
        assert w.recorder.events == []
        w.recorder.healthy = True
        port = await w.origin(echo)
        (await w.tunnel(f"ok.example:{port}")).close()


@pytest.mark.parametrize("settles", [True, False])
@pytest.mark.parametrize("plain", [True, False])
async def test_a_judged_connection_waits_until_its_line_is_written(
    autojump_clock: trio.testing.MockClock, settles: bool, plain: bool
) -> None:
    class FallsBehind(FakeResolver):
        async def resolve(self, name: str) -> tuple[IPAddress, ...]:
            w.recorder.healthy = False
            return await super().resolve(name)

    async with world(resolver=FallsBehind({"ok.example": ("127.0.0.1",)})) as w:
        port = await w.origin(answering(times=1) if plain else echo)
        w.recorder.settles = settles
        with await w.connect() as client:
            authority = f"ok.example:{port}"
            await send(client, get(authority) if plain else f"CONNECT {authority} HTTP/1.1\r\n\r\n".encode())
            assert status(await read_head(client)) == (200 if settles else 503)
            assert trio.current_time() == pytest.approx(5, abs=0.1)
        await trio.testing.wait_all_tasks_blocked()
        assert w.recorder.network[0][0] == "allowed"
        if not settles:
            assert w.recorder.network[-1][2] == "audit_unavailable"


# Cancellation


class _AbortAtStep(trio.abc.Instrument):
    """Aborts a server after so many steps of its connections' tasks."""

    def __init__(self, step: int, server: EgressServer) -> None:
        self.left = step
        self.server = server

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if "_connection" in task.name:
            if self.left == 0:
                self.server.abort()
            self.left -= 1


async def _scenario(w: World, port: int) -> None:
    with await w.connect() as client:
        request = get(f"ok.example:{port}")
        for piece in (request[:16], request[16:]):
            await send(client, piece)
            await trio.testing.wait_all_tasks_blocked()
        await read_head(client)
        await receive_exactly(client, 2)
        await send(client, b"POST" + get(f"ok.example:{port}", extra=["Content-Length: 4"])[3:])
        await trio.testing.wait_all_tasks_blocked()
        await send(client, b"body")
        await read_head(client)
        await receive_exactly(client, 2)
    with await w.connect() as client:
        await send(client, f"CONNECT ok.example:{port} HTTP/1.1\r\n\r\n".encode())
        await read_head(client)
        await send(client, b"GET / HTTP/1.1\r\n\r\n")
        await read_head(client)
    await w.exchange(b"CONNECT denied.example:443 HTTP/1.1\r\n\r\n")
    await w.exchange(b"CONNECT ok.example:1 HTTP/1.1\r\n\r\n")


async def _play(w: World, port: int, over: trio.CancelScope) -> None:
    with suppress(OSError, IndexError):  # the proxy has closed the connection
        await _scenario(w, port)
    over.cancel()


async def test_cancellation_at_every_step_leaves_no_socket_and_a_complete_record() -> None:
    endings = {"completed", "cancelled", "connection_refused", "client_reset", "upstream_reset"}
    steps = 0
    while True:
        async with world() as w:
            port = await w.origin(answering())
            instrument = _AbortAtStep(steps, w.server)
            trio.lowlevel.add_instrument(instrument)
            with trio.fail_after(5):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_play, w, port, nursery.cancel_scope)
            trio.lowlevel.remove_instrument(instrument)
        # ``world`` has checked that each allowed line has its closed line and that no connection is counted.
        assert {line[2] for line in w.recorder.network if line[0] == "closed"} <= endings
        if instrument.left >= 0:
            break
        steps += 1
    assert steps > 10
