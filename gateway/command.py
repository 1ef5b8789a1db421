"""Running one command to its end: its input written, its outputs handed on as they arrive."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

import trio

from drivers.base import ExitStatus, SandboxProcess

__all__ = ["LINGER_S", "LineSplitter", "TailBuffer", "run_to_end"]

LINGER_S: Final = 2.0
"Seconds that outputs are still read after the command ended: a background child may hold them open for ever."


class TailBuffer:
    """Keeps the end of a stream.

    Args:
        max_bytes: how much is kept.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes: Final = max_bytes
        self._data = bytearray()

    def feed(self, data: bytes) -> None:
        """Take the next bytes, forgetting the oldest over the limit."""
        self._data += data
        if len(self._data) > self.max_bytes:
            del self._data[: -self.max_bytes]

    @property
    def text(self) -> str:
        """What is kept, decoded as UTF-8 with replacement characters for what is not."""
        return self._data.decode(errors="replace")


class LineSplitter:
    """Cuts a stream into lines.

    Args:
        show: called with each line, decoded, without its line break.
        max_line_bytes: a longer line is shown in pieces of this size.
    """

    def __init__(self, show: Callable[[str], None], *, max_line_bytes: int = 65536) -> None:
        self._show = show
        self._max_line_bytes = max_line_bytes
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Take the next bytes and show the lines they complete."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        while len(self._rest) > self._max_line_bytes:
            lines.append(self._rest[: self._max_line_bytes])
            self._rest = self._rest[self._max_line_bytes :]
        for line in lines:
            self._show(line.rstrip(b"\r").decode(errors="replace"))

    def finish(self) -> None:
        """Show a last line that has no line break."""
        if self._rest:
            self._show(self._rest.decode(errors="replace"))
            self._rest = b""


async def run_to_end(
    command: AbstractAsyncContextManager[SandboxProcess],
    *,
    stdin: bytes | None,
    on_stdout: Callable[[bytes], None],
    on_stderr: Callable[[bytes], None],
) -> ExitStatus:
    """Run a command whose streams are pipes until it ends.

    Args:
        command: what `Sandbox.exec` returned.
        stdin: written to its input, which is then closed; None where its input is not a pipe.
        on_stdout: called with each piece of its output.
        on_stderr: called with each piece of its error output.

    Returns:
        How the command itself ended. Outputs that a background child keeps open are read for another `LINGER_S`.

    Raises:
        SandboxLost, DriverError: as `Sandbox.exec`.

    Cancellation kills the command's process tree inside the sandbox.
    """
    async with command as process, trio.open_nursery() as nursery:
        with trio.CancelScope() as outputs:
            async with trio.open_nursery() as readers:
                if stdin is not None and process.stdin is not None:
                    readers.start_soon(_write, process.stdin, stdin)
                readers.start_soon(_read, process.stdout, on_stdout)
                readers.start_soon(_read, process.stderr, on_stderr)
                nursery.start_soon(_end_outputs_after, process, outputs)
        status = await process.wait()
        nursery.cancel_scope.cancel()
    return status


async def _end_outputs_after(process: SandboxProcess, outputs: trio.CancelScope) -> None:
    await process.wait()
    outputs.deadline = trio.current_time() + LINGER_S


async def _write(stream: trio.abc.SendStream, data: bytes) -> None:
    try:
        await stream.send_all(data)
    except trio.BrokenResourceError:
        pass  # the command does not read its input to the end, which is its right
    finally:
        await stream.aclose()


async def _read(stream: trio.abc.ReceiveStream | None, take: Callable[[bytes], None]) -> None:
    if stream is not None:
        async for data in stream:
            take(bytes(data))
