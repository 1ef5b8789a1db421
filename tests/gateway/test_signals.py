"""The first signal stops a run in order, the second one at once."""

import os
import signal
import subprocess
import sys

import pytest
import trio

from gateway.signals import STOP_SIGNALS, cancel_on_signal


@pytest.mark.parametrize("number", STOP_SIGNALS)
async def test_the_first_signal_is_reported_once(number: signal.Signals) -> None:
    seen: list[signal.Signals] = []
    reported = trio.Event()

    def stop(received: signal.Signals) -> None:
        seen.append(received)
        reported.set()

    async with trio.open_nursery() as nursery:
        await nursery.start(cancel_on_signal, stop, lambda: None)
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
        await nursery.start(cancel_on_signal, stop, lambda: print("last words", flush=True))
        os.kill(os.getpid(), signal.SIGINT)
        with trio.CancelScope(shield=True):
            await trio.sleep_forever()

trio.run(main)
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=30, check=False)
    assert (ended.returncode, ended.stdout) == (128 + signal.SIGTERM, b"last words\n")
