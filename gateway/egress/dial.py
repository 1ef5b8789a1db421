"""Open a TCP connection to one of several addresses: Happy Eyeballs, version 2 (RFC 8305).

Only addresses are dialled, never names. Sockets are plain, non-blocking ones: the relay wants descriptors.
"""

import errno
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address
from itertools import chain, zip_longest
from typing import Final

import trio

from gateway.egress.limits import Limits

__all__ = ["Attempt", "DialFailed", "DialFailure", "Dialled", "dial", "interleave", "keep_alive_options"]

IPAddress = IPv4Address | IPv6Address

STREAM: Final = socket.SOCK_STREAM | socket.SOCK_NONBLOCK
CONNECTING: Final = frozenset({errno.EINPROGRESS, errno.EALREADY, errno.EINTR})
NO_RESOURCES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})


class DialFailure(StrEnum):
    """Why no address could be connected to."""

    REFUSED = "connection_refused"
    UNREACHABLE = "unreachable"
    TIMEOUT = "dial_timeout"
    NO_RESOURCES = "gateway_resources"
    "The gateway itself has no descriptor, port or memory left."
    OTHER = "dial_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One address that could not be connected to, and why."""

    address: IPAddress
    failure: DialFailure
    detail: str


class DialFailed(Exception):
    """No address could be connected to.

    Args:
        attempts: what was tried and failed, in the order of failing. An attempt that the deadline cut off is
            not in it.
        failure: the reason for all of it together.
    """

    def __init__(self, attempts: Sequence[Attempt], failure: DialFailure) -> None:
        tried = "; ".join(f"{attempt.address}: {attempt.detail}" for attempt in attempts)
        super().__init__(f"{failure}: {tried}" if tried else failure.value)
        self.attempts: Final = tuple(attempts)
        self.failure: Final = failure


@dataclass(frozen=True, slots=True)
class Dialled:
    """A connected, non-blocking socket, and the address it is connected to. The caller closes it."""

    sock: socket.socket
    address: IPAddress


def interleave(addresses: Sequence[IPAddress]) -> list[IPAddress]:
    """Order addresses for dialling: families in turn, beginning with the first one's (RFC 8305 section 4)."""
    if len(addresses) < 2:
        return list(addresses)
    version = addresses[0].version
    first = [address for address in addresses if address.version == version]
    second = [address for address in addresses if address.version != version]
    return [address for address in chain.from_iterable(zip_longest(first, second)) if address is not None]


def keep_alive_options(limits: Limits) -> tuple[tuple[int, int, int], ...]:
    """Return the options of every socket that carries a tunnel, as (level, option, value) (tcp(7))."""
    return (
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, limits.keepalive_idle_s),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, limits.keepalive_interval_s),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, limits.keepalive_probes),
    )


async def dial(addresses: Sequence[IPAddress], port: int, limits: Limits) -> Dialled:
    """Connect to the first of the addresses that answers.

    Args:
        addresses: at least one; each has been judged.
        port: TCP port.
        limits: the dialling limits are used.

    Raises:
        DialFailed: none answered within ``dial_timeout_s``.

    Does not checkpoint where the connection is there at once (loopback). Cancellation, like a lost race,
    closes every socket but the winner's.
    """
    attempts: list[Attempt] = []
    if len(addresses) == 1:
        try:
            sock = await _connect(addresses[0], port, limits, trio.current_time() + limits.dial_timeout_s)
        except OSError as error:
            attempts.append(_failed(addresses[0], error))
        else:
            return Dialled(sock, addresses[0])
        raise DialFailed(attempts, attempts[-1].failure)
    with trio.move_on_after(limits.dial_timeout_s) as deadline:
        winner = await _race(interleave(addresses), port, limits, attempts)
        if winner is not None:
            return winner
    raise DialFailed(attempts, DialFailure.TIMEOUT if deadline.cancelled_caught else attempts[-1].failure)


async def _race(addresses: Sequence[IPAddress], port: int, limits: Limits, attempts: list[Attempt]) -> Dialled | None:
    """Run staggered attempts (RFC 8305 section 5) until one wins; None when all have failed."""
    won: list[Dialled] = []

    async def attempt(address: IPAddress, over: trio.Event) -> None:
        try:
            sock = await _connect(address, port, limits)
        except OSError as error:
            attempts.append(_failed(address, error))
            over.set()
            return
        if won:  # two answers in one turn of the scheduler
            sock.close()
            return
        won.append(Dialled(sock, address))
        nursery.cancel_scope.cancel()

    try:
        async with trio.open_nursery() as nursery:
            for address in addresses:
                over = trio.Event()
                nursery.start_soon(attempt, address, over)
                with trio.move_on_after(limits.happy_eyeballs_delay_s):
                    await over.wait()
    except BaseException:
        for dialled in won:
            dialled.sock.close()
        raise
    return won[0] if won else None


async def _connect(address: IPAddress, port: int, limits: Limits, deadline: float | None = None) -> socket.socket:
    """Connect to one address; OSError (TimeoutError past the deadline) when that fails."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    sock = socket.socket(family, STREAM)
    try:
        target = (str(address), port)
        if target[0].startswith("127."):  # a peer on loopback cannot vanish without a word: nothing to probe
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        else:
            for option in keep_alive_options(limits):
                sock.setsockopt(*option)
        code = sock.connect_ex(target)
        if code in CONNECTING:
            # On loopback the handshake is over by now, and asking again says so: no trip through the scheduler.
            code = sock.connect_ex(target)
        if code in CONNECTING:
            if deadline is None:
                await trio.lowlevel.wait_writable(sock)
            else:
                with trio.move_on_at(deadline) as scope:
                    await trio.lowlevel.wait_writable(sock)
                if scope.cancelled_caught:
                    raise TimeoutError(errno.ETIMEDOUT, "no answer")
            code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code not in (0, errno.EISCONN):
            raise OSError(code, errno.errorcode.get(code, str(code)))
    except BaseException:
        sock.close()
        raise
    return sock


def _failed(address: IPAddress, error: OSError) -> Attempt:
    code = error.errno
    if code == errno.ECONNREFUSED:
        failure = DialFailure.REFUSED
    elif code == errno.ETIMEDOUT:
        failure = DialFailure.TIMEOUT
    elif code in (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EACCES, errno.EPERM):
        failure = DialFailure.UNREACHABLE
    elif code in NO_RESOURCES:
        failure = DialFailure.NO_RESOURCES
    else:
        failure = DialFailure.OTHER
    return Attempt(address=address, failure=failure, detail=errno.errorcode.get(code or 0, "failed"))
