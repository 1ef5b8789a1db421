"""The first signal stops a run in order, the second one at once."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
import trio

from gateway.signals import STOP_SIGNALS, cancel_on_signal, note_signals


@pytest.fixture
def heeded() -> Iterator[None]:
    """Whoever started the tests may have had signals ignored, as nohup does."""
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    for number in STOP_SIGNALS:
        signal.signal(number, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("heeded")
@pytest.mark.parametrize("number", STOP_SIGNALS)
async def test_the_first_signal_is_reported_once(number: signal.Signals) -> None:
    seen: list[signal.Signals] = []
    reported = trio.Event()

    def stop(received: signal.Signals) -> None:
        seen.append(received)
        reported.set()

    async with trio.open_nursery() as nursery:
        await nursery.start(cancel_on_signal, stop, lambda number: None)
        os.kill(os.getpid(), number)
        await reported.wait()
        nursery.cancel_scope.cancel()
    assert seen == [number]


def test_the_second_signal_ends_the_process_at_once() -> None:
    script = """
import os, signal, sys
import trio
from gateway.signals import cancel_on_signal

def stop(number):
    os.kill(os.getpid(), signal.SIGTERM)

async def main():
    async with trio.open_nursery() as nursery:
        await nursery.start(cancel_on_signal, stop, lambda number: print("last words", number.name, flush=True))
        os.kill(os.getpid(), signal.SIGINT)
        with trio.CancelScope(shield=True):
            await trio.sleep_forever()

trio.run(main)
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=30, check=False)
    assert (ended.returncode, ended.stdout) == (128 + signal.SIGTERM, b"last words SIGTERM\n")


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_signal_that_was_ignored_from_the_start_stays_ignored(number: signal.Signals) -> None:
    script = f"""
import os, signal
signal.signal(signal.{number.name}, signal.SIG_IGN)
import trio
from gateway.signals import cancel_on_signal

async def main():
    async with trio.open_nursery() as nursery:
        await nursery.start(cancel_on_signal, lambda number: print("stopped by", number.name), lambda number: None)
        os.kill(os.getpid(), signal.{number.name})
        await trio.testing.wait_all_tasks_blocked(0.05)
        nursery.cancel_scope.cancel()

import trio.testing
trio.run(main)
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=30, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")


def test_words_that_fail_do_not_keep_the_process() -> None:
    script = """
import os, signal
import trio
from gateway.signals import cancel_on_signal

async def main():
    async with trio.open_nursery() as nursery:
        await nursery.start(cancel_on_signal, lambda number: os.kill(os.getpid(), number), lambda number: 1 / 0)
        os.kill(os.getpid(), signal.SIGINT)
        with trio.CancelScope(shield=True):
            await trio.sleep_forever()

trio.run(main)
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=30, check=False)
    assert ended.returncode == 128 + signal.SIGINT


@pytest.mark.usefixtures("heeded")
def test_signals_that_nobody_handles_are_noted() -> None:
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    with note_signals() as noted:
        for number in STOP_SIGNALS:
            signal.raise_signal(number)
    assert noted == list(STOP_SIGNALS)
    assert {number: signal.getsignal(number) for number in STOP_SIGNALS} == before


@pytest.mark.usefixtures("heeded")
def test_ignored_signals_are_not_noted() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with note_signals() as noted:
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        signal.raise_signal(signal.SIGHUP)
    assert noted == []
