"""The time of a whole `iterion sandbox run -- true`, beside the npm package sandbox-runtime doing the same."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.figures import Row, at_most, medians
from bench.peers import OUT

SRT = OUT / "peers/srt/node_modules/@anthropic-ai/sandbox-runtime/dist/cli.js"
RUN_TIMEOUT_S = 60


def srt_missing() -> str | None:
    """Return what sandbox-runtime lacks here, or None."""
    lacking = [name for name in ("node", "bwrap", "socat", "rg") if shutil.which(name) is None]
    if lacking:
        return "missing: " + ", ".join(lacking) + " (apt-get install bubblewrap socat ripgrep nodejs)"
    return None if SRT.exists() else "make bench-peers"


def _seconds(argv: Sequence[str], folder: str, home: str) -> float:
    environment = {"PATH": os.environ["PATH"], "HOME": home, "ITERION_HOME": f"{home}/iterion"}
    began = time.perf_counter()
    subprocess.run(argv, cwd=folder, env=environment, check=True, capture_output=True, timeout=RUN_TIMEOUT_S)
    return time.perf_counter() - began


def measure_startup(rounds: int) -> list[Row]:
    """Return the whole-process time of a command that does nothing, in seconds."""
    ours = [str(Path(sys.executable).parent / "iterion"), "sandbox", "run", "--allow", "example.com", "--", "true"]
    programs: dict[str, list[str]] = {"iterion": ours}
    note = ""
    if (lacking := srt_missing()) is None:
        programs["srt"] = ["node", str(SRT), "true"]
    else:
        note = f"srt: {lacking}"
    if shutil.which("bwrap"):
        programs["bare bwrap"] = ["bwrap", "--ro-bind", "/", "/", "--unshare-all", "true"]
    programs["iterion --help"] = [ours[0], "--help"]
    seen: dict[str, list[float]] = {name: [] for name in programs}
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, tempfile.TemporaryDirectory(prefix="bench-") as home:
        for round_number in range(rounds + 1):
            for name, argv in programs.items():
                seconds = _seconds(argv, folder, home)
                if round_number > 0:  # the first only warms the page cache
                    seen[name].append(seconds)
    values = medians(seen)
    startup = values.pop("iterion")
    return [
        Row(
            figure="sandbox run -- true",
            unit="s",
            ours=startup,
            peers=values,
            bars=at_most(startup, 0.8, "srt", values),
            note=note,
        )
    ]
