"""Streams for commands: both ends are accounted for."""

import os

import pytest
import trio

from drivers.base import Stdio, TerminalSize
from drivers.stdio import open_streams, open_terminal, set_size

pytestmark = pytest.mark.real


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


async def test_pipes_lead_to_each_other() -> None:
    before = descriptors()
    streams = open_streams(Stdio.PIPE, Stdio.PIPE, Stdio.DEVNULL)
    assert streams.stdin is not None
    assert streams.stdout is not None
    assert streams.stderr is None
    await streams.stdin.send_all(b"in")
    assert os.read(streams.remote[0], 10) == b"in"
    os.write(streams.remote[1], b"out")
    assert await streams.stdout.receive_some() == b"out"
    os.write(streams.remote[2], b"lost")
    streams.close_remote()
    assert await streams.stdout.receive_some() == b""
    streams.close()
    assert descriptors() == before


def test_inherited_streams_are_not_closed() -> None:
    streams = open_streams(Stdio.INHERIT, Stdio.INHERIT, Stdio.INHERIT)
    assert streams.remote == [0, 1, 2]
    streams.close()
    os.fstat(1)


async def test_a_terminal_carries_both_directions_and_ends() -> None:
    before = descriptors()
    streams = open_terminal(TerminalSize(columns=70, rows=20))
    (remote,) = streams.remote
    assert os.get_terminal_size(remote) == (70, 20)
    assert streams.terminal is not None
    set_size(streams.terminal, TerminalSize(columns=71, rows=21))
    assert os.get_terminal_size(remote) == (71, 21)
    assert streams.stdin is not None
    assert streams.stdout is not None
    await streams.stdin.send_all(b"line\n")
    assert os.read(remote, 100) == b"line\n"
    os.write(remote, b"answer\n")
    streams.stdin.close()  # must not make the other direction block
    seen = b""
    with trio.fail_after(2):
        while b"answer" not in seen:
            seen += await streams.stdout.receive_some()
        streams.close_remote()
        while await streams.stdout.receive_some():
            pass
    streams.close()
    assert descriptors() == before


async def test_the_error_output_may_lead_where_the_output_leads() -> None:
    streams = open_streams(Stdio.DEVNULL, Stdio.PIPE, Stdio.STDOUT)
    assert streams.remote[1] == streams.remote[2]
    assert streams.stderr is None
    streams.close()
