"""The load: the C programs are built on the spot, so that the client is never what a figure measures."""

import json
import resource
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.peers import OUT
from bench.processes import STOP_TIMEOUT_S, Running

SOURCES = Path(__file__).parent
RUN_DEADLINE_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The running origin: a port that echoes and a port that sends as much as it is asked for."""

    echo_port: int
    bulk_port: int


def build() -> None:
    """Compile the origin and the load generator where their sources are newer than the programs."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    (OUT / "bin").mkdir(parents=True, exist_ok=True)
    for name in ("origin", "loadgen"):
        source, program = SOURCES / f"{name}.c", OUT / "bin" / name
        if program.exists() and program.stat().st_mtime > source.stat().st_mtime:
            continue
        if compiler is None:
            raise RuntimeError("the load generator is written in C: apt-get install gcc libc6-dev")
        subprocess.run([compiler, "-O2", "-Wall", "-Wextra", "-o", str(program), str(source)], check=True)
    (OUT / "client_hello.bin").write_bytes(client_hello())


def client_hello() -> bytes:
    """Return a real TLS ClientHello to an address (so without a server name): what a tunnel sends first."""
    outgoing = ssl.MemoryBIO()
    context = ssl.create_default_context()
    connection = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="127.0.0.1")
    with suppress(ssl.SSLWantReadError):
        connection.do_handshake()
    return outgoing.read()


def raise_file_limit() -> int:
    """Raise this process's (and so its children's) limit of open files as far as allowed; return it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (65_536, hard):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(wanted, hard)))
        except (ValueError, OSError):
            continue
        return wanted
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


@contextmanager
def origin() -> Iterator[Origin]:
    """Run the origin until the block is left."""
    process = subprocess.Popen([str(OUT / "bin/origin"), "0", "0"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        echo_port, bulk_port = process.stdout.readline().split()
        yield Origin(echo_port=int(echo_port), bulk_port=int(bulk_port))
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(STOP_TIMEOUT_S)


def _argv(proxy: Running | None, port: int, mode: list[str]) -> list[str]:
    through = ["--proxy", str(proxy.port)] if proxy else []
    payload = ["--payload", str(OUT / "client_hello.bin"), "--deadline", str(RUN_DEADLINE_S)]
    return [str(OUT / "bin/loadgen"), "--origin", str(port), *through, *payload, *mode]


def tunnels(proxy: Running | None, target: Origin, count: int, concurrency: int) -> dict[str, Any]:
    """Open count tunnels, concurrency at a time, with one echo through each (no proxy: plain connections)."""
    argv = _argv(proxy, target.echo_port, ["tunnels", str(count), str(concurrency)])
    answer: dict[str, Any] = json.loads(subprocess.run(argv, check=True, capture_output=True).stdout)
    return answer


def bulk(proxy: Running | None, target: Origin, size_bytes: int) -> dict[str, Any]:
    """Download size_bytes through one tunnel; the answer adds the proxy's CPU seconds."""
    before = proxy.cpu_seconds() if proxy else 0.0
    argv = _argv(proxy, target.bulk_port, ["bulk", str(size_bytes)])
    answer: dict[str, Any] = json.loads(subprocess.run(argv, check=True, capture_output=True).stdout)
    answer["cpu_seconds"] = proxy.cpu_seconds() - before if proxy else 0.0
    return answer


def idle(proxy: Running, target: Origin, count: int) -> dict[str, Any]:
    """Hold count idle tunnels; the answer adds the proxy's resident bytes for each and how many stayed open."""
    before = proxy.resident_bytes()
    argv = _argv(proxy, target.echo_port, ["idle", str(count), "64"])
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        answer: dict[str, Any] = json.loads(process.stdout.readline())
        held = max(1, int(answer["done"]))
        answer["bytes_each"] = (proxy.resident_bytes() - before) / held
        process.stdin.close()
        answer |= json.loads(process.stdout.readline())
    return answer
