"""What the egress server does with plain, non-blocking sockets besides relaying."""

import fcntl
import select
import socket
import struct
import termios
from contextlib import suppress
from enum import Enum, auto

import trio

__all__ = ["Peer", "cut", "cut_now", "discard", "is_untouched", "peer_of", "send_all"]

DISCARD_BYTES = 65_536
DELIVERY_CHECK_S = 0.02
"How often a connection that is to be cut is asked whether everything has arrived; no event says so."
LINGER_OFF_AT_ONCE = struct.pack("ii", 1, 0)


async def send_all(sock: socket.socket, data: bytes, timeout_s: float) -> None:
    """Send everything, waiting for a slow peer.

    Args:
        sock: connected, non-blocking.
        data: what to send.
        timeout_s: for all of it (seconds).

    Raises:
        OSError: the peer is gone; TimeoutError: it takes nothing.

    Does not checkpoint where the kernel takes all of it at once.
    """
    sent = _send_some(sock, data)
    if sent == len(data):
        return
    with trio.move_on_after(timeout_s) as scope:
        while sent < len(data):
            await trio.lowlevel.wait_writable(sock)
            sent += _send_some(sock, data[sent:])
    if scope.cancelled_caught:
        raise TimeoutError("the peer takes nothing")


def _send_some(sock: socket.socket, data: bytes) -> int:
    try:
        return sock.send(data)
    except BlockingIOError:
        return 0


async def discard(sock: socket.socket, timeout_s: float) -> None:
    """End our direction, then read what the peer still sends and throw it away, until it ends too.

    Closing a socket with unread bytes resets the connection, and a reset may overtake the reply that was sent
    before it (RFC 9112 section 9.6).

    Args:
        sock: connected, non-blocking; the caller closes it afterwards.
        timeout_s: how long at most (seconds).
    """
    try:
        sock.shutdown(socket.SHUT_WR)
        with trio.move_on_after(timeout_s):
            while True:
                await trio.lowlevel.wait_readable(sock)
                try:
                    if not sock.recv(DISCARD_BYTES):
                        return
                except BlockingIOError:
                    continue
    except OSError:  # it is gone, which is what we waited for
        return


class Peer(Enum):
    """What is known of the other end of a connection without reading from it."""

    PRESENT = auto()
    ENDED = auto()
    "It has finished sending. It may still read, or be gone: only sending to it would tell."
    GONE = auto()
    "It reset the connection, or keepalive found it dead."


def peer_of(sock: socket.socket) -> Peer:
    """Return the state of a connected socket's peer; bytes that wait to be read do not hide it."""
    events = _poll(sock, select.POLLRDHUP)
    if events & (select.POLLERR | select.POLLHUP | select.POLLNVAL):
        return Peer.GONE
    return Peer.ENDED if events else Peer.PRESENT


def is_untouched(sock: socket.socket) -> bool:
    """Whether nothing has come from the peer: no byte, no end, no failure."""
    return not _poll(sock, select.POLLIN | select.POLLRDHUP)


def _poll(sock: socket.socket, events: int) -> int:
    poller = select.poll()
    poller.register(sock, events)
    ready = poller.poll(0)
    return ready[0][1] if ready else 0


async def cut(*socks: socket.socket, timeout_s: float) -> None:
    """Close sockets so that their peers see a failure, after they have got what was sent.

    For messages that were cut off: an orderly end would make one that is delimited by its end look complete.

    Args:
        socks: non-blocking; closed afterwards, also by cancellation.
        timeout_s: how long peers that do not read are waited for (seconds); they lose what they have not taken.
    """
    try:
        with trio.move_on_after(timeout_s):
            while any(map(_unsent, socks)):  # noqa: ASYNC110 - the kernel has no event for it
                await trio.sleep(DELIVERY_CHECK_S)
    finally:
        for sock in socks:
            cut_now(sock)


def cut_now(sock: socket.socket) -> None:
    """Close a socket so that its peer sees a failure, even if it has not got what was sent."""
    with suppress(OSError):  # not connected any more
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_OFF_AT_ONCE)
    sock.close()


def _unsent(sock: socket.socket) -> int:
    """Return how many bytes the peer's kernel has not acknowledged; 0 where there is no peer any more."""
    try:
        if peer_of(sock) is Peer.GONE:
            return 0  # the kernel goes on counting what was on its way when the reset came
        return int(struct.unpack("i", fcntl.ioctl(sock, termios.TIOCOUTQ, b"\0\0\0\0"))[0])
    except (OSError, ValueError):
        return 0
