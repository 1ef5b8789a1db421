"""What a benchmark reports: one row a figure, and the bars that it is held against."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

__all__ = ["Bar", "Row", "at_least", "at_most", "medians"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar: what was compared, the ratio or value that was seen, and the bound."""

    text: str
    seen: float
    passed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure of ours beside the peers'.

    Args:
        figure: what was measured.
        unit: of ours and of every peer's value.
        ours: our median.
        peers: each peer's median.
        bars: what it must reach; empty for a figure that is only shown.
        note: what a reader must know, such as a scaled-down count.
    """

    figure: str
    unit: str
    ours: float
    peers: Mapping[str, float]
    bars: tuple[Bar, ...] = ()
    note: str = ""


def medians(rounds: Mapping[str, list[float]]) -> dict[str, float]:
    """Return the median of each program's rounds."""
    return {name: median(values) for name, values in rounds.items() if values}


def _ratio(ours: float, reference: float) -> float:
    return ours / reference if reference else math.nan


def at_least(ours: float, bound: float, peer: str, peers: Mapping[str, float]) -> tuple[Bar, ...]:
    """Return the bar 'at least bound times the peer', or nothing where that peer did not run."""
    if peer not in peers:
        return ()
    ratio = _ratio(ours, peers[peer])
    return (Bar(text=f">= {bound:g}x {peer}", seen=ratio, passed=ratio >= bound),)


def at_most(ours: float, bound: float, peer: str, peers: Mapping[str, float]) -> tuple[Bar, ...]:
    """Return the bar 'at most bound times the peer', or nothing where that peer did not run."""
    if peer not in peers:
        return ()
    ratio = _ratio(ours, peers[peer])
    return (Bar(text=f"<= {bound:g}x {peer}", seen=ratio, passed=ratio <= bound),)
