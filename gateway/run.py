"""One run from its first event to its last: the nursery that owns it, its signals and its outcome."""

import sys
import traceback
from collections.abc import Awaitable, Callable
from signal import Signals
from typing import Final

import trio

from gateway import events as record
from gateway.errors import exit_code_of, is_expected, primary_error
from gateway.event_log import EventLog
from gateway.signals import cancel_on_signal
from gateway.store import RunDirectory, RunStatus

__all__ = ["conduct_run"]

INTERNAL_ERROR: Final = "internal error: this is a fault of iterion itself"


async def conduct_run(
    directory: RunDirectory,
    started: record.RunStarted,
    body: Callable[[EventLog], Awaitable[int]],
    *,
    notify: Callable[[str], None],
) -> int:
    """Carry out one run and record how it ended.

    Args:
        directory: the run's place in the store; its record is brought up to date, it is not closed.
        started: the run's first event.
        body: does the work under the run's one cancel scope and returns the exit code.
        notify: shows one line to the person who started the run.

    Returns:
        The exit code: what ``body`` returned, the code of the error that it raised, or 128 plus the number of the
        signal that stopped it. No exception of ``body`` leaves this function; one that nobody expects is shown
        with its trace.

    A stop signal cancels ``body``, which has the time it needs to clean up; a second one ends the process at
    once, and the kernel ends the sandbox with it. Cancellation of this function is recorded like a signal.
    """
    log = EventLog(directory.events, directory.run_id)
    began = trio.current_time()
    stopped: list[Signals] = []
    failure: BaseException | None = None
    code = 1

    def duration_ms() -> int:
        return int((trio.current_time() - began) * 1000)

    try:
        async with trio.open_nursery() as recorder:
            await recorder.start(log.run)
            log.emit(started)
            try:
                with trio.CancelScope() as work:

                    def stop(number: Signals) -> None:
                        stopped.append(number)
                        notify(f"{number.name}: stopping (once more to stop at once)")
                        work.cancel()

                    await recorder.start(cancel_on_signal, stop, log.close)
                    code = await body(log)
            except Exception as error:
                failure = primary_error(error)
            recorder.cancel_scope.cancel()
        if failure is not None:
            code = _record_failure(directory, log, failure, duration_ms(), notify)
        elif stopped:
            code = 128 + stopped[0]
            _record_cancelled(directory, log, stopped[0].name, code, duration_ms())
        else:
            log.emit(record.RunFinished(exit_code=code, duration_ms=duration_ms()))
            directory.finish(RunStatus.DONE, exit_code=code)
    except BaseException:
        _record_cancelled(directory, log, "cancelled", 130, duration_ms())
        raise
    finally:
        log.close()
    return code


def _record_cancelled(directory: RunDirectory, log: EventLog, reason: str, code: int, duration_ms: int) -> None:
    log.emit(record.RunCancelled(reason=reason, duration_ms=duration_ms))
    directory.finish(RunStatus.CANCELLED, exit_code=code, error=reason)


def _record_failure(
    directory: RunDirectory,
    log: EventLog,
    failure: BaseException,
    duration_ms: int,
    notify: Callable[[str], None],
) -> int:
    code = exit_code_of(failure)
    message = str(failure)
    if not is_expected(failure):
        traceback.print_exception(failure, file=sys.stderr)
        message = f"{INTERNAL_ERROR} ({type(failure).__name__})"
    notify(f"error: {message}")
    log.emit(record.RunFailed(error=message, exit_code=code, duration_ms=duration_ms))
    directory.finish(RunStatus.FAILED, exit_code=code, error=message)
    return code
