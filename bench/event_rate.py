"""How many events a second one run can put on disk."""

import tempfile
import time
from pathlib import Path

import trio

from bench.figures import Bar, Row, medians
from gateway.event_log import EventLog, read_events
from gateway.events import NetworkAllowed

EVENTS = 100_000


async def _one_round(path: Path) -> float:
    log = EventLog(path, "0190a000-0000-7000-8000-000000000000")
    event = NetworkAllowed(
        host="api.example.com",
        port=443,
        code="allowed_by_rule",
        rule="policy.yaml:3: **.example.com",
        addresses=("192.0.2.10", "2001:db8::10"),
        dropped=(),
        address="192.0.2.10",
        protocol="connect",
        connection=1,
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(log.run)
        began = time.perf_counter()
        for number in range(EVENTS):
            log.emit(event)
            if number % 1_000 == 0:
                await trio.lowlevel.checkpoint()
        if not await log.settled(30):
            raise RuntimeError("the disk did not take the events within 30 s")
        seconds = time.perf_counter() - began
        nursery.cancel_scope.cancel()
    return EVENTS / seconds


def measure_events(rounds: int) -> list[Row]:
    """Return the rate of events that the kernel has when emit returns."""
    rates: list[float] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        for number in range(rounds):
            path = Path(folder) / f"{number}.jsonl"
            rates.append(trio.run(_one_round, path))
            written = sum(1 for line in read_events(path) if line["type"] == NetworkAllowed.type)
            if written != EVENTS:
                raise RuntimeError(f"{EVENTS} events were emitted and {written} are in the file")
    rate = medians({"iterion": rates})["iterion"]
    bar = Bar(text=">= 50,000/s", seen=rate, passed=rate >= 50_000)
    return [Row(figure="events to disk", unit="/s", ours=rate, peers={}, bars=(bar,))]
