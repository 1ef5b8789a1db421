"""Running our program as its users do, and reading what it leaves: exit code, streams, the record of the run."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 60.0
PYTHON = os.path.realpath(sys.executable)
"An interpreter that a sandbox sees."
TERMINAL_EVENTS = ("run_finished", "run_failed", "run_cancelled")

Event = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of the store: its record and its events."""

    record: dict[str, Any]
    events: list[Event]
    path: Path

    def of(self, *kinds: str) -> list[dict[str, Any]]:
        """Return the data of each event of these types, in order."""
        return [event["data"] for event in self.events if event["type"] in kinds]

    @property
    def types(self) -> list[str]:
        """The types of all events, in order."""
        return [event["type"] for event in self.events]


@dataclass(frozen=True, slots=True, kw_only=True)
class Iterion:
    """Our program, started in ``folder`` with a store and a home of its own.

    Nothing of the surroundings is passed on but where programs are.
    """

    folder: Path
    store: Path
    home: Path
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """What the program sees."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "TMPDIR": os.environ.get("TMPDIR", "/tmp"),
            "PYTHONPATH": str(ROOT),
            "ITERION_TEST_SESSION": os.environ["ITERION_TEST_SESSION"],
            "ITERION_HOME": str(self.store),
            **self.env,
        }

    def command(self, *arguments: str) -> list[str]:
        """Return a command line of the program."""
        return [sys.executable, "-m", "gateway.cli", *arguments]

    def run(
        self, *arguments: str, stdin: bytes = b"", env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """Run it to its end."""
        return subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env={**self.environment, **(env or {})},
            input=stdin,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    @contextmanager
    def start(self, *arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
        """Start it with its outputs in pipes and a session of its own; it is killed when the block is left."""
        with subprocess.Popen(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def runs(self) -> list[Run]:
        """Return every run of the store, oldest first."""
        paths = sorted((self.store / "runs").glob("*"))
        return [
            Run(
                record=json.loads((path / "run.json").read_bytes()), events=read_lines(path / "events.jsonl"), path=path
            )
            for path in paths
        ]

    @property
    def last(self) -> Run:
        """The youngest run, whose record must be whole."""
        run = self.runs()[-1]
        check_record(run)
        return run

    def write(self, name: str, text: str) -> Path:
        """Write a file in the working directory."""
        path = self.folder / name
        path.write_text(text)
        return path


def read_lines(path: Path) -> list[Event]:
    """Read events.jsonl as any other program would."""
    return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


def check_record(run: Run, status: str | None = None) -> None:
    """Check what holds for the record of every run that has ended."""
    types = run.types
    assert [event["seq"] for event in run.events] == list(range(1, len(types) + 1))
    assert {event["run_id"] for event in run.events} == {run.record["run_id"]} == {run.path.name}
    assert types[0] == "run_started"
    assert [kind for kind in types if kind in TERMINAL_EVENTS] == types[-1:]
    assert types.count("node_started") == types.count("node_finished")
    assert types.count("network_allowed") == types.count("network_closed")
    ends = {"run_finished": "done", "run_failed": "failed", "run_cancelled": "cancelled"}
    assert run.record["status"] == ends[types[-1]]
    assert not (run.path / "scratch").exists()
    if status is not None:
        assert run.record["status"] == status


@contextmanager
def tcp_server(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """Serve TCP connections on a loopback port, each by ``serve`` in a thread of its own; gives the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threads: list[threading.Thread] = []

        def handle(client: socket.socket) -> None:
            with client, contextlib.suppress(OSError):  # the client may go whenever it wants
                serve(client)

        def accept() -> None:
            while True:
                client, _ = listener.accept()
                if stopping:
                    client.close()
                    return
                client.settimeout(TIMEOUT_S)
                threads.append(threading.Thread(target=handle, args=(client,)))
                threads[-1].start()

        stopping: list[bool] = []
        acceptor = threading.Thread(target=accept)
        acceptor.start()
        try:
            yield listener.getsockname()[1]
        finally:
            stopping.append(True)
            socket.create_connection(listener.getsockname()).close()
            for thread in [acceptor, *threads]:
                thread.join()


ECHO_PROGRAM = """
import socket, threading
def echo(client):
    try:
        while data := client.recv(65536):
            client.sendall(data)
    except OSError:
        pass
    client.close()
with socket.create_server(("127.0.0.1", 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    while True:
        threading.Thread(target=echo, args=(listener.accept()[0],), daemon=True).start()
"""


@contextmanager
def echo_process() -> Iterator[int]:
    """Serve an echo from another process, for tests that look at the descriptors of this one; gives the port."""
    with subprocess.Popen([sys.executable, "-c", ECHO_PROGRAM], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


def echo(client: socket.socket) -> None:
    """Send back what comes, until it ends."""
    while data := client.recv(65536):
        client.sendall(data)


def answer_http(client: socket.socket) -> None:
    """Answer one plain request with ``hello``."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = client.recv(65536)
        if not piece:
            return
        data += piece
    client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")


def wait_for_text(stream: IO[bytes], text: bytes) -> bytes:
    """Read a stream until it holds a text; fails at its end."""
    seen = b""
    while text not in seen:
        piece = os.read(stream.fileno(), 65536)
        assert piece, f"ended without {text!r}: {seen!r}"
        seen += piece
    return seen


def wait_until(condition: Callable[[], object], timeout_s: float = 10.0) -> None:
    """Wait until something that nobody tells us about has happened."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def processes_with(mark: str) -> list[int]:
    """Return the living processes of this host whose command line holds a text."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                line = Path(f"/proc/{name}/cmdline").read_bytes()
                state = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if mark.encode() in line and state != "Z":
                found.append(int(name))
    return found


def python_code(code: str) -> Sequence[str]:
    """Return the command line that runs a piece of Python inside a sandbox."""
    return [PYTHON, "-I", "-S", "-c", code]
