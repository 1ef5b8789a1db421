"""Figures of the data path: new tunnels, one bulk tunnel, idle tunnels; ours and every peer's, interleaved."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from bench import load
from bench.figures import Bar, Row, at_least, at_most, medians
from bench.peers import Proxy
from bench.processes import Running

DIRECT = "direct"
OURS = "iterion"


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured in one round."""

    tunnels: int = 2_000
    concurrency: int = 16
    slow_tunnels: int = 400
    "Tunnels of a proxy that makes fewer than some hundred a second."
    bulk_bytes: int = 1_500_000_000
    slow_bulk_bytes: int = 300_000_000
    idle: int = 10_000


SLOW = frozenset({"mitmproxy"})
SLOW_BULK = frozenset({"mitmproxy", "tinyproxy", "proxy.py"})


@contextmanager
def _all_running(proxies: Sequence[Proxy]) -> Iterator[dict[str, Running | None]]:
    with ExitStack() as stack:
        programs: dict[str, Running | None] = {DIRECT: None}
        for proxy in proxies:
            programs[proxy.name] = stack.enter_context(proxy.run())
        yield programs


def _split(values: dict[str, float]) -> tuple[float, dict[str, float]]:
    peers = {name: value for name, value in values.items() if name != OURS}
    return values[OURS], peers


def measure_tunnels(target: load.Origin, proxies: Sequence[Proxy], size: Size, rounds: int) -> list[Row]:
    """Return the rate of new tunnels and the 99th percentile of the time one takes."""
    rates: dict[str, list[float]] = {}
    tails: dict[str, list[float]] = {}
    failed: dict[str, int] = {}
    with _all_running(proxies) as programs:
        for name, program in programs.items():
            load.tunnels(program, target, 100, size.concurrency)  # a first, uncounted contact
            failed[name] = 0
        for _ in range(rounds):
            for name, program in programs.items():
                count = size.slow_tunnels if name in SLOW else size.tunnels
                answer = load.tunnels(program, target, count, size.concurrency)
                rates.setdefault(name, []).append(answer["per_second"])
                tails.setdefault(name, []).append(answer["p99_ms"])
                failed[name] += answer["failed"]
    ours, peers = _split(medians(rates))
    ours_tail, peer_tails = _split(medians(tails))
    note = ", ".join(f"{name}: {count} failed" for name, count in failed.items() if count)
    bars = [
        at_least(ours, bound, peer, peers) for bound, peer in ((0.8, "squid"), (1.2, "proxy.py"), (10, "mitmproxy"))
    ]
    return [
        Row(figure="new tunnels", unit="/s", ours=ours, peers=peers, bars=sum(bars, ()), note=note),
        Row(
            figure="new tunnels, p99",
            unit="ms",
            ours=ours_tail,
            peers=peer_tails,
            bars=at_most(ours_tail, 2, "squid", peer_tails),
        ),
    ]


def measure_bulk(target: load.Origin, proxies: Sequence[Proxy], size: Size, rounds: int) -> list[Row]:
    """Return the rate of one download through one tunnel, and the proxy's CPU time for it."""
    rates: dict[str, list[float]] = {}
    costs: dict[str, list[float]] = {}
    with _all_running(proxies) as programs:
        for _ in range(rounds):
            for name, program in programs.items():
                answer = load.bulk(program, target, size.slow_bulk_bytes if name in SLOW_BULK else size.bulk_bytes)
                _require_complete(name, answer)
                rates.setdefault(name, []).append(answer["mb_per_second"])
                if program is not None:
                    costs.setdefault(name, []).append(answer["cpu_seconds"] / answer["bytes"] * 1e9)
    ours, peers = _split(medians(rates))
    cost, peer_costs = _split(medians(costs))
    bars = [at_least(ours, bound, peer, peers) for bound, peer in ((1.2, "squid"), (4, "tinyproxy"), (0.5, DIRECT))]
    return [
        Row(figure="one tunnel, bulk", unit="MB/s", ours=ours, peers=peers, bars=sum(bars, ())),
        Row(
            figure="one tunnel, CPU per GB",
            unit="s",
            ours=cost,
            peers=peer_costs,
            bars=at_most(cost, 1, "squid", peer_costs),
        ),
    ]


def _require_complete(name: str, answer: dict[str, Any]) -> None:
    if not answer["complete"]:
        raise RuntimeError(f"{name}: the download ended after {answer['bytes']} bytes")


def measure_idle(target: load.Origin, proxies: Sequence[Proxy], size: Size, file_limit: int) -> list[Row]:
    """Return the resident memory of a tunnel that only waits; each proxy is started anew for it."""
    fits = (file_limit - 200) // 2  # two descriptors a tunnel, and some for the rest
    wanted = min(size.idle, fits)
    each: dict[str, float] = {}
    notes = [f"{wanted:,} held"]
    if wanted < size.idle:
        notes.append(f"not {size.idle:,}: a process may open {file_limit:,} files here")
    for proxy in proxies:
        count = min(wanted, proxy.max_idle)
        with proxy.run() as program:
            load.tunnels(program, target, 200, size.concurrency)  # code and caches are there before it is measured
            answer = load.idle(program, target, count)
        each[proxy.name] = answer["bytes_each"] / 1e3
        if answer["alive"] < count:
            notes.append(f"{proxy.name}: {answer['alive']:,} of {count:,} stayed")
        elif count < wanted:
            notes.append(f"{proxy.name}: {count:,}")
        if proxy.name == OURS:
            alive = answer["alive"]
    ours, peers = _split(each)
    bars = (
        Bar(text="<= 25 KB each", seen=ours, passed=ours <= 25),
        Bar(text=f"{wanted:,} stay open", seen=alive, passed=alive >= wanted),
    )
    return [Row(figure="an idle tunnel, resident", unit="KB", ours=ours, peers=peers, bars=bars, note="; ".join(notes))]
