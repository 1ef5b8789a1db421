"""One run from its first event to its last: the nursery that owns it, its signals and its outcome."""

import gc
import sys
import traceback
from collections.abc import Awaitable, Callable, Sequence
from signal import Signals
from typing import Final

import trio

from gateway import events as record
from gateway.errors import exit_code_of, is_expected, primary_error
from gateway.event_log import EventLog
from gateway.notices import show_error
from gateway.signals import cancel_on_signal, note_signals
from gateway.store import RunDirectory, RunStatus, StoreError

__all__ = ["conduct_run"]

OBJECTS_BETWEEN_COLLECTIONS: Final = 50_000
"Of the youngest generation; Python's 700 would collect hundreds of times in what is still to be imported."
INTERNAL_ERROR: Final = "internal error: this is a fault of iterion itself"


async def conduct_run(
    directory: RunDirectory,
    started: record.RunStarted,
    body: Callable[[EventLog], Awaitable[int]],
    *,
    notify: Callable[[str], None],
    at_once: Callable[[], None] = lambda: None,
    before: Sequence[Signals] = (),
) -> int:
    """Carry out one run and record how it ended.

    Args:
        directory: the run's place in the store; its record is brought up to date, it is not closed.
        started: the run's first event.
        body: does the work under the run's one cancel scope and returns the exit code.
        notify: shows one line to the person who started the run; errors are shown without it.
        at_once: what must still be done when a second signal ends the process without waiting for anything.
        before: stop signals that came before this was called.

    Returns:
        The exit code: what ``body`` returned, the code of the error that it raised, or 128 plus the number of the
        signal that stopped it. No exception of ``body`` leaves this function; one that nobody expects is shown
        with its trace.

    Raises:
        StoreError: the record cannot be opened, or its end cannot be written.

    A stop signal cancels ``body``, which has the time it needs to clean up; a second one ends the process at
    once, and the kernel ends the sandbox with it. Cancellation of this function is recorded like a signal.
    """
    _start_collecting()
    try:
        log = EventLog(directory.events, directory.run_id)
    except OSError as error:
        raise StoreError(f"{directory.events}: {error.strerror or error}") from error
    ending = _Ending(directory, log)
    work = trio.CancelScope()
    stopped: list[Signals] = []
    failure: BaseException | None = None
    code = 1

    def stop(number: Signals) -> None:
        stopped.append(number)
        notify(f"{number.name}: stopping (once more to stop at once)")
        work.cancel()

    def end_now(number: Signals) -> None:
        at_once()
        ending.cancelled(number.name, 128 + number)
        log.close()

    try:
        with note_signals() as early:
            log.emit(started)
            async with trio.open_nursery() as watch:
                await watch.start(cancel_on_signal, stop, end_now)
                if signalled := [*before, *early]:
                    stop(signalled[0])
                async with trio.open_nursery() as recorder:
                    await recorder.start(log.run)
                    try:
                        with work:
                            code = await body(log)
                    except Exception as error:
                        failure = primary_error(error)
                    recorder.cancel_scope.cancel()
                watch.cancel_scope.cancel()
            # What is signalled from here on is too late to stop anything, and must not leave half of an end.
            if stopped and (failure is not None or work.cancelled_caught):
                if failure is not None:
                    _show(failure)
                code = 128 + stopped[0]
                ending.cancelled(stopped[0].name, code)
            elif failure is not None:
                code = exit_code_of(failure)
                ending.failed(_show(failure), code)
            else:
                ending.finished(code)
    except BaseException:
        ending.cancelled("cancelled", 130)
        raise
    finally:
        log.close()
    return code


def _start_collecting() -> None:
    """Let Python look for garbage, if the program was started without, but not in what the start has made."""
    if not gc.isenabled():
        gc.freeze()
        gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
        gc.enable()


class _Ending:
    """Writes a run's last event and completes its record: once, whoever asks first."""

    def __init__(self, directory: RunDirectory, log: EventLog) -> None:
        self._directory = directory
        self._log = log
        self._began = trio.current_time()
        self._written = False

    def finished(self, code: int) -> None:
        self._write(record.RunFinished(exit_code=code, duration_ms=self._duration_ms()), RunStatus.DONE, code)

    def failed(self, message: str, code: int) -> None:
        event = record.RunFailed(error=message, exit_code=code, duration_ms=self._duration_ms())
        self._write(event, RunStatus.FAILED, code, message)

    def cancelled(self, reason: str, code: int) -> None:
        event = record.RunCancelled(reason=reason, duration_ms=self._duration_ms())
        self._write(event, RunStatus.CANCELLED, code, reason)

    def _duration_ms(self) -> int:
        return int((trio.current_time() - self._began) * 1000)

    def _write(self, event: record.Event, status: RunStatus, code: int, error: str | None = None) -> None:
        if not self._written:
            self._written = True
            self._log.emit_last(event)
            self._directory.finish(status, exit_code=code, error=error)


def _show(failure: BaseException) -> str:
    """Show a failure to the person who started the run; returns what the record says of it."""
    message = str(failure)
    if not is_expected(failure):
        traceback.print_exception(failure, file=sys.stderr)
        message = f"{INTERNAL_ERROR} ({type(failure).__name__})"
    show_error(message)
    return message
