"""Dialling: the order, the stagger, the reasons, and no socket left whatever happens."""

import errno
import socket
from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
import trio
import trio.testing

from gateway.egress.dial import DialFailed, DialFailure, _failed, dial, interleave, keep_alive_options
from gateway.egress.limits import Limits
from tests.gateway.egress.loopback import free_port, listen, port_of

pytestmark = pytest.mark.usefixtures("no_leaks")

LOOPBACK = IPv4Address("127.0.0.1")
OTHER = IPv4Address("127.0.0.2")
LIMITS = Limits(dial_timeout_s=5, happy_eyeballs_delay_s=0.25)


def fill(listener: socket.socket) -> list[socket.socket]:
    """Fill a listener's backlog, so that whoever comes next waits for an answer; returns what must be closed."""
    fillers = []
    for _ in range(3):
        sock = socket.socket()
        sock.setblocking(False)
        sock.connect_ex(listener.getsockname())
        fillers.append(sock)
    return fillers


@pytest.mark.parametrize(
    ("given", "ordered"),
    [
        (["192.0.2.1"], ["192.0.2.1"]),
        (["2001:db8::1", "2001:db8::2", "192.0.2.1"], ["2001:db8::1", "192.0.2.1", "2001:db8::2"]),
        (["192.0.2.1", "192.0.2.2", "2001:db8::1"], ["192.0.2.1", "2001:db8::1", "192.0.2.2"]),
        (["192.0.2.1", "192.0.2.2"], ["192.0.2.1", "192.0.2.2"]),
    ],
)
def test_families_take_turns(given: list[str], ordered: list[str]) -> None:
    assert interleave([ip_address(text) for text in given]) == [ip_address(text) for text in ordered]


async def test_one_address() -> None:
    with listen() as listener:
        dialled = await dial([LOOPBACK], port_of(listener), LIMITS)
        with dialled.sock as sock:
            assert dialled.address == LOOPBACK
            assert sock.getpeername() == listener.getsockname()
            assert not sock.getblocking()
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_ipv6() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as listener:
        dialled = await dial([IPv6Address("::1")], port_of(listener), LIMITS)
        with dialled.sock as sock:
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            for level, option, value in keep_alive_options(LIMITS):
                assert sock.getsockopt(level, option) == value


async def test_a_refused_connection_says_so() -> None:
    with pytest.raises(DialFailed) as caught:
        await dial([LOOPBACK], free_port(), LIMITS)
    assert caught.value.failure is DialFailure.REFUSED
    assert [(attempt.address, attempt.failure) for attempt in caught.value.attempts] == [
        (LOOPBACK, DialFailure.REFUSED)
    ]
    assert "127.0.0.1: ECONNREFUSED" in str(caught.value)


async def test_a_refused_address_hands_over_at_once(autojump_clock: trio.testing.MockClock) -> None:
    with listen() as listener:
        listener.close()
        with socket.create_server(("127.0.0.2", 0)) as second:
            dialled = await dial([LOOPBACK, OTHER], port_of(second), LIMITS)
            with dialled.sock:
                assert dialled.address == OTHER
                assert trio.current_time() < 0.25


async def test_all_refused() -> None:
    with pytest.raises(DialFailed) as caught:
        await dial([LOOPBACK, OTHER], free_port(), LIMITS)
    assert caught.value.failure is DialFailure.REFUSED
    assert len(caught.value.attempts) == 2


async def test_a_silent_address_hands_over_after_the_delay(autojump_clock: trio.testing.MockClock) -> None:
    with listen(backlog=0) as silent:
        port = port_of(silent)
        fillers = fill(silent)
        with socket.create_server(("127.0.0.2", port)):
            dialled = await dial([LOOPBACK, OTHER], port, LIMITS)
            with dialled.sock:
                assert dialled.address == OTHER
                assert trio.current_time() == pytest.approx(0.25)
        for filler in fillers:
            filler.close()


@pytest.mark.parametrize("count", [1, 2])
async def test_silence_everywhere_ends_at_the_deadline(autojump_clock: trio.testing.MockClock, count: int) -> None:
    with listen(backlog=0) as silent:
        fillers = fill(silent)
        with pytest.raises(DialFailed) as caught:
            await dial([LOOPBACK] * count, port_of(silent), LIMITS)
        assert caught.value.failure is DialFailure.TIMEOUT
        assert trio.current_time() == pytest.approx(5)
        for filler in fillers:
            filler.close()


@pytest.mark.parametrize("count", [1, 2])
async def test_cancellation_leaves_no_socket(autojump_clock: trio.testing.MockClock, count: int) -> None:
    with listen(backlog=0) as silent:
        fillers = fill(silent)
        with trio.move_on_after(1) as scope:
            await dial([LOOPBACK] * count, port_of(silent), LIMITS)
        assert scope.cancelled_caught
        for filler in fillers:
            filler.close()


async def test_cancellation_together_with_a_winner_closes_the_winner() -> None:
    with listen() as listener:
        with trio.CancelScope() as scope:
            scope.cancel()
            await dial([LOOPBACK, LOOPBACK], port_of(listener), LIMITS)
        assert scope.cancelled_caught


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        (errno.ECONNREFUSED, DialFailure.REFUSED),
        (errno.ETIMEDOUT, DialFailure.TIMEOUT),
        (errno.ENETUNREACH, DialFailure.UNREACHABLE),
        (errno.EHOSTUNREACH, DialFailure.UNREACHABLE),
        (errno.EPERM, DialFailure.UNREACHABLE),
        (errno.EMFILE, DialFailure.NO_RESOURCES),
        (errno.EADDRNOTAVAIL, DialFailure.NO_RESOURCES),
        (errno.EPROTO, DialFailure.OTHER),
        (None, DialFailure.OTHER),
    ],
)
def test_errors_are_sorted(code: int | None, failure: DialFailure) -> None:
    error = OSError(code, "x") if code is not None else OSError("x")
    assert _failed(LOOPBACK, error).failure is failure
