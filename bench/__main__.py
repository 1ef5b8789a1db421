"""python -m bench: one table, and the same as JSON in bench/out/. Everything stays on loopback."""

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from bench import load
from bench.decisions import measure_decisions
from bench.event_rate import measure_events
from bench.figures import Row
from bench.network import Size, measure_bulk, measure_idle, measure_tunnels
from bench.peers import OURS, OUT, PEERS, Proxy
from bench.startup import measure_startup

FIGURES = ("tunnels", "bulk", "idle", "decisions", "events", "startup")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench BENCH_ARGS=...", description=__doc__)
    parser.add_argument("--only", default=",".join(FIGURES), help=f"which of {','.join(FIGURES)}")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds, of which the median counts")
    parser.add_argument("--quick", action="store_true", help="a tenth of the load")
    parser.add_argument("--peers", default="", help="only these peers (default: all that are installed)")
    arguments = parser.parse_args()
    arguments.only = arguments.only.split(",")
    if unknown := sorted(set(arguments.only) - set(FIGURES)):
        parser.error(f"unknown figure {', '.join(unknown)}: one of {', '.join(FIGURES)}")
    return arguments


def _usable_proxies(console: Console, chosen: str) -> list[Proxy]:
    wanted = set(chosen.split(",")) if chosen else {peer.name for peer in PEERS}
    proxies = [OURS]
    for peer in PEERS:
        if (lacking := peer.missing()) is not None:
            console.print(f"{peer.name} is left out: {lacking}", style="yellow")
        elif peer.name in wanted:
            proxies.append(peer)
    return proxies


def _number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def _table(rows: list[Row]) -> Table:
    table = Table(title="iterion-sandbox: medians of interleaved rounds on this machine", title_justify="left")
    for heading in ("figure", "ours", "peers", "bar", "seen", ""):
        table.add_column(heading, justify="right" if heading in {"ours", "seen"} else "left", overflow="fold")
    for row in rows:
        peers = "\n".join(f"{name} {_number(value)}" for name, value in row.peers.items())
        table.add_row(
            row.figure + (f"\n({row.note})" if row.note else ""),
            f"{_number(row.ours)} {row.unit}",
            peers,
            "\n".join(bar.text for bar in row.bars),
            "\n".join(_number(bar.seen) for bar in row.bars),
            "\n".join("[green]pass[/green]" if bar.passed else "[red]FAIL[/red]" for bar in row.bars),
            end_section=True,
        )
    return table


def _measure(console: Console, arguments: argparse.Namespace) -> list[Row]:
    rows: list[Row] = []
    only, rounds = arguments.only, arguments.rounds
    size = Size(tunnels=300, slow_tunnels=60, bulk_bytes=200_000_000, slow_bulk_bytes=50_000_000, idle=1_000)
    size = size if arguments.quick else Size()
    file_limit = load.raise_file_limit()
    if {"tunnels", "bulk", "idle"} & set(only):
        load.build()
        proxies = _usable_proxies(console, arguments.peers)
        with load.origin() as target:
            steps: dict[str, Callable[[], list[Row]]] = {
                "tunnels": lambda: measure_tunnels(target, proxies, size, rounds),
                "bulk": lambda: measure_bulk(target, proxies, size, rounds),
                "idle": lambda: measure_idle(target, proxies, size, file_limit),
            }
            for name, step in steps.items():
                if name in only:
                    console.print(f"measuring {name} ...", style="dim")
                    rows += step()
    for name, measure in (("decisions", measure_decisions), ("events", measure_events), ("startup", measure_startup)):
        if name in only:
            console.print(f"measuring {name} ...", style="dim")
            rows += measure(rounds)
    return rows


def main() -> int:
    """Measure, print, write bench/out/latest.json; a missed bar is shown and is no error."""
    arguments = _arguments()
    notices = Console(stderr=True)
    rows = _measure(notices, arguments)
    Console(width=None if sys.stdout.isatty() else 120).print(_table(rows))
    OUT.mkdir(exist_ok=True)
    report = {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "rows": [asdict(row) for row in rows]}
    (OUT / "latest.json").write_text(json.dumps(report, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
