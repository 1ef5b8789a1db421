"""The demo shows what it promises: one connection allowed, one blocked by name, one stopped by the kernel."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.real
def test_the_demo_shows_all_three() -> None:
    shown = subprocess.run(
        [sys.executable, ROOT / "examples/demo/demo.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert shown.returncode == 0, shown.stderr
    assert "200 hello from the test origin" in shown.stderr
    assert "403 blocked by sandbox network policy: blocked.test" in shown.stderr
    assert "192.0.2.1:443 directly: Network is unreachable" in shown.stderr
    for event in ("sandbox_egress_verified", "network_allowed", "network_blocked", "network_closed"):
        assert event in shown.stdout
