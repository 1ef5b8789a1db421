"""Ignore the proxy and connect directly, as a hostile program would."""

import socket
import sys

host, port = sys.argv[1], int(sys.argv[2])
try:
    with socket.create_connection((host, port), timeout=3):
        sys.exit(f"{host}:{port}: connected directly, past the proxy")
except OSError as error:
    print(f"{host}:{port} directly: {error.strerror}")
