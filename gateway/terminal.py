"""Joining the terminal of the person who runs iterion to a command's own terminal inside the sandbox.

The command never gets the user's terminal itself: what it does to its terminal (TIOCSTI pushes input, a mode
change outlives it) stays inside. Bytes are relayed, in raw mode, so that Ctrl-C reaches the command as a byte.
"""

import os
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager

import trio

from drivers.base import ExitStatus, SandboxProcess, TerminalSize

__all__ = ["has_terminal", "join_terminal", "terminal_size"]

READ_BYTES = 65536


def has_terminal() -> bool:
    """Say whether a person sits at both ends: standard input and standard output are terminals."""
    return os.isatty(0) and os.isatty(1)


def terminal_size() -> TerminalSize:
    """Return the size of the terminal at standard output, or 80 by 24 where it does not say."""
    try:
        columns, rows = os.get_terminal_size(1)
    except OSError:
        return TerminalSize()
    return TerminalSize(columns=columns or 80, rows=rows or 24)


async def join_terminal(process: SandboxProcess) -> ExitStatus:
    """Relay the user's terminal to a command that was started with one, until it ends.

    Args:
        process: started with ``terminal=True``.

    Returns:
        How the command ended.

    Raises:
        SandboxLost: the sandbox died first.

    The terminal's modes are put back on every way out. Cancellation leaves the command to its ``exec`` block.
    """
    with _raw_mode():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_follow_size, process)
            nursery.start_soon(_send_keys, process)
            with trio.CancelScope() as output:
                nursery.start_soon(_end_output_after, process, output)
                await _show_output(process)
            status = await process.wait()
            nursery.cancel_scope.cancel()
    return status


@contextmanager
def _raw_mode() -> Iterator[None]:
    before = termios.tcgetattr(0)
    tty.setraw(0)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


async def _follow_size(process: SandboxProcess) -> None:
    with trio.open_signal_receiver(signal.SIGWINCH) as changes:
        async for _ in changes:
            await process.resize(terminal_size())


async def _send_keys(process: SandboxProcess) -> None:
    stream = process.stdin
    assert stream is not None
    while True:
        await trio.lowlevel.wait_readable(0)
        data = os.read(0, READ_BYTES)
        if not data:
            return
        try:
            await stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return  # the command has ended; its exit status follows


async def _show_output(process: SandboxProcess) -> None:
    stream = process.stdout
    assert stream is not None
    async for data in stream:
        view = memoryview(bytes(data))
        while view:
            try:
                view = view[os.write(1, view) :]
            except BlockingIOError:
                await trio.lowlevel.wait_writable(1)
            except BrokenPipeError:
                return
    sys.stdout.flush()


async def _end_output_after(process: SandboxProcess, output: trio.CancelScope) -> None:
    await process.wait()
    output.deadline = trio.current_time() + 1.0  # what a background child still writes is not waited for
