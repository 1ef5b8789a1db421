"""Spawning, and the story of an end."""

import os
import sys

import pytest
import trio

from drivers.spawn import SandboxRoot, memory_file

pytestmark = pytest.mark.real


def spawn(script: str) -> SandboxRoot:
    return SandboxRoot([sys.executable, "-c", script], {}, [], "/")


async def test_the_end_is_described_with_the_last_words() -> None:
    root = spawn("import sys; sys.stderr.write('noise\\n' * 9999 + 'why\\x1b\\n'); sys.exit(3)")
    assert await root.wait() == 3
    assert root.describe_end() == "exit status 3: noise; noise; noise; noise; why?"
    root.close()


async def test_several_tasks_wait_and_a_kill_ends_it() -> None:
    root = spawn("import time; time.sleep(1000)")
    assert root.pid > 0
    assert root.describe_end() == "still running"
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(root.wait)
        root.kill()
    assert root.describe_end() == "killed by SIGKILL"
    root.close()


async def test_it_is_a_session_of_its_own() -> None:
    root = spawn("import os, sys; sys.exit(os.getsid(0) == os.getpid())")
    assert await root.wait() == 1
    root.close()


def test_what_cannot_be_spawned_leaves_no_descriptor() -> None:
    before = os.listdir("/proc/self/fd")
    with pytest.raises(FileNotFoundError):
        SandboxRoot(["/no/such/program"], {}, [], "/")
    assert os.listdir("/proc/self/fd") == before


def test_memory_file() -> None:
    with open(memory_file(b"data"), "rb") as file:
        assert file.read() == b"data"
