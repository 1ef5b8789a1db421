"""One run from its first event to its last: how it ends, whoever or whatever ends it."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from drivers.base import DriverError, SandboxLost
from gateway.errors import ConfigError, RunFailed
from gateway.event_log import EventLog, read_events
from gateway.events import RunStarted
from gateway.run import conduct_run
from gateway.store import RunDirectory, RunStatus, RunStore, StoreError
from tests.support.iterion import (
    PYTHON,
    TERMINAL_EVENTS,
    Iterion,
    answer_http,
    check_record,
    processes_with,
    tcp_server,
    wait_for_text,
    wait_until,
)

STARTED = RunStarted(name="n", flow=None, workspace="/w", worktree=None, version="0")


# The conductor alone


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[RunDirectory]:
    with RunStore(tmp_path / "store").create() as made:
        yield made


async def conduct(directory: RunDirectory, body: Callable[[EventLog], Any]) -> int:
    return await conduct_run(directory, STARTED, body, notify=lambda line: None)


def last_event(directory: RunDirectory) -> tuple[str, dict[str, Any]]:
    """Return the one terminal event, which must be the last."""
    events = read_events(directory.events)
    types = [event["type"] for event in events]
    assert types[0] == "run_started"
    assert [kind for kind in types if kind in TERMINAL_EVENTS] == types[-1:]
    return types[-1], events[-1]["data"]


@pytest.mark.parametrize("code", [0, 7, 255])
async def test_a_body_that_returns_is_a_run_that_finished(directory: RunDirectory, code: int) -> None:
    async def body(events: EventLog) -> int:
        await trio.lowlevel.checkpoint()
        return code

    assert await conduct(directory, body) == code
    kind, data = last_event(directory)
    assert (kind, data["exit_code"]) == ("run_finished", code)
    assert (directory.record.status, directory.record.exit_code) == (RunStatus.DONE, code)
    assert not directory.scratch.exists()


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (RunFailed("the reason", cure="do this"), 1, "the reason\n  do this"),
        (ConfigError("bad"), 2, "bad"),
        (DriverError("no driver"), 1, "no driver"),
        (ExceptionGroup("x", [RunFailed("first"), ExceptionGroup("y", [SandboxLost("lost")])]), 1, "lost"),
    ],
)
async def test_an_expected_error_is_shown_and_recorded(
    directory: RunDirectory, capsys: pytest.CaptureFixture[str], error: Exception, code: int, said: str
) -> None:
    async def body(events: EventLog) -> int:
        raise error

    assert await conduct(directory, body) == code
    kind, data = last_event(directory)
    assert (kind, data["error"], data["exit_code"]) == ("run_failed", said, code)
    assert (directory.record.status, directory.record.error) == (RunStatus.FAILED, said)
    assert capsys.readouterr().err == f"iterion: error: {said}\n"


async def test_a_fault_of_ours_is_shown_with_its_trace_and_recorded_without(
    directory: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    async def body(events: EventLog) -> int:
        raise ZeroDivisionError("/secret/path")

    assert await conduct(directory, body) == 1
    kind, data = last_event(directory)
    assert (kind, data["error"]) == (
        "run_failed",
        "internal error: this is a fault of iterion itself (ZeroDivisionError)",
    )
    assert "Traceback" in capsys.readouterr().err


async def test_cancellation_from_outside_is_recorded(directory: RunDirectory) -> None:
    with trio.CancelScope() as scope:

        async def body(events: EventLog) -> int:
            scope.cancel()
            await trio.lowlevel.checkpoint()
            return 0

        await conduct(directory, body)
    assert scope.cancelled_caught
    assert last_event(directory)[0] == "run_cancelled"
    assert directory.record.status is RunStatus.CANCELLED


async def test_a_failure_while_stopping_does_not_hide_that_it_was_stopped(
    directory: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    async def body(events: EventLog) -> int:
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            await trio.sleep_forever()
        finally:
            raise DriverError("it did not stop")

    assert await conduct(directory, body) == 128 + signal.SIGTERM
    kind, data = last_event(directory)
    assert (kind, data["reason"]) == ("run_cancelled", "SIGTERM")
    assert "it did not stop" in capsys.readouterr().err


async def test_a_body_that_ends_by_itself_although_it_was_stopped_has_finished(directory: RunDirectory) -> None:
    async def body(events: EventLog) -> int:
        os.kill(os.getpid(), signal.SIGTERM)
        with trio.CancelScope(shield=True):
            await trio.sleep(0.05)
        return 3

    assert await conduct(directory, body) == 3
    assert last_event(directory)[0] == "run_finished"


@pytest.mark.parametrize("fails", [False, True])
async def test_a_record_that_cannot_be_written_is_an_error_and_no_second_end(
    directory: RunDirectory, fails: bool
) -> None:
    async def body(events: EventLog) -> int:
        (directory.path / ".run.json.new").mkdir()
        if fails:
            raise RunFailed("x")
        return 0

    with pytest.raises(StoreError, match=r"run\.json"):
        await conduct(directory, body)
    assert last_event(directory)[0] == ("run_failed" if fails else "run_finished")


async def test_events_that_cannot_be_opened_are_an_error(directory: RunDirectory) -> None:
    async def body(events: EventLog) -> int:
        raise AssertionError("it must not be started")

    directory.events.mkdir()
    with pytest.raises(StoreError, match=r"events\.jsonl"):
        await conduct(directory, body)


# Signals

FLOW = """
tool a:
  command: "echo ready; sleep {seconds}"
workflow w:
  entry: a
  sandbox: auto
  a -> done
"""
UNIQUE = iter(range(1000))


def unique_seconds() -> str:
    """Return a time to sleep for that no other process sleeps for."""
    return f"1{os.getpid()}.{next(UNIQUE)}"


@contextmanager
def running(iterion: Iterion, kind: str) -> Iterator[tuple["subprocess.Popen[bytes]", str]]:
    """Start a command or a workflow that sleeps, and wait until it does; gives the mark of its processes."""
    seconds = unique_seconds()
    if kind == "sandbox":
        arguments = ["sandbox", "run", "--allow", "a.test", "--", "sh", "-c", f"echo ready >&2; sleep {seconds}"]
    else:
        iterion.write("flow.bot", FLOW.format(seconds=seconds))
        arguments = ["run", "flow.bot"]
    with iterion.start(*arguments) as process:
        assert process.stderr is not None
        wait_for_text(process.stderr, b"ready")
        wait_until(lambda: len(processes_with(seconds)) > 1)
        yield process, seconds


def children_named(pid: int, name: str) -> list[int]:
    """Return the descendants of a process that run a program."""
    found, queue = [], [pid]
    while queue:
        current = queue.pop()
        with suppress(OSError):  # it has just ended
            for task in Path(f"/proc/{current}/task").glob("*/children"):
                for child in map(int, task.read_text().split()):
                    queue.append(child)
                    if Path(f"/proc/{child}/comm").read_text().strip() == name:
                        found.append(child)
    return found


@pytest.mark.real
@pytest.mark.parametrize("kind", ["sandbox", "flow"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_a_run_in_order(iterion: Iterion, kind: str, number: signal.Signals) -> None:
    with running(iterion, kind) as (process, mark):
        process.send_signal(number)
        assert process.wait(10) == 128 + number
        assert not processes_with(mark)
    run = iterion.last
    check_record(run, "cancelled")
    assert run.of("run_cancelled")[0]["reason"] == number.name
    assert run.types[-2] == "sandbox_removed"
    assert run.of("sandbox_removed")[0]["clean"] is True
    if kind == "flow":
        assert run.of("node_finished")[0]["status"] == "cancelled"


@pytest.mark.real
def test_ctrl_c_reaches_the_whole_process_group_and_changes_nothing(iterion: Iterion) -> None:
    with running(iterion, "sandbox") as (process, mark):
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(10) == 130
        assert not processes_with(mark)
    check_record(iterion.last, "cancelled")


@pytest.mark.real
def test_a_second_signal_does_not_wait(iterion: Iterion) -> None:
    with running(iterion, "sandbox") as (process, mark):
        for pid in children_named(process.pid, "bwrap"):
            os.kill(pid, signal.SIGSTOP)  # so that the end of the sandbox takes its time
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        wait_for_text(process.stderr, b"SIGINT: stopping")
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
        assert time.monotonic() - began < 2
        wait_until(lambda: not processes_with(mark), 2)
    run = iterion.last
    check_record(run, "cancelled")
    assert run.of("run_cancelled")[0]["reason"] == "SIGINT"


@pytest.mark.real
@pytest.mark.parametrize("delay_ms", range(0, 400, 25))
def test_a_signal_at_any_moment_of_the_start_leaves_nothing(iterion: Iterion, delay_ms: int) -> None:
    mark = unique_seconds()
    with iterion.start("sandbox", "run", "--allow", "a.test", "--", "sleep", mark) as process:
        time.sleep(delay_ms / 1000)
        process.send_signal(signal.SIGTERM)
        code = process.wait(10)
        assert not processes_with(mark)
    assert code in (143, -signal.SIGTERM)  # the latter before the program could say what it does with a signal
    for run in iterion.runs():
        if run.record["status"] != "running":  # then the next start reaps it
            check_record(run, "cancelled")
    assert iterion.run("sandbox", "reap").returncode == 0
    assert {run.record["status"] for run in iterion.runs()} <= {"cancelled", "interrupted"}


@pytest.mark.real
@pytest.mark.parametrize("delay_ms", range(150, 500, 25))
def test_a_workflow_that_is_stopped_at_any_moment_leaves_no_worktree(iterion: Iterion, delay_ms: int) -> None:
    mark = unique_seconds()
    flow = FLOW.format(seconds=mark).replace("  sandbox: auto", "  sandbox: auto\n  worktree: auto")
    iterion.write("flow.bot", flow)
    git = ("git", "-c", "user.name=Jo", "-c", "user.email=jo@example.com")
    for arguments in (("init", "-q", "-b", "main"), ("add", "."), ("commit", "-q", "-m", "first")):
        subprocess.run([*git, *arguments], cwd=iterion.folder, env=iterion.environment, check=True)
    with iterion.start("run", "flow.bot") as process:
        time.sleep(delay_ms / 1000)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) in (143, -signal.SIGTERM)
        assert not processes_with(mark)
    assert not list((iterion.store / "worktrees").glob("*"))
    branches = subprocess.run(["git", "branch"], cwd=iterion.folder, capture_output=True, text=True, check=True)
    assert branches.stdout == "* main\n"
    for run in iterion.runs():
        if run.record["status"] != "running":
            check_record(run, "cancelled")


@pytest.mark.real
@pytest.mark.parametrize("attempt", range(5))
def test_a_signal_at_the_moment_of_the_end_is_one_or_the_other(iterion: Iterion, attempt: int) -> None:
    with iterion.start("sandbox", "run", "--", "sh", "-c", "echo ready") as process:
        assert process.stdout is not None
        wait_for_text(process.stdout, b"ready")
        time.sleep(attempt / 1000)
        process.send_signal(signal.SIGTERM)
        code = process.wait(10)
    run = iterion.last
    assert (code, run.record["status"]) in ((0, "done"), (143, "cancelled"), (-15, "done"))


# H61: killed with -9

TRAFFIC = """
import os, sys, urllib.request
while True:
    urllib.request.urlopen(sys.argv[1], timeout=10).read()
    os.write(1, b"x")
"""


@pytest.mark.real
@pytest.mark.parametrize("seen", [1, 20, 150])
def test_H61_killed_during_traffic_no_event_is_lost_and_no_process_lives(iterion: Iterion, seen: int) -> None:
    mark = unique_seconds()
    with tcp_server(answer_http) as port:
        rules = ("--allow", "a.test", "--allow", "127.0.0.1", "--resolve", "a.test=127.0.0.1")
        command = (PYTHON, "-c", TRAFFIC, f"http://a.test:{port}/", mark)
        with iterion.start("sandbox", "run", *rules, "--", *command) as process:
            assert process.stdout is not None
            answered = len(wait_for_text(process.stdout, b"x" * min(seen, 1)))
            while answered < seen:
                answered += len(os.read(process.stdout.fileno(), 4096))
            process.kill()
            wait_until(lambda: not processes_with(mark), 2)
            answered += len(process.stdout.read())
    [run] = iterion.runs()
    assert len(run.of("network_allowed")) >= answered >= seen
    assert [event["seq"] for event in run.events] == list(range(1, len(run.events) + 1))
    assert run.record["status"] == "running"
    done = iterion.run("sandbox", "reap")
    assert f"{run.record['run_id']} ({run.record['run_name']}): interrupted" in done.stdout.decode()
    [run] = iterion.runs()
    assert run.record["status"] == "interrupted"
    assert not (run.path / "scratch").exists()


@pytest.mark.real
def test_H61_the_next_start_cleans_up_and_leaves_the_living_alone(iterion: Iterion) -> None:
    with running(iterion, "sandbox") as (dead, mark):
        dead.kill()
        dead.wait(10)
        wait_until(lambda: not processes_with(mark), 2)
    with running(iterion, "flow") as (living, mark):
        assert [run.record["status"] for run in iterion.runs()] == ["interrupted", "running"]
        assert iterion.run("sandbox", "reap").stdout == b"0 stale runs cleaned up\n"
        assert processes_with(mark)
        assert (iterion.runs()[1].path / "scratch").exists()
        living.send_signal(signal.SIGINT)
        assert living.wait(10) == 130


# A sandbox that dies by itself


@pytest.mark.real
@pytest.mark.parametrize("kind", ["sandbox", "flow"])
def test_a_sandbox_that_is_killed_fails_the_run_at_once(iterion: Iterion, kind: str) -> None:
    with running(iterion, kind) as (process, mark):
        for pid in children_named(process.pid, "bwrap"):
            os.kill(pid, signal.SIGKILL)
        assert process.stderr is not None
        said = process.stderr.read().decode()
        assert process.wait(10) == 1
        assert not processes_with(mark)
    assert "the bubblewrap sandbox died: killed by SIGKILL" in said
    assert "Traceback" not in said
    run = iterion.last
    check_record(run, "failed")
    assert len(run.of("sandbox_lost")) == 1
    assert "SIGKILL" in run.of("sandbox_lost")[0]["error"]
    assert "the bubblewrap sandbox died" in run.of("run_failed")[0]["error"]


@pytest.mark.real
@pytest.mark.parametrize("attempt", range(4))
def test_a_sandbox_that_is_killed_as_its_command_ends(iterion: Iterion, attempt: int) -> None:
    with iterion.start("sandbox", "run", "--", "sh", "-c", "echo ready") as process:
        assert process.stdout is not None
        wait_for_text(process.stdout, b"ready")
        time.sleep(attempt / 2000)
        with suppress(ProcessLookupError):
            for pid in children_named(process.pid, "bwrap")[:1]:
                os.kill(pid, signal.SIGKILL)
        code = process.wait(10)
    run = iterion.last
    assert (code, run.record["status"]) in ((0, "done"), (1, "failed"))
    assert len(run.of("sandbox_lost")) == (code == 1)
