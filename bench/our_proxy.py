"""Our egress server as the benchmarks use it: an allowlist, a token where one is given, a real record.

python -m bench.our_proxy PORT FOLDER
"""

import signal
import socket
import sys
from pathlib import Path

import trio

from gateway.egress.limits import Limits
from gateway.egress.resolver import SystemResolver
from gateway.egress.server import EgressServer
from gateway.event_log import EventLog
from policy.engine import Engine
from policy.rules import Mode, RuleSource, RuleText, build_policy

BACKLOG = 4_096
RULES = ("pypi.org", "**.pythonhosted.org:443", "**.github.com:443", "registry.npmjs.org:443", "127.0.0.1")
"""The last one is what the load uses."""


def _engine() -> Engine:
    source = RuleSource(origin="cli", file=None, line=None)
    rules = [RuleText(text, source) for text in RULES]
    return Engine(build_policy(Mode.ALLOWLIST, preset="iterion-default", rules=rules))


async def _stop_on_signal(server: EgressServer) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            server.abort()
            return


async def main(port: int, folder: Path) -> None:
    """Serve until SIGTERM."""
    log = EventLog(folder / "events.jsonl", "0190a000-0000-7000-8000-000000000000")
    limits = Limits()
    server = EgressServer(_engine(), SystemResolver(limits=limits), log, None, limits)
    listener = socket.create_server(("127.0.0.1", port), backlog=BACKLOG)
    async with trio.open_nursery() as nursery:
        await nursery.start(log.run)
        nursery.start_soon(_stop_on_signal, server)
        await server.serve([listener])
        nursery.cancel_scope.cancel()
    log.close()


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]), Path(sys.argv[2]))
