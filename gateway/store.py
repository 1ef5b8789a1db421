"""The run store: one private directory for each run, and a record that survives whoever wrote it.

    <home>/runs/<run-id>/run.json      the record, replaced as a whole
                         events.jsonl  what happened
                         artifacts/    what nodes publish
                         files/        what belongs to the run and stays (a worktree, scripts)
                         scratch/      what must be gone when the run is over
                         lock          held (flock) for as long as the owner lives

The lock is what tells a live run from a stale one: the kernel releases it however the owner ends, and nobody
else can hold it. A reaper takes the lock before it judges, so that two of them, or a reaper and a run that is
just being made, never work on one run together. The owner's identity in the record guards the rest: a record
of another host is left alone, because its locks may not be visible here.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from gateway.errors import IterionError, UsageError
from gateway.process_identity import Owner, boot_id, current_owner
from gateway.remove_tree import remove_tree
from gateway.run_ids import InvalidRunId, new_run_id, new_run_name, validate_run_id

__all__ = [
    "ReapedRun",
    "RunDirectory",
    "RunRecord",
    "RunStatus",
    "RunStore",
    "StoreError",
    "hidden_directories",
    "reap_run",
    "store_home",
]

HOME_VARIABLE = "ITERION_HOME"
HALF_MADE_AGE_S: Final = 60.0
"How old a run's directory without a record must be, so that none that is just being made is taken for abandoned."
_DIRECTORY_MODE = 0o700
_FILE_MODE = 0o600


class StoreError(IterionError):
    """The run store cannot be read or written; the message names the path."""


class RunStatus(StrEnum):
    """How far a run got. ``INTERRUPTED``: its owner vanished while it ran."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"


class RunRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What run.json holds. Times are RFC 3339, UTC, milliseconds."""

    run_id: str
    run_name: str
    status: RunStatus
    owner: Owner
    created_at: str
    finished_at: str | None = None
    flow: str | None = None
    "The workflow file, absolute; None for a single command."
    command: tuple[str, ...] | None = None
    vars: Mapping[str, Any] = msgspec.field(default_factory=dict)
    workspace: str | None = None
    worktree: str | None = None
    branch: str | None = None
    sandbox: Mapping[str, Any] | None = None
    "A summary of the resolved sandbox: mode, source, driver, image, network mode."
    exit_code: int | None = None
    error: str | None = None


def store_home(store_dir: Path | None, environ: Mapping[str, str]) -> Path:
    """Return the absolute directory that holds the store.

    Args:
        store_dir: what the command line says, or None.
        environ: the environment; ``ITERION_HOME`` counts when the command line is silent.
    """
    chosen = store_dir or Path(environ.get(HOME_VARIABLE) or "~/.iterion")
    return Path(os.path.abspath(chosen.expanduser()))


def hidden_directories(directory: "RunDirectory") -> tuple[Path, ...]:
    """Return what no sandbox of a run may see of the store: every run's record, and the worktrees of other runs.

    A worktree that was kept, and that this run was started in, counts as its own.
    """
    workspace = directory.record.workspace
    places = (directory.worktrees / directory.run_id, *((Path(workspace),) if workspace else ()))
    worktrees = _children(directory.worktrees)
    others = [path for path in worktrees if not any(place.is_relative_to(path) for place in places)]
    if len(others) == len(worktrees):
        return (directory.path.parent, directory.worktrees)  # with those that other runs will make
    return (directory.path.parent, *others)


def _children(path: Path) -> list[Path]:
    try:
        return sorted(path.iterdir())
    except OSError:
        return []


def utc_now() -> str:
    """Return the time of the system clock: RFC 3339, UTC, milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class RunDirectory:
    """A run that this process owns. Closing it releases the lock; it is a context manager.

    ``record`` is what run.json holds.
    """

    def __init__(self, path: Path, record: RunRecord, lock_fd: int) -> None:
        self.path: Final = path
        self.record = record
        self._lock_fd = lock_fd

    @property
    def run_id(self) -> str:
        """The run's identifier, which is also the name of its directory."""
        return self.record.run_id

    @property
    def home(self) -> Path:
        """The home directory of the store."""
        return self.path.parent.parent

    @property
    def worktrees(self) -> Path:
        """Where the runs of this store have their git worktrees."""
        return self.home / "worktrees"

    @property
    def events(self) -> Path:
        """Where the run's events go."""
        return self.path / "events.jsonl"

    @property
    def artifacts(self) -> Path:
        """Where nodes publish artifacts."""
        return self.path / "artifacts"

    @property
    def files(self) -> Path:
        """Where files of the run are kept."""
        return self.path / "files"

    @property
    def scratch(self) -> Path:
        """Where files live that are removed when the run is over, even if its owner was killed."""
        return self.path / "scratch"

    def update(self, **changes: Any) -> RunRecord:
        """Replace fields of the record, durably.

        Args:
            changes: fields of RunRecord and their new values.

        Returns:
            The new record.

        Raises:
            StoreError: run.json cannot be written; the old record is still there.
        """
        record = msgspec.structs.replace(self.record, **changes)
        _write_record(self.path, record)
        self.record = record
        return record

    def finish(self, status: RunStatus, *, exit_code: int, error: str | None = None) -> RunRecord:
        """Record how the run ended, and remove its scratch directory.

        Raises:
            StoreError: run.json cannot be written.
        """
        remove_tree(self.scratch)
        return self.update(status=status, exit_code=exit_code, error=error, finished_at=utc_now())

    def close(self) -> None:
        """Release the lock. Closing twice does nothing."""
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class ReapedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run whose owner was gone: its new record, its directory, and whether its scratch files are gone."""

    record: RunRecord
    path: Path
    clean: bool


class RunStore:
    """All runs below one home directory."""

    def __init__(self, home: Path) -> None:
        """Take the absolute home directory; nothing is made before the first run is."""
        self.home: Final = home
        self.runs: Final = home / "runs"

    def create(self, *, run_id: str | None = None, **fields: Any) -> RunDirectory:
        """Make the directory of a new run, locked and with status ``running``.

        Args:
            run_id: a given identifier; a fresh one when None.
            fields: further fields of RunRecord (flow, command, vars, workspace, run_name...).

        Raises:
            UsageError: the given identifier is not a safe name, or exists.
            StoreError: the directory cannot be made.
        """
        chosen = new_run_id() if run_id is None else validate_run_id(run_id)
        path = self.runs / chosen
        try:
            for parent in (self.home, self.runs):  # mkdir gives missing parents the default mode
                parent.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
            path.mkdir(mode=_DIRECTORY_MODE)
        except FileExistsError:
            if not self.runs.is_dir():
                raise StoreError(f"{self.runs}: not a directory", cure="choose another --store-dir") from None
            raise UsageError(
                f"run {chosen} exists already in {self.runs}", cure="choose another --run-id, or leave it out"
            ) from None
        except OSError as error:
            raise _store_error(path, error) from error
        return self._fill(path, chosen, fields)

    def _fill(self, path: Path, run_id: str, fields: Mapping[str, Any]) -> RunDirectory:
        lock_fd = -1
        try:
            lock_fd = _lock(path, create=True)
            for name in ("artifacts", "files", "scratch"):
                (path / name).mkdir(mode=_DIRECTORY_MODE)
            merged: dict[str, Any] = {"run_name": new_run_name(), **fields}
            record = RunRecord(
                run_id=run_id, status=RunStatus.RUNNING, owner=current_owner(), created_at=utc_now(), **merged
            )
            _write_record(path, record)
        except BaseException as error:
            if lock_fd >= 0:
                os.close(lock_fd)
            remove_tree(path)
            if isinstance(error, OSError):
                raise _store_error(path, error) from error
            raise
        return RunDirectory(path, record, lock_fd)

    def load(self, run_id: str) -> RunRecord:
        """Read the record of one run.

        Raises:
            UsageError: the identifier is not a safe name, or no such run.
            StoreError: run.json cannot be read.
        """
        path = self.runs / validate_run_id(run_id)
        try:
            return read_record(path)
        except FileNotFoundError:
            raise UsageError(f"no run {run_id} in {self.runs}") from None
        except (OSError, msgspec.DecodeError) as error:
            raise StoreError(f"{path / 'run.json'}: cannot be read: {error}") from error

    def records(self) -> Iterator[RunRecord]:
        """Yield the readable records, oldest identifier first; directories without one are passed over."""
        for path in self._directories():
            try:
                yield read_record(path)
            except (OSError, msgspec.DecodeError):
                continue

    def reap_stale_runs(self) -> tuple[ReapedRun, ...]:
        """Mark runs whose owner is gone as interrupted, and remove their scratch files.

        Never touches a run whose lock is held, one of another host, or one whose owner lives. Several
        processes may do this at once.

        Returns:
            What was marked, so that the caller can remove what else belonged to those runs.
        """
        reaped = []
        for path in self._directories():
            try:
                run = reap_run(path)
            except FileNotFoundError:
                _remove_half_made(path)
                continue
            except (OSError, StoreError, msgspec.DecodeError):
                continue  # half made, of somebody else, or on a full disk: left for the next time
            if run is not None:
                reaped.append(run)
        return tuple(reaped)

    def _directories(self) -> Iterator[Path]:
        try:
            names = sorted(os.listdir(self.runs))
        except OSError:
            return
        for name in names:
            try:
                yield self.runs / validate_run_id(name)
            except InvalidRunId:
                continue


def read_record(path: Path) -> RunRecord:
    """Read the record in a run's directory.

    Raises:
        OSError: there is none, or it cannot be read.
        msgspec.DecodeError: it is damaged.
    """
    return msgspec.json.decode((path / "run.json").read_bytes(), type=RunRecord)


def reap_run(path: Path, *, read: Callable[[Path], RunRecord] = read_record) -> ReapedRun | None:
    """Mark one run as interrupted and remove its scratch files, if its owner is gone.

    Args:
        path: the run's directory.
        read: reads its record.

    Returns:
        None if the run lives or has ended, else what was marked.

    Raises:
        OSError, msgspec.DecodeError: the lock or the record is missing or damaged.
        StoreError: the record cannot be written.
    """
    record = read(path)
    if not _is_candidate(record):
        return None
    try:
        lock_fd = _lock(path, create=False)
    except BlockingIOError:
        return None
    try:
        record = read(path)  # it may have ended, or been reaped, before we had the lock
        if not _is_candidate(record):
            return None
        record = msgspec.structs.replace(record, status=RunStatus.INTERRUPTED, finished_at=utc_now())
        from drivers.git_guard import remove_planted_since  # only here: starting must be quick

        remove_planted_since(path / "scratch")
        clean = remove_tree(path / "scratch")
        _write_record(path, record)
        return ReapedRun(record=record, path=path, clean=clean)
    finally:
        os.close(lock_fd)


def _remove_half_made(path: Path) -> None:
    """Remove the directory of a run whose owner was killed before it had written a record."""
    with contextlib.suppress(OSError):
        if any((path / name).exists() for name in ("run.json", "events.jsonl")):
            return
        if time.time() - path.stat().st_mtime < HALF_MADE_AGE_S:
            return
        with contextlib.suppress(FileNotFoundError):  # it did not get as far as the lock
            os.close(_lock(path, create=False))
        remove_tree(path)


def _is_candidate(record: RunRecord) -> bool:
    if record.status is not RunStatus.RUNNING or record.owner.is_alive():
        return False
    mine = current_owner()
    # One boot is one kernel, whatever the host is called (containers): its locks can be trusted.
    return record.owner.host == mine.host or (bool(mine.boot_id) and record.owner.boot_id == boot_id())


def _lock(path: Path, *, create: bool) -> int:
    """Take the lock of a run; BlockingIOError when somebody holds it."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT | os.O_EXCL if create else 0)
    lock_fd = os.open(path / "lock", flags, _FILE_MODE)
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(lock_fd)
        raise
    return lock_fd


def _write_record(path: Path, record: RunRecord) -> None:
    """Replace run.json so that a reader, or a power cut, sees the old record or the new one."""
    try:
        data = msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"
    except UnicodeEncodeError as error:
        raise StoreError(
            f"{path / 'run.json'}: {error.object[:80]!r} is not Unicode text",
            cure="write names and values in UTF-8",
        ) from None
    new = path / ".run.json.new"
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, _FILE_MODE)
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path / "run.json")
        directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        raise _store_error(path / "run.json", error) from error


def _store_error(path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"{path}: {error.strerror or error}",
        cure=f"free some space or fix its permissions, or choose another --store-dir or {HOME_VARIABLE}",
    )
