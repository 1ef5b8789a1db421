"""The demo: a workflow of two tools in a sandbox, against two web servers on this machine.

The first tool asks both servers through the proxy: the policy allows one by name and blocks the other. The
second tool ignores the proxy and connects directly: the kernel has no way for it. Then the record is shown.
"""

import http.server
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gateway.event_log import read_events

HERE = Path(__file__).resolve().parent
SHOWN = ("sandbox_started", "sandbox_egress_verified", "network_allowed", "network_blocked", "network_closed")


class Greeting(http.server.BaseHTTPRequestHandler):
    """Answers every GET with one line."""

    def do_GET(self) -> None:
        body = b"hello from the test origin\n"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing: the record is what this demo is about."""


@contextmanager
def origin() -> Iterator[int]:
    """Serve `Greeting` on a free loopback port."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Greeting) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def describe(event: dict[str, Any]) -> str:
    """Say in one line what an event holds."""
    data = event["data"]
    match event["type"]:
        case "sandbox_started":
            return f"driver {data['driver']}, egress {data['enforcement']}"
        case "sandbox_egress_verified":
            return f"{len(data['attempts'])} ways out tried from inside, all closed: {data['enforced']}"
        case "network_allowed":
            return f"{data['host']}:{data['port']} at {data['address']} by rule {data['rule']}"
        case "network_blocked":
            return f"{data['host']}:{data['port']} {data['code']}"
        case _:
            return (
                f"{data['host']}:{data['port']} {data['bytes_up']} B up, {data['bytes_down']} B down, {data['outcome']}"
            )


def run_demo(scratch: Path) -> int:
    """Run the workflow with a store in ``scratch``; returns its exit code after showing the record."""
    workspace = scratch / "workspace"
    shutil.copytree(HERE / "workspace", workspace)
    store = scratch / "store"
    python = os.path.realpath(sys.executable)
    with origin() as allowed, origin() as blocked:
        print(f"$ iterion run demo.bot --sandbox auto --var allowed_port={allowed} --var blocked_port={blocked}\n")
        sys.stdout.flush()
        outcome = subprocess.run(
            [
                *(sys.executable, "-m", "gateway.cli", "run", "demo.bot", "--sandbox", "auto"),
                *("--store-dir", str(store), "--var", f"python={python}"),
                *("--var", f"allowed_port={allowed}", "--var", f"blocked_port={blocked}"),
            ],
            cwd=workspace,
            check=False,
        )
    print("\nThe record (events.jsonl):")
    for path in sorted(store.glob("runs/*/events.jsonl")):
        for event in read_events(path):
            if event["type"] in SHOWN:
                print(f"  {event['ts'][11:23]}  {event['type']:<24} {describe(event)}")
    return outcome.returncode


def main() -> int:
    """Check what is needed, run, and clean up."""
    if shutil.which("bwrap") is None:
        print("The demo needs bubblewrap (bwrap), which is not installed: apt-get install bubblewrap", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="iterion-demo-") as scratch:
        return run_demo(Path(scratch))


if __name__ == "__main__":
    sys.exit(main())
