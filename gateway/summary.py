"""The few lines a person reads at the end of a run: what was allowed, what was blocked and why."""

from collections.abc import Iterable

from gateway.egress.stats import Stats

__all__ = ["egress_summary", "format_bytes", "sum_stats"]

UNITS = ("B", "KB", "MB", "GB", "TB")


def format_bytes(count: int) -> str:
    """Write a number of bytes in the unit that keeps it short; 1 KB is 1000 bytes."""
    value = float(count)
    for unit in UNITS[:-1]:
        if value < 999.95:
            return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} {UNITS[-1]}"


def sum_stats(every: Iterable[Stats]) -> Stats:
    """Add up the counts of several egress servers: a workflow may have several sandboxes."""
    total = Stats()
    for stats in every:
        total.allowed += stats.allowed
        total.blocked.update(stats.blocked)
        total.silent += stats.silent
        total.challenged += stats.challenged
        total.unavailable += stats.unavailable
        total.failed.update(stats.failed)
        total.bytes_up += stats.bytes_up
        total.bytes_down += stats.bytes_down
        total.active += stats.active
    return total


def egress_summary(stats: Stats) -> list[str]:
    """Say what became of the connections of one sandbox.

    Args:
        stats: the counts of its egress server.

    Returns:
        One line, and another where the gateway itself could not serve.
    """
    blocked = sum(stats.blocked.values())
    line = f"network: {stats.allowed} allowed, {blocked} blocked"
    if blocked:
        line += f" ({', '.join(f'{count} {code}' for code, count in stats.blocked.most_common())})"
    if stats.silent:
        line += f", {stats.silent} refused silently"
    if stats.failed:
        line += f", {', '.join(f'{count} {code}' for code, count in stats.failed.most_common())}"
    lines = [f"{line}; {format_bytes(stats.bytes_up)} up, {format_bytes(stats.bytes_down)} down"]
    if stats.unavailable:
        lines.append(f"network: {stats.unavailable} refused because the gateway was at a limit")
    return lines
