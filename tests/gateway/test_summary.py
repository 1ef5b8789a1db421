"""What a person reads at the end of a run."""

from collections import Counter

import pytest

from gateway.egress.stats import Stats
from gateway.summary import egress_summary, format_bytes, sum_stats


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 KB"),
        (999_949, "999.9 KB"),
        (999_950, "1.0 MB"),
        (1_500_000_000, "1.5 GB"),
        (10**16, "10000.0 TB"),
    ],
)
def test_bytes_are_written_short(count: int, text: str) -> None:
    assert format_bytes(count) == text


def test_a_quiet_run_is_one_line() -> None:
    assert egress_summary(Stats()) == ["network: 0 allowed, 0 blocked; 0 B up, 0 B down"]


def test_everything_that_happened_is_said() -> None:
    stats = Stats(allowed=3, silent=2, unavailable=1, bytes_up=10, bytes_down=2_000)
    stats.blocked.update({"not_in_allowlist": 2, "address_metadata": 1})
    stats.failed.update({"dial_timeout": 1})
    assert egress_summary(stats) == [
        "network: 3 allowed, 3 blocked (2 not_in_allowlist, 1 address_metadata), 2 refused silently, "
        "1 dial_timeout; 10 B up, 2.0 KB down",
        "network: 1 refused because the gateway was at a limit",
    ]


def test_the_sandboxes_of_a_run_are_summed_up() -> None:
    first = Stats(allowed=1, blocked=Counter(a=1), silent=1, challenged=1, unavailable=1, bytes_up=10, active=1)
    second = Stats(allowed=2, blocked=Counter(a=1, b=2), failed=Counter(refused=1), bytes_down=20)
    assert sum_stats([first, second]) == Stats(
        allowed=3,
        blocked=Counter(a=2, b=2),
        silent=1,
        challenged=1,
        unavailable=1,
        failed=Counter(refused=1),
        bytes_up=10,
        bytes_down=20,
        active=1,
    )
    assert first.allowed == 1
