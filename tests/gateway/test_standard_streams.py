"""What `iterion sandbox run` makes of the standard streams it was started with: real files, real sandboxes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.real


@pytest.fixture
def places(tmp_path: Path) -> Path:
    (tmp_path / "workspace").mkdir()
    return tmp_path


def sandboxed(places: Path, script: str, *, stdin: int, stdout: int, stderr: int) -> int:
    """Run a shell script in a sandbox with these streams; returns its exit code."""
    arguments = ["sandbox", "run", "--quiet", "--", "sh", "-c", script]
    return subprocess.run(
        [sys.executable, "-c", "from gateway.cli.main import main; main()", *arguments],
        cwd=places / "workspace",
        env={**os.environ, "ITERION_HOME": str(places / "store"), "PYTHONPATH": str(ROOT)},
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        timeout=60,
        check=False,
    ).returncode


def test_a_file_at_standard_input_cannot_be_written(places: Path) -> None:
    given = places / "given"
    given.write_text("precious\n")
    with given.open("rb") as stdin, (places / "out").open("wb") as out:
        sandboxed(
            places, "echo x >/proc/self/fd/0; cat", stdin=stdin.fileno(), stdout=out.fileno(), stderr=out.fileno()
        )
    assert given.read_text() == "precious\n"


def test_a_file_at_standard_output_can_only_be_appended_to(places: Path) -> None:
    log = places / "log"
    log.write_text("before\n")
    with log.open("ab") as out, (places / "err").open("wb") as err:
        script = ": >/proc/self/fd/1; head -c 3 /proc/self/fd/1 >&2 & sleep 0.3; kill $!; echo after"
        sandboxed(places, script, stdin=subprocess.DEVNULL, stdout=out.fileno(), stderr=err.fileno())
    assert log.read_text() == "before\nafter\n"
    assert "bef" not in (places / "err").read_text()


def test_a_directory_at_standard_input_is_not_passed_on(places: Path) -> None:
    fd = os.open("/", os.O_RDONLY)
    try:
        with (places / "out").open("wb") as out:
            sandboxed(places, "ls /proc/self/fd/0/", stdin=fd, stdout=out.fileno(), stderr=subprocess.DEVNULL)
    finally:
        os.close(fd)
    assert (places / "out").read_text() == ""


def test_output_and_errors_that_go_to_one_file_keep_their_order(places: Path) -> None:
    with (places / "both").open("wb") as both:
        script = "for i in 1 2 3 4 5 6 7 8 9; do echo out $i; echo err $i >&2; done"
        sandboxed(places, script, stdin=subprocess.DEVNULL, stdout=both.fileno(), stderr=both.fileno())
    assert (places / "both").read_text() == "".join(f"out {i}\nerr {i}\n" for i in range(1, 10))


@pytest.mark.parametrize("script", ["true", "head -c 0", "read line"])
def test_what_is_not_read_of_a_file_is_left_for_the_next(places: Path, script: str) -> None:
    given = places / "given"
    given.write_text("line\n" * 100_000)
    with given.open("rb", buffering=0) as stdin:
        code = sandboxed(places, script, stdin=stdin.fileno(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        assert code == 0
        assert stdin.tell() == (5 if script == "read line" else 0)


def test_all_of_a_file_arrives(places: Path) -> None:
    given = places / "given"
    given.write_bytes(os.urandom(3_000_000))
    with given.open("rb") as stdin, (places / "out").open("wb") as out:
        assert sandboxed(places, "cat", stdin=stdin.fileno(), stdout=out.fileno(), stderr=subprocess.DEVNULL) == 0
    assert (places / "out").read_bytes() == given.read_bytes()
