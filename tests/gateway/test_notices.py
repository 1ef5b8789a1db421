"""What a run says to the person who started it, and what must never reach their terminal."""

import io
import sys
from pathlib import Path

import pytest

from gateway.egress.stats import Stats
from gateway.events import Event, NetworkBlocked, RunCancelled
from gateway.notices import MAX_BLOCKED_LINES, BlockedHosts, make_notify, printable, show_error, show_summary


def blocked(host: str, port: int | None = 443, code: str = "not_in_allowlist") -> Event:
    return NetworkBlocked(
        host=host, reason="r", run_id="x", port=port, code=code, rule=None, addresses=(), connection=1
    )


def test_a_notice_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    make_notify(quiet=False)("hello")
    make_notify(quiet=True)("nobody hears this")
    assert capsys.readouterr() == ("", "iterion: hello\n")


def test_errors_are_shown_with_all_their_lines(capsys: pytest.CaptureFixture[str]) -> None:
    show_error("the reason\n  the cure")
    assert capsys.readouterr().err == "iterion: error: the reason\n  the cure\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain \u00e9 \u6f22", "plain \u00e9 \u6f22"),
        ("a\tb", "a\tb"),
        ("\x1b[31mred\x07", "\ufffd[31mred\ufffd"),
        ("\x9b31m", "\ufffd31m"),
        ("over\rwritten", "over\ufffdwritten"),
        ("\u202eesrever", "\ufffdesrever"),
        ("\u2028line", "\ufffdline"),
        ("\udcff", "\ufffd"),
    ],
)
def test_what_a_terminal_would_obey_is_replaced(text: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert printable(text) == shown
    make_notify(quiet=False)(text)
    show_error(text)
    assert capsys.readouterr().err == f"iterion: {shown}\niterion: error: {shown}\n"


class Broken(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


@pytest.mark.parametrize("closed", [False, True])
def test_nobody_reading_is_no_failure(monkeypatch: pytest.MonkeyPatch, closed: bool) -> None:
    stream = Broken()
    if closed:
        stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    make_notify(quiet=False)("x")
    show_error("x")


def test_blocked_hosts_are_counted_and_the_most_frequent_come_first() -> None:
    hosts = BlockedHosts()
    for event in (
        blocked("a.test"),
        blocked("b.test"),
        blocked("b.test"),
        blocked("::1", 80),
        blocked("x", None, "bad"),
    ):
        hosts.see(event, None)
    hosts.see(RunCancelled(reason="x", duration_ms=1), None)
    assert hosts.lines() == [
        "blocked: b.test:443 (not_in_allowlist), 2 times",
        "blocked: a.test:443 (not_in_allowlist)",
        "blocked: [::1]:80 (not_in_allowlist)",
        "blocked: x (bad)",
    ]


def test_a_long_list_is_cut() -> None:
    hosts = BlockedHosts()
    for number in range(MAX_BLOCKED_LINES + 3):
        hosts.see(blocked(f"h{number}.test"), None)
    assert len(hosts.lines()) == MAX_BLOCKED_LINES + 1
    assert hosts.lines()[-1] == "blocked: 3 more, see the events"


def test_the_summary_ends_with_the_path_of_the_record() -> None:
    hosts = BlockedHosts()
    hosts.see(blocked("a.test"), None)
    lines: list[str] = []
    show_summary(lines.append, [Stats(allowed=1), Stats(allowed=2)], hosts, Path("/x/events.jsonl"))
    assert lines == [
        "network: 3 allowed, 0 blocked; 0 B up, 0 B down",
        "blocked: a.test:443 (not_in_allowlist)",
        "events: /x/events.jsonl",
    ]


def test_a_run_without_a_proxy_has_no_network_line() -> None:
    lines: list[str] = []
    show_summary(lines.append, [], BlockedHosts(), Path("/x/events.jsonl"))
    assert lines == ["events: /x/events.jsonl"]
