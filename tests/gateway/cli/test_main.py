"""The program as a whole: its help, its mistakes, and what it does not load."""

import json
import os
import subprocess
import sys

import pytest

from tests.support.iterion import Iterion


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--help"], "Commands:"),
        (["-h"], "Commands:"),
        (["run", "--help"], "FLOW.bot"),
        (["sandbox", "--help"], "reap"),
        (["sandbox", "run", "--help"], "COMMAND"),
        (["sandbox", "reap", "--help"], "process is gone"),
        (["policy", "--help"], "check"),
        (["policy", "check", "--help"], "HOST"),
        (["--version"], "iterion"),
    ],
)
def test_help_is_0_and_on_standard_output(iterion: Iterion, arguments: list[str], said: str) -> None:
    done = iterion.run(*arguments)
    assert (done.returncode, done.stderr) == (0, b"")
    assert said in done.stdout.decode()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["frobnicate"], "frobnicate"),
        (["--frobnicate"], "--frobnicate"),
        (["run", "absent.bot"], "absent.bot"),
        (["run", "."], "'.' is a directory"),
        (["run", "--frobnicate", "x.bot"], "--frobnicate"),
        (["run", "--sandbox", "maybe", "x.bot"], "maybe"),
        (["run"], "FLOW.bot"),
        (["sandbox"], "Usage"),
        (["sandbox", "run"], "COMMAND"),
        (["sandbox", "run", "--"], "COMMAND"),
        (["sandbox", "run", "--frobnicate", "--", "true"], "--frobnicate"),
        (["sandbox", "run", "--policy", "absent.yaml", "--", "true"], "absent.yaml"),
        (["sandbox", "run", "--enforcement", "perhaps", "--", "true"], "perhaps"),
        (["sandbox", "reap", "extra"], "extra"),
        (["policy", "check", "--frobnicate", "a.com"], "--frobnicate"),
    ],
)
def test_a_mistake_on_the_command_line_is_2_and_named(iterion: Iterion, arguments: list[str], said: str) -> None:
    iterion.write("x.bot", "")
    done = iterion.run(*arguments)
    assert done.returncode == 2
    assert said in done.stderr.decode()
    assert b"Traceback" not in done.stderr
    assert done.stdout == b""
    assert not iterion.store.exists()


def test_help_loads_neither_trio_nor_the_grammar_nor_dns_nor_yaml() -> None:
    script = """
import json, os, sys
from gateway.cli.main import main
os._exit = lambda code: print(json.dumps(sorted(sys.modules)), file=sys.stderr)
sys.argv = ["iterion", "--help"]
main()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=30, check=True)
    loaded = {name.partition(".")[0] for name in json.loads(done.stderr)}
    assert loaded & {"trio", "lark", "dns", "yaml", "msgspec", "rich"} == set()


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
@pytest.mark.real
def test_closed_standard_streams_are_no_way_into_the_sandbox(iterion: Iterion, closed: tuple[int, ...]) -> None:
    inside = "for fd in 0 1 2; do readlink /proc/self/fd/$fd; done > streams; ls /proc/self/fd | wc -l > count"
    command = iterion.command("sandbox", "run", "--", "sh", "-c", inside)
    redirections = " ".join(f"{fd}>&-" for fd in closed)
    done = subprocess.run(
        ["sh", "-c", f'"$@" {redirections}', "sh", *command],
        cwd=iterion.folder,
        env=iterion.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
    streams = (iterion.folder / "streams").read_text().splitlines()
    assert all(streams[fd] == "/dev/null" for fd in closed if fd != 1)
    assert (iterion.folder / "count").read_text().strip() == "4"  # the streams, and the directory that ls reads
    assert iterion.last.record["status"] == "done"


def test_a_reader_that_goes_away_is_no_fault(iterion: Iterion) -> None:
    command = iterion.command("policy", "check", "--allow", "a.com", *["a.com"] * 20_000)
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        command,
        cwd=iterion.folder,
        env=iterion.environment,
        stdout=writer,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")
