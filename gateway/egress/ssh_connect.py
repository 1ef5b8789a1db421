"""An ssh ProxyCommand: carries standard input and output through the proxy that HTTPS_PROXY names.

Runs *inside* a sandbox, alone: standard library only, no import of this project, Python 3.8 and later.
Usage: ssh_connect.py HOST PORT
"""

import base64
import os
import socket
import sys
import threading
from urllib.parse import unquote, urlsplit

MAX_HEAD_BYTES = 65536


def open_tunnel(host: str, port: str) -> socket.socket:
    """Ask the proxy for a tunnel (RFC 9110, 9.3.6); ends the process with its words when it refuses."""
    proxy = urlsplit(os.environ.get("HTTPS_PROXY") or os.environ.get("https_proxy") or "")
    if not proxy.hostname or not proxy.port:
        sys.exit("ssh_connect: HTTPS_PROXY names no proxy")
    connection = socket.create_connection((proxy.hostname, proxy.port), timeout=30)
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    credentials = f"{unquote(proxy.username or '')}:{unquote(proxy.password or '')}".encode()
    connection.sendall(
        f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n"
        f"Proxy-Authorization: Basic {base64.b64encode(credentials).decode()}\r\n\r\n".encode()
    )
    head = b""
    # One byte at a time: what follows the head is the server's greeting and belongs to ssh.
    while not head.endswith(b"\r\n\r\n") and len(head) < MAX_HEAD_BYTES:
        byte = connection.recv(1)
        if not byte:
            break
        head += byte
    words = head.split(b"\r\n", 1)[0].split(b" ", 2)
    if len(words) < 2 or words[1] != b"200":
        connection.settimeout(2)
        try:
            body = connection.recv(4096)
        except OSError:
            body = b""
        sys.exit("ssh_connect: " + (body or head).decode("utf-8", "replace").strip())
    connection.settimeout(None)
    return connection


def copy_input(connection: socket.socket) -> None:
    """Send standard input until its end, then pass the end on (half-close)."""
    while data := os.read(0, 65536):
        connection.sendall(data)
    connection.shutdown(socket.SHUT_WR)


def main() -> None:
    """Relay both directions until the server's side ends."""
    connection = open_tunnel(sys.argv[1], sys.argv[2])
    threading.Thread(target=copy_input, args=(connection,), daemon=True).start()
    while data := connection.recv(65536):
        view = memoryview(data)
        while view:
            view = view[os.write(1, view) :]


if __name__ == "__main__":
    main()
