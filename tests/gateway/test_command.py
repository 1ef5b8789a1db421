"""A command's streams are read to their end, whoever still holds them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from drivers.base import ExitStatus, TerminalSize
from gateway.command import LINGER_S, LineSplitter, TailBuffer, run_to_end


class FakeProcess:
    """A process whose pipes are in memory: what a test writes to ``out`` and ``err`` is its output."""

    def __init__(self) -> None:
        self.stdin, self.input = trio.testing.memory_stream_one_way_pair()
        self.out, self.stdout = trio.testing.memory_stream_one_way_pair()
        self.err, self.stderr = trio.testing.memory_stream_one_way_pair()
        self.ended = trio.Event()

    async def wait(self) -> ExitStatus:
        await self.ended.wait()
        return ExitStatus(code=3)

    async def kill(self) -> None:
        self.ended.set()

    async def send_signal(self, signal_number: int) -> None:
        raise AssertionError(signal_number)

    async def resize(self, size: TerminalSize) -> None:
        raise AssertionError(size)


def ignore(data: bytes) -> None:
    """Take output that a test does not look at."""


@asynccontextmanager
async def running(process: FakeProcess) -> AsyncIterator[FakeProcess]:
    yield process


async def test_input_is_written_and_outputs_are_read_apart() -> None:
    process = FakeProcess()
    outputs: list[bytes] = []
    errors: list[bytes] = []

    async def command() -> None:
        received = bytearray()
        async for data in process.input:
            received += data
        assert received == b"x" * 100_000
        await process.out.send_all(b"out")
        await process.err.send_all(b"err")
        await process.out.aclose()
        await process.err.aclose()
        process.ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(command)
        status = await run_to_end(
            running(process), stdin=b"x" * 100_000, on_stdout=outputs.append, on_stderr=errors.append
        )
    assert status.returncode == 3
    assert (b"".join(outputs), b"".join(errors)) == (b"out", b"err")


async def test_a_command_that_does_not_read_its_input_is_no_failure() -> None:
    process = FakeProcess()
    await process.input.aclose()
    await process.out.aclose()
    await process.err.aclose()
    process.ended.set()
    status = await run_to_end(running(process), stdin=b"ignored", on_stdout=ignore, on_stderr=ignore)
    assert status.returncode == 3


async def test_a_child_that_keeps_the_outputs_open_is_waited_for_a_little(
    autojump_clock: trio.testing.MockClock,
) -> None:
    process = FakeProcess()
    await process.out.send_all(b"before")
    process.ended.set()
    began = trio.current_time()
    outputs: list[bytes] = []
    await run_to_end(running(process), stdin=None, on_stdout=outputs.append, on_stderr=ignore)
    assert outputs == [b"before"]
    assert trio.current_time() - began == pytest.approx(LINGER_S)


async def test_outputs_that_end_first_do_not_end_the_command(autojump_clock: trio.testing.MockClock) -> None:
    process = FakeProcess()
    await process.out.aclose()
    await process.err.aclose()

    async def end_later() -> None:
        await trio.sleep(100)
        process.ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(end_later)
        await run_to_end(running(process), stdin=None, on_stdout=ignore, on_stderr=ignore)
    assert trio.current_time() >= 100


def test_a_tail_keeps_the_end() -> None:
    tail = TailBuffer(5)
    for piece in (b"abc", b"def", b"\xff"):
        tail.feed(piece)
    assert tail.text == "cdef\ufffd"


def test_lines_are_cut_at_breaks_and_at_the_limit() -> None:
    lines: list[str] = []
    splitter = LineSplitter(lines.append, max_line_bytes=4)
    for piece in (b"a\r\nb", b"c\nlonger line", b"\n", b"end"):
        splitter.feed(piece)
    splitter.finish()
    splitter.finish()
    assert lines == ["a", "bc", "long", "er l", "ine", "end"]
