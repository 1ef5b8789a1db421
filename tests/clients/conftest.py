"""A sandbox for real clients: `iterion sandbox run` against local origins, with a certificate authority they trust."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.clients.origins import Application, Origin, serve

IN_SANDBOX_TIMEOUT_S = 60
CA_FILE = "authority.pem"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a sandboxed command did."""

    returncode: int
    stdout: str
    stderr: str
    events: tuple[dict[str, Any], ...]

    def data(self, kind: str) -> list[dict[str, Any]]:
        """Return the data of each event of one type, in order."""
        return [event["data"] for event in self.events if event["type"] == kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """Runs client programs in a sandbox whose working directory is an empty folder with the authority in it."""

    folder: Path
    home: Path
    store: Path

    def run(
        self,
        argv: Sequence[str],
        allowed: Sequence[Origin],
        *,
        env: Mapping[str, str] | None = None,
        known: Sequence[Origin] = (),
    ) -> Outcome:
        """Run a program that may reach the allowed origins; the known ones have an address but are not allowed."""
        command = [sys.executable, "-m", "gateway.cli", "sandbox", "run", "--store-dir", str(self.store)]
        for origin in allowed:
            command += ["--allow", f"{origin.name}:{origin.port}", "--allow", f"127.0.0.1:{origin.port}"]
        for name in {origin.name for origin in [*allowed, *known]}:
            command += ["--resolve", f"{name}=127.0.0.1"]
        for name, value in (env or {}).items():
            command += ["--env", f"{name}={value}"]
        before = set(self.store.glob("**/events.jsonl"))
        # Nothing of the surroundings is passed on: they may name a proxy or an authority of their own.
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "TMPDIR": os.environ["TMPDIR"],
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "ITERION_TEST_SESSION": os.environ["ITERION_TEST_SESSION"],
        }
        result = subprocess.run(
            [*command, "--", *argv],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=IN_SANDBOX_TIMEOUT_S,
        )
        records = set(self.store.glob("**/events.jsonl")) - before
        lines = [line for record in records for line in record.read_text().splitlines()]
        return Outcome(
            returncode=result.returncode,
            stdout=result.stdout,
            stderr=result.stderr,
            events=tuple(json.loads(line) for line in lines),
        )

    @property
    def authority(self) -> str:
        """The path of the certificate authority's file, inside and outside."""
        return str(self.folder / CA_FILE)


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    """The authority that issues every origin's certificate."""
    return trustme.CA()


@pytest.fixture
def client(tmp_path: Path, authority: trustme.CA) -> Client:
    """A sandbox in an empty folder."""
    folder, home = tmp_path / "work", tmp_path / "home"
    folder.mkdir()
    home.mkdir()
    authority.cert_pem.write_to_path(str(folder / CA_FILE))
    return Client(folder=folder, home=home, store=tmp_path / "store")


@pytest.fixture
def origin(authority: trustme.CA) -> Iterator[Callable[[str, Application], Origin]]:
    """Start TLS origins that end with the test."""
    with ExitStack() as stack:

        def start(name: str, application: Application) -> Origin:
            return stack.enter_context(serve(name, application, authority))

        yield start
