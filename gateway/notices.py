"""What a run says to the person who started it: single lines on standard error, and a summary at the end."""

import contextlib
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from gateway import events as record
from gateway.egress.stats import Stats
from gateway.summary import egress_summary, sum_stats

__all__ = ["BlockedHosts", "make_notify", "printable", "show_error", "show_summary"]

MAX_BLOCKED_LINES: Final = 10


def make_notify(*, quiet: bool) -> Callable[[str], None]:
    """Return the function that shows one line, or that shows nothing."""

    def notify(line: str) -> None:
        if not quiet:
            _show(f"iterion: {line}")

    return notify


def show_error(message: str) -> None:
    """Show an error, which may have several lines; also to those who want to hear nothing else."""
    _show(f"iterion: error: {message}")


def _show(text: str) -> None:
    # What a sandboxed command wrote gets here in many ways, so everything is cleaned. A reader that has gone away is
    # no reason to stop a run.
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write("\n".join(printable(line) for line in text.split("\n")) + "\n")
        sys.stderr.flush()


class BlockedHosts:
    """Counts what was blocked, by host, port and code; subscribe ``see`` to the event log."""

    def __init__(self) -> None:
        self.counts: Final = Counter[tuple[str, str]]()

    def see(self, event: record.Event, node_id: str | None) -> None:
        """Take one event."""
        del node_id
        if isinstance(event, record.NetworkBlocked):
            host = f"[{event.host}]" if ":" in event.host else event.host
            self.counts[(host if event.port is None else f"{host}:{event.port}", event.code)] += 1

    def lines(self) -> list[str]:
        """Return one line for each, the most frequent first, at most `MAX_BLOCKED_LINES`."""
        shown = [
            f"blocked: {host} ({code})" + (f", {count} times" if count > 1 else "")
            for (host, code), count in self.counts.most_common(MAX_BLOCKED_LINES)
        ]
        rest = len(self.counts) - len(shown)
        return [*shown, f"blocked: {rest} more, see the events"] if rest else shown


def printable(text: str) -> str:
    """Return one line of text that came from inside the sandbox without what a terminal would obey; tabs stay."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character == "\t" else "\N{REPLACEMENT CHARACTER}" for character in text
    )


def show_summary(notify: Callable[[str], None], stats: Sequence[Stats], blocked: BlockedHosts, events: Path) -> None:
    """Say at the end of a run what its connections came to, and where the record is.

    Args:
        notify: shows one line.
        stats: the counts of each of the run's egress servers; none for a run without any.
        blocked: what was blocked.
        events: the path of events.jsonl.
    """
    if stats:
        for line in egress_summary(sum_stats(stats)):
            notify(line)
    for line in blocked.lines():
        notify(line)
    notify(f"events: {events}")
