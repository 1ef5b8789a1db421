"""What the egress server does with plain, non-blocking sockets besides relaying."""

import fcntl
import socket
import struct
import termios

import trio

__all__ = ["discard", "reset", "send_all"]

DISCARD_BYTES = 65_536
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


def reset(sock: socket.socket) -> None:
    """Close a socket so that its peer sees a failure and not an orderly end, unless bytes would be lost by that.

    A peer must not take a message that was cut off for a complete one. But what the kernel has not delivered
    yet comes first: then the socket is closed in the ordinary way.
    """
    try:
        unsent = struct.unpack("i", fcntl.ioctl(sock, termios.TIOCOUTQ, b"\0\0\0\0"))[0]
        if not unsent:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_OFF_AT_ONCE)
    except OSError:
        pass  # not connected any more
    sock.close()
