"""Run every fuzz target for some seconds: python fuzz/run.py [--seconds N] [--jobs N] [NAME ...]

A target is a file ``fuzz/fuzz_NAME.py`` with one function ``fuzz(data: bytes) -> None`` that returns for every input,
good or bad; any exception is a finding. It may hold ``SEEDS``, a sequence of inputs to start from. Its packages are
watched by atheris where that is installed, which looks for inputs that reach new code; without it, mutations are
random. A finding is written to ``fuzz/out/NAME/`` and shown; the exit code is then 1.
"""

import argparse
import hashlib
import importlib
import os
import random
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).parent
OUT = HERE / "out"
OUR_PACKAGES = ["policy", "gateway", "drivers"]
MAX_INPUT_BYTES = 8_192
INPUT_TIMEOUT_S = 10
"One input that takes longer is a finding too."
GRACE_S = 60
"How long a target may take to start and to stop, beyond its seconds."


def targets() -> dict[str, Path]:
    """Return each target's name and file."""
    return {path.stem.removeprefix("fuzz_"): path for path in sorted(HERE.glob("fuzz_*.py"))}


def _load(path: Path) -> ModuleType:
    # An ordinary import, because atheris watches what the import system loads.
    sys.path[:0] = [str(HERE.parent), str(HERE)]
    return importlib.import_module(path.stem)


def _corpus(name: str, seeds: Sequence[bytes]) -> Path:
    """Write the seeds where the fuzzer also keeps what it finds interesting."""
    folder = OUT / name / "corpus"
    folder.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        (folder / hashlib.sha1(seed).hexdigest()).write_bytes(seed)
    return folder


def _guided(name: str, path: Path, seconds: int) -> None:
    """Fuzz with atheris; does not return."""
    import atheris

    with atheris.instrument_imports(include=[*OUR_PACKAGES, path.stem]):
        module = _load(path)
    folder = _corpus(name, getattr(module, "SEEDS", ()))
    options = {
        "max_total_time": seconds,
        "max_len": MAX_INPUT_BYTES,
        "timeout": INPUT_TIMEOUT_S,
        "artifact_prefix": f"{OUT / name}/",
        "print_final_stats": 1,
        "verbosity": 0,
    }
    atheris.Setup([sys.argv[0], *(f"-{key}={value}" for key, value in options.items()), str(folder)], module.fuzz)
    atheris.Fuzz()


def _mutate(chosen: random.Random, seed: bytes, other: bytes) -> bytes:
    data = bytearray(seed)
    for _ in range(chosen.randint(1, 6)):
        at = chosen.randint(0, len(data))
        match chosen.randint(0, 4):
            case 0:
                data[at:at] = chosen.randbytes(chosen.randint(1, 4))
            case 1:
                del data[at : at + chosen.randint(1, 8)]
            case 2:
                data[at : at + 1] = bytes([chosen.choice(b"\0\t\r\n .:/%!*[]{}\"'#-_@\xff") if at else 0])
            case 3:
                data[at:at] = other[: chosen.randint(0, len(other))]
            case _:
                data[at:at] = data[at : at + 16] * chosen.randint(1, 4)
    return bytes(data[:MAX_INPUT_BYTES])


def _random(name: str, path: Path, seconds: int) -> int:
    """Fuzz by random mutation of the seeds."""
    module = _load(path)
    run: Callable[[bytes], None] = module.fuzz
    seeds = [*getattr(module, "SEEDS", ()), b""]
    chosen = random.Random(int.from_bytes(os.urandom(8)))
    deadline = time.monotonic() + seconds
    count = 0
    while time.monotonic() < deadline:
        data = _mutate(chosen, chosen.choice(seeds), chosen.choice(seeds))
        count += 1
        try:
            run(data)
        except Exception:
            finding = OUT / name / f"crash-{hashlib.sha1(data).hexdigest()}"
            finding.parent.mkdir(parents=True, exist_ok=True)
            finding.write_bytes(data)
            traceback.print_exc()
            print(f"the input is in {finding}", file=sys.stderr)
            return 1
    print(f"stat::number_of_executed_units: {count}")
    return 0


def run_one(name: str, seconds: int) -> int:
    """Run one target in this process."""
    path = targets()[name]
    try:
        import atheris  # noqa: F401
    except ImportError:
        return _random(name, path, seconds)
    _guided(name, path, seconds)
    return 0


def _run_child(name: str, seconds: int) -> tuple[str, bool, str]:
    argv = [sys.executable, __file__, "--child", "--seconds", str(seconds), name]
    try:
        result = subprocess.run(
            argv, check=False, capture_output=True, text=True, errors="replace", timeout=seconds + GRACE_S
        )
    except subprocess.TimeoutExpired as stuck:
        return name, False, f"did not stop within {seconds + GRACE_S} s\n{stuck.stderr!r}"
    return name, result.returncode == 0, result.stdout + result.stderr


def _summary(output: str) -> str:
    for line in output.splitlines():
        if "number_of_executed_units" in line:
            return f"{int(line.rpartition(':')[2]):,} inputs"
    return ""


def main() -> int:
    """Run the targets, some at once, and print one line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60, help="how long each target runs")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many run at once")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(targets())}; all by default")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(targets()):
        parser.error(f"no target {', '.join(sorted(unknown))}: one of {', '.join(targets())}")
    if arguments.child:
        return run_one(arguments.names[0], arguments.seconds)
    failed = False
    with ThreadPoolExecutor(arguments.jobs) as pool:
        runs = [pool.submit(_run_child, name, arguments.seconds) for name in arguments.names or targets()]
        for run in runs:
            name, passed, output = run.result()
            failed = failed or not passed
            print(f"fuzz {name}: {'ok' if passed else 'FINDING'} {_summary(output)}", flush=True)
            if not passed:
                print(output[-8_000:], file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
