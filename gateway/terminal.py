"""Joining the terminal of the person who runs iterion to a command inside the sandbox.

The command never gets the user's terminal itself: what it does to its terminal (TIOCSTI pushes input, a mode
change outlives it) stays inside. With a terminal at both ends it gets one of its own: bytes are relayed in raw
mode, so that Ctrl-C reaches the command as a byte. Where only some of the standard streams are terminals, those
become pipes for the command, like files and devices (see `standard_streams.py`).

Nothing here blocks the loop, on which the proxy and the supervision of the sandbox run: a terminal that takes no
output (one that is far away, or stopped) keeps a thread waiting.
"""

import contextlib
import math
import os
import signal
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import trio

from drivers.base import ExitStatus, SandboxProcess, TerminalSize
from gateway.standard_streams import feed_file, must_be_fed

__all__ = ["has_terminal", "join_streams", "join_terminal", "restore_terminal", "terminal_size"]

READ_BYTES: Final = 65536
LINGER_S: Final = 1.0
"Seconds without output after which what a background child may still write is not waited for any more."
MAX_LINGER_S: Final = 30.0
"How long a slow terminal may take for the last output of a command that has ended."
BACKGROUND_POLL_S: Final = 0.2

_changed_modes: list[Any] = []


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


def restore_terminal() -> None:
    """Put back the modes that `join_terminal` changed; does nothing when they are back."""
    while _changed_modes:
        with contextlib.suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(0, termios.TCSANOW, _changed_modes.pop())


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
            status = await _relay(process, nursery)
            nursery.cancel_scope.cancel()
    return status


async def join_streams(process: SandboxProcess) -> ExitStatus:
    """Relay those standard streams that are pipes for a command to ours, until it ends.

    Args:
        process: a command whose other streams are our own.

    Returns:
        How the command ended.

    Raises:
        SandboxLost: the sandbox died first.

    Cancellation leaves the command to its ``exec`` block.
    """
    if process.stdin is None and process.stdout is None and process.stderr is None:
        return await process.wait()
    async with trio.open_nursery() as nursery:
        status = await _relay(process, nursery)
        nursery.cancel_scope.cancel()
    return status


@contextmanager
def _raw_mode() -> Iterator[None]:
    _changed_modes.append(termios.tcgetattr(0))
    tty.setraw(0)
    try:
        yield
    finally:
        restore_terminal()


async def _follow_size(process: SandboxProcess) -> None:
    with trio.open_signal_receiver(signal.SIGWINCH) as changes:
        async for _ in changes:
            await process.resize(terminal_size())


async def _relay(process: SandboxProcess, nursery: trio.Nursery) -> ExitStatus:
    if process.stdin is not None:
        nursery.start_soon(feed_file if must_be_fed() else _send_keys, process.stdin)
    outputs = [(fd, stream) for fd, stream in ((1, process.stdout), (2, process.stderr)) if stream is not None]
    with trio.CancelScope() as showing:
        nursery.start_soon(_end_output_after, process, showing)
        async with trio.open_nursery() as readers:
            for fd, stream in outputs:
                readers.start_soon(_show_output, fd, stream, showing)
    return await process.wait()


async def _send_keys(stream: trio.abc.SendStream) -> None:
    try:
        while True:
            await trio.lowlevel.wait_readable(0)
            if os.isatty(0) and os.tcgetpgrp(0) != os.getpgrp():
                await trio.sleep(BACKGROUND_POLL_S)  # the keys are the shell's; reading would stop us (SIGTTIN)
                continue
            data = os.read(0, READ_BYTES)
            if not data:
                break
            await stream.send_all(data)
        await stream.aclose()
    except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
        pass  # the terminal is gone, or the command has ended; its exit status follows


async def _show_output(fd: int, stream: trio.abc.ReceiveStream, showing: trio.CancelScope) -> None:
    reader_is_there = True
    async for data in stream:
        if reader_is_there:
            reader_is_there = await trio.to_thread.run_sync(_write_all, fd, bytes(data), abandon_on_cancel=True)
        if math.isfinite(showing.deadline):  # the command has ended, and this is the last of its output
            showing.deadline = trio.current_time() + LINGER_S


def _write_all(fd: int, data: bytes) -> bool:
    """Write all of it; False when nobody is there to see it."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(fd, view) :]
    except OSError:
        return False
    return True


async def _end_output_after(process: SandboxProcess, showing: trio.CancelScope) -> None:
    await process.wait()
    showing.deadline = trio.current_time() + LINGER_S
    await trio.sleep(MAX_LINGER_S)
    showing.cancel()
