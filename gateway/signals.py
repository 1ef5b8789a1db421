"""Signals that end a run: the first one cancels it in order, the second one ends the process at once."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import trio

__all__ = ["STOP_SIGNALS", "cancel_on_signal", "note_signals"]

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def note_signals() -> Iterator[list[signal.Signals]]:
    """Collect the stop signals that nobody else handles, for as long as the block lasts; ignored ones stay ignored.

    Put it round `cancel_on_signal`: a signal that comes before that listens can then be answered late, and one that
    comes afterwards, while the end of the run is being recorded, does not cut that short.
    """
    noted: list[signal.Signals] = []
    handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    before = {number: handler for number, handler in handlers.items() if handler is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, lambda got, _: noted.append(signal.Signals(got)))
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


async def cancel_on_signal(
    stop: Callable[[signal.Signals], None],
    at_once: Callable[[signal.Signals], None],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Child task of a run: call ``stop`` for the first stop signal, and end the process for the second.

    Args:
        stop: begins an orderly end; must return at once.
        at_once: last words before the process ends, such as closing the record. The sandbox needs none: the
            kernel kills it with this process.

    A signal that was ignored when the process started stays ignored: that is what nohup(1), and a shell that starts
    something in the background, ask for.

    Never returns. Cancellation restores the signals' former handling.
    """
    heeded = [number for number in STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    if not heeded:
        task_status.started()
        await trio.sleep_forever()
    with trio.open_signal_receiver(*heeded) as received:
        task_status.started()
        stopping = False
        async for number in received:
            if stopping:
                try:
                    at_once(signal.Signals(number))
                finally:
                    os._exit(128 + number)
            stopping = True
            stop(signal.Signals(number))
