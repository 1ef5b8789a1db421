"""The run store: private, durable, and honest about which runs live."""

import fcntl
import json
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import msgspec
import pytest

from gateway.errors import UsageError
from gateway.store import (
    RunDirectory,
    RunStatus,
    RunStore,
    StoreError,
    hidden_directories,
    read_record,
    reap_run,
    store_home,
)


def permissions(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def rewrite_owner(run: RunDirectory, **changes: object) -> None:
    """Give the record another owner, as if another process had made it."""
    run.update(owner=msgspec.structs.replace(run.record.owner, **changes))


def abandon(run: RunDirectory) -> None:
    """Leave a run as a killed owner leaves it: no lock, a process number that means somebody else now."""
    rewrite_owner(run, start=1)
    run.close()


# -- Where ------------------------------------------------------------------------------------------------


def test_the_flag_wins_over_the_environment_and_the_default(tmp_path: Path) -> None:
    assert store_home(tmp_path, {"ITERION_HOME": "/elsewhere"}) == tmp_path
    assert store_home(None, {"ITERION_HOME": "/elsewhere"}) == Path("/elsewhere")
    assert store_home(None, {"ITERION_HOME": ""}) == Path("~/.iterion").expanduser()
    assert store_home(None, {}) == Path("~/.iterion").expanduser()
    assert store_home(Path("a/../b"), {}) == Path.cwd() / "b"


# -- Making and reading -----------------------------------------------------------------------------------


def test_a_new_run_is_private_and_complete(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "deep" / "home")
    with store.create(flow="/w/a.bot", vars={"n": 1, "tags": ["x"]}) as run:
        for path in (store.home, store.runs, run.path, run.artifacts, run.files, run.scratch):
            assert permissions(path) == 0o700
        assert permissions(run.path / "run.json") == 0o600
        assert run.events.parent == run.path
        record = store.load(run.run_id)
        assert record == run.record
        assert (record.status, record.flow, record.vars) == (
            RunStatus.RUNNING,
            "/w/a.bot",
            {"n": 1, "tags": ["x"]},
        )
        assert record.owner.pid == os.getpid()
        assert record.created_at.endswith("Z")
        assert [found.run_id for found in store.records()] == [run.run_id]


def test_a_given_identifier_is_used_once(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    store.create(run_id="nightly-1", run_name="the name").close()
    assert store.load("nightly-1").run_name == "the name"
    with pytest.raises(UsageError, match="nightly-1 exists already"):
        store.create(run_id="nightly-1")


@pytest.mark.parametrize("run_id", ["../escape", "a/b", ".", "-x"])
def test_an_unsafe_identifier_makes_and_reads_nothing(tmp_path: Path, run_id: str) -> None:
    store = RunStore(tmp_path / "home")
    with pytest.raises(UsageError, match="cannot name a directory"):
        store.create(run_id=run_id)
    with pytest.raises(UsageError, match="cannot name a directory"):
        store.load(run_id)
    assert not store.home.exists()


def test_finishing_records_the_end_and_removes_scratch_only(tmp_path: Path) -> None:
    with RunStore(tmp_path).create() as run:
        (run.scratch / "socket").touch()
        (run.files / "kept").touch()
        record = run.finish(RunStatus.FAILED, exit_code=1, error="node build failed")
        assert (record.status, record.exit_code, record.error) == (RunStatus.FAILED, 1, "node build failed")
        assert record.finished_at is not None
        assert RunStore(tmp_path).load(run.run_id) == record
        assert not run.scratch.exists()
        assert (run.files / "kept").exists()
        run.close()


def test_an_unknown_run_and_a_damaged_record_are_told_apart(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    with pytest.raises(UsageError, match="no run nowhere"):
        store.load("nowhere")
    with store.create(run_id="torn") as run:
        (run.path / "run.json").write_text('{"run_id": ')
        with pytest.raises(StoreError, match=r"torn/run\.json: cannot be read"):
            store.load("torn")
        assert list(store.records()) == []


def test_no_store_is_an_empty_store(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "none")
    assert list(store.records()) == []
    assert store.reap_stale_runs() == ()
    assert not store.home.exists()


def test_strange_names_in_the_runs_directory_are_passed_over(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    store.create(run_id="fine").close()
    (store.runs / ".DS_Store").touch()
    (store.runs / "empty").mkdir()
    assert [record.run_id for record in store.records()] == ["fine"]


def test_a_file_in_the_place_of_the_store_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "runs").touch()
    with pytest.raises(StoreError, match="home/runs: not a directory"):
        RunStore(tmp_path / "home").create()
    with pytest.raises(StoreError, match="Not a directory"):
        RunStore(tmp_path / "home" / "runs" / "x").create()


def test_a_run_that_cannot_be_recorded_leaves_nothing(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    with pytest.raises(TypeError, match="no_such_field"):
        store.create(run_id="bad", no_such_field=1)
    with pytest.raises(StoreError, match="is not Unicode text"):
        store.create(run_id="bad", flow="name-\udcff.bot")
    assert list(store.runs.iterdir()) == []


def test_a_record_that_cannot_be_replaced_stays_as_it_was(tmp_path: Path) -> None:
    with RunStore(tmp_path).create(flow="a") as run:
        before = (run.path / "run.json").read_bytes()
        (run.path / ".run.json.new").mkdir()
        with pytest.raises(StoreError, match=r"run\.json: Is a directory"):
            run.update(flow="b")
        assert (run.path / "run.json").read_bytes() == before
        assert run.record.flow == "a"


# -- Reaping ----------------------------------------------------------------------------------------------


def test_H61_a_stale_run_is_marked_and_its_scratch_removed(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    run = store.create()
    (run.scratch / "deep").mkdir()
    (run.scratch / "deep" / "key").write_text("x")
    (run.files / "kept").touch()
    abandon(run)
    (reaped,) = store.reap_stale_runs()
    assert reaped.clean
    assert reaped.path == run.path
    assert reaped.record.status is RunStatus.INTERRUPTED
    assert reaped.record.finished_at is not None
    assert store.load(run.run_id) == reaped.record
    assert not run.scratch.exists()
    assert (run.files / "kept").exists()
    assert store.reap_stale_runs() == ()


def test_H61_a_live_run_is_never_touched(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    with store.create() as locked, store.create() as living:
        rewrite_owner(locked, start=1)  # the lock alone protects it
        living.close()  # the process alone protects it
        assert store.reap_stale_runs() == ()
        assert locked.scratch.exists()
        assert living.scratch.exists()


def test_H61_a_run_of_another_host_is_never_touched(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    with store.create() as run:
        rewrite_owner(run, host="elsewhere", boot_id="another")
    assert store.reap_stale_runs() == ()


@pytest.mark.parametrize("change", [{"host": "container"}, {"boot_id": "before the reboot"}])
def test_H61_another_name_of_this_host_or_an_earlier_boot_is_reaped(tmp_path: Path, change: dict[str, object]) -> None:
    store = RunStore(tmp_path)
    with store.create() as run:
        rewrite_owner(run, **change)
    assert len(store.reap_stale_runs()) == 1


def test_H61_finished_half_made_and_damaged_runs_are_left_alone(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    with store.create() as done:
        rewrite_owner(done, start=1)
        done.finish(RunStatus.DONE, exit_code=0)
    (store.runs / "half").mkdir()
    with store.create(run_id="unlocked") as unlocked:
        rewrite_owner(unlocked, start=1)
        (unlocked.path / "lock").unlink()
    assert store.reap_stale_runs() == ()


@pytest.mark.parametrize("lock", ["absent", "free", "held"])
def test_H61_an_old_directory_without_a_record_is_removed_unless_somebody_holds_it(tmp_path: Path, lock: str) -> None:
    store = RunStore(tmp_path)
    half, recorded = store.runs / "half", store.runs / "recorded"
    (half / "scratch").mkdir(parents=True)
    recorded.mkdir()
    (recorded / "events.jsonl").touch()
    held = None
    if lock != "absent":
        held = (half / "lock").open("w")
    if lock == "held" and held is not None:
        fcntl.flock(held, fcntl.LOCK_EX)
    for path in (half, recorded):
        os.utime(path, (1, 1))
    assert store.reap_stale_runs() == ()
    assert half.exists() is (lock == "held")
    assert recorded.exists()
    if held is not None:
        held.close()


def test_H61_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    target = tmp_path / "target"
    target.touch()
    run = store.create()
    abandon(run)
    (run.path / "lock").unlink()
    (run.path / "lock").symlink_to(target)
    assert store.reap_stale_runs() == ()


def test_H61_scratch_that_is_a_link_is_unlinked_and_its_target_kept(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "home")
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").touch()
    run = store.create()
    run.scratch.rmdir()
    run.scratch.symlink_to(victim)
    abandon(run)
    assert store.reap_stale_runs()[0].clean
    assert (victim / "file").exists()
    assert not run.scratch.is_symlink()


def test_H61_a_run_that_ends_while_the_reaper_takes_its_lock_is_left_alone(tmp_path: Path) -> None:
    with RunStore(tmp_path).create() as run:
        rewrite_owner(run, start=1)
    final = msgspec.structs.replace(run.record, status=RunStatus.DONE)
    seen = iter([run.record, final])
    assert reap_run(run.path, read=lambda path: next(seen)) is None
    assert read_record(run.path) == run.record


@pytest.mark.real
def test_H61_kill_9_of_the_owner_frees_its_run_and_no_other(tmp_path: Path) -> None:
    program = textwrap.dedent(
        """
        import sys, pathlib, time
        from gateway.store import RunStore
        run = RunStore(pathlib.Path(sys.argv[1])).create(run_id=sys.argv[2])
        (run.scratch / "file").touch()
        print("made", flush=True)
        time.sleep(600)
        """
    )
    store = RunStore(tmp_path)
    children = {}
    try:
        for name in ("victim", "other"):
            child = subprocess.Popen(
                [sys.executable, "-c", program, str(tmp_path), name], stdout=subprocess.PIPE, text=True
            )
            children[name] = child
            assert child.stdout is not None
            assert child.stdout.readline() == "made\n"
        assert store.reap_stale_runs() == ()
        children["victim"].send_signal(signal.SIGKILL)
        children["victim"].wait(20)
        assert [reaped.record.run_id for reaped in store.reap_stale_runs()] == ["victim"]
        assert store.load("other").status is RunStatus.RUNNING
        assert (store.runs / "other" / "scratch" / "file").exists()
    finally:
        for child in children.values():
            child.kill()
            child.communicate()


def test_the_lock_is_not_inherited_by_programs_that_the_run_starts(tmp_path: Path) -> None:
    with RunStore(tmp_path).create() as run:
        child = subprocess.Popen(["sleep", "600"], close_fds=False)
        try:
            run.close()
            descriptor = os.open(run.path / "lock", os.O_RDWR)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.close(descriptor)
        finally:
            child.kill()
            child.wait()


def test_a_run_whose_lock_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, limits[1]))
    try:
        with pytest.raises(StoreError, match="Too many open files"):
            store.create()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert list(store.runs.iterdir()) == []


def test_the_record_is_plain_json_for_other_programs(tmp_path: Path) -> None:
    with RunStore(tmp_path).create(command=("make", "test")) as run:
        data = json.loads((run.path / "run.json").read_text())
    assert data["command"] == ["make", "test"]
    assert data["owner"]["host"] == socket.gethostname()
    assert data["status"] == "running"


def test_records_and_the_worktrees_of_others_are_hidden(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    trees = tmp_path / "worktrees"
    with store.create(workspace="/elsewhere") as run:
        assert hidden_directories(run) == (store.runs, trees)
        for name in (run.run_id, "kept", "other"):
            (trees / name / "project").mkdir(parents=True)
        assert hidden_directories(run) == (store.runs, trees / "kept", trees / "other")
    with store.create(workspace=str(trees / "kept" / "project")) as again:
        assert hidden_directories(again) == (store.runs, trees / run.run_id, trees / "other")
