"""Real sockets on loopback for tests: connected pairs, and reading and writing them."""

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import trio


@contextmanager
def tcp_pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two connected, non-blocking TCP sockets; closed at the end."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        first = socket.create_connection(listener.getsockname())
        second, _ = listener.accept()
    for sock in (first, second):
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        yield first, second
    finally:
        first.close()
        second.close()


def listen(backlog: int = 128) -> socket.socket:
    """A listening, non-blocking socket on a free loopback port; the caller closes it."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=backlog)
    listener.setblocking(False)
    return listener


def port_of(sock: socket.socket) -> int:
    """The port that a socket is bound to."""
    return int(sock.getsockname()[1])


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return port_of(probe)


def abort(sock: socket.socket) -> None:
    """Close a socket with a reset, at once."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


async def receive(sock: socket.socket, size: int = 65_536) -> bytes:
    """Wait for bytes; empty at the end of the stream."""
    while True:
        try:
            return sock.recv(size)
        except BlockingIOError:
            await trio.lowlevel.wait_readable(sock)


async def receive_exactly(sock: socket.socket, size: int) -> bytes:
    """Read ``size`` bytes, or what there is until the end of the stream."""
    data = bytearray()
    while len(data) < size:
        piece = await receive(sock, size - len(data))
        if not piece:
            break
        data += piece
    return bytes(data)


async def receive_all(sock: socket.socket) -> bytes:
    """Read to the end of the stream."""
    data = bytearray()
    while piece := await receive(sock):
        data += piece
    return bytes(data)


async def send(sock: socket.socket, data: bytes) -> None:
    """Send everything."""
    left = memoryview(data)
    while left:
        try:
            left = left[sock.send(left) :]
        except BlockingIOError:
            await trio.lowlevel.wait_writable(sock)


async def connect(port: int) -> socket.socket:
    """A non-blocking connection to a loopback port; the caller closes it."""
    sock = socket.socket()
    sock.setblocking(False)
    try:
        if sock.connect_ex(("127.0.0.1", port)):
            await trio.lowlevel.wait_writable(sock)
            if code := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                raise OSError(code, "connect")
    except BaseException:
        sock.close()
        raise
    return sock
