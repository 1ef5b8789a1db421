"""The client of init against an init that the test plays: nothing it says can do harm."""

import array
import os
import socket
from collections.abc import AsyncIterator

import pytest
import trio

from drivers import control
from drivers.base import ExitStatus, ProbeTarget, SandboxLost
from drivers.init_client import InitClient
from drivers.spawn import control_pair


class FakeInit:
    """The other end of the control socket."""

    def __init__(self, theirs: socket.socket) -> None:
        self.socket = trio.socket.from_stdlib_socket(theirs)

    async def say(self, data: bytes, fds: tuple[int, ...] = ()) -> None:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        await self.socket.sendmsg([data], rights)

    async def hear(self) -> tuple[list[bytes], list[int]]:
        data, ancillary, _, _ = await self.socket.recvmsg(65536, socket.CMSG_SPACE(32), socket.MSG_CMSG_CLOEXEC)
        fds = array.array("i")
        for _, _, raw in ancillary:
            fds.frombytes(raw)
        return data.split(b"\0"), fds.tolist()


@pytest.fixture
async def ends() -> AsyncIterator[tuple[InitClient, FakeInit]]:
    ours, theirs = control_pair()

    async def describe() -> str:
        await trio.lowlevel.checkpoint()
        return "it ended"

    client, init = InitClient(ours, describe), FakeInit(theirs)
    yield client, init
    client.close()
    init.socket.close()


def open_fds() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_ready_brings_listeners(ends: tuple[InitClient, FakeInit]) -> None:
    client, init = ends
    with socket.socket() as listener:
        await init.say(b"ready", (listener.fileno(),))
    (received,) = await client.receive_ready(1)
    with received:
        assert received.getblocking() is False


@pytest.mark.parametrize("said", [b"ready", b"fatal\0cannot", b"exit\x001\0code\x000", b"nonsense", b"x" * 5000])
async def test_a_bad_greeting_loses_the_sandbox_and_keeps_no_descriptor(
    ends: tuple[InitClient, FakeInit], said: bytes
) -> None:
    client, init = ends
    before = open_fds()
    with socket.socket() as first, socket.socket() as second:
        await init.say(said, (first.fileno(), second.fileno()))
    with pytest.raises(SandboxLost):
        await client.receive_ready(1)
    assert open_fds() == before


async def test_no_greeting_at_all(ends: tuple[InitClient, FakeInit]) -> None:
    client, init = ends
    init.socket.close()
    with pytest.raises(SandboxLost):
        await client.receive_ready(0)


@pytest.mark.parametrize("said", [b"nonsense", b"ready", b"fatal\0x", b"exit\0x\0code\x001", b"y" * 4097])
async def test_nonsense_later_loses_the_sandbox_for_every_waiter(
    ends: tuple[InitClient, FakeInit], said: bytes
) -> None:
    client, init = ends
    before = open_fds()
    _, command = client.open_command()
    targets = [ProbeTarget(name="x", kind="tcp", address="::1", port=1)]
    async with trio.open_nursery() as nursery:

        async def expect_loss() -> None:
            with pytest.raises(SandboxLost):
                await client.probe(targets)

        nursery.start_soon(expect_loss)
        await init.hear()
        await init.say(said, (0,))
        await client.pump()
        await command.ended.wait()
        await command.killed.wait()
    assert client.lost.is_set()
    with pytest.raises(SandboxLost):
        await client.write_file("/x", b"", 0o644)
    assert open_fds() == before


async def test_more_answers_than_questions(ends: tuple[InitClient, FakeInit]) -> None:
    client, init = ends
    async with trio.open_nursery() as nursery:

        async def ask() -> None:
            assert await client.probe([]) == {}
            with pytest.raises(SandboxLost):
                await client.write_file("/x", b"", 0o644)

        nursery.start_soon(ask)
        (_, identity, *_), _ = await init.hear()
        (_, identity, *_), fds = await init.hear()
        for fd in fds:
            os.close(fd)
        await init.say(b"nonsense")
        await client.pump()
    assert identity == b"2"


async def test_answers_to_unknown_questions_are_ignored(ends: tuple[InitClient, FakeInit]) -> None:
    client, init = ends
    identity, command = client.open_command()
    await init.say(b"killed\x0099\x000")
    await init.say(b"exit\x0099\0code\x000")
    await init.say(b"wrote\x0099\0")
    await init.say(b"exit\0%d\0code\x003" % identity)
    await init.say(b"exit\0%d\0code\x004" % identity)  # the first one counts
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.pump)
        await command.ended.wait()
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert command.status == ExitStatus(code=3)


async def test_the_end_of_the_socket_is_described(ends: tuple[InitClient, FakeInit]) -> None:
    client, init = ends
    init.socket.close()
    await client.pump()
    assert client.lost_reason == "it ended"
    client.lose("again")
    assert client.lost_reason == "it ended"


async def test_a_long_request_travels_in_a_file(ends: tuple[InitClient, FakeInit]) -> None:
    client, init = ends
    request = control.encode_exec(1, ["x" * 100_000], {}, "/", terminal=False)
    await client.send_exec(request, [0])
    fields, fds = await init.hear()
    assert fields == [b"big"]
    assert len(fds) == 2
    assert os.pread(fds[0], len(request) + 1, 0) == request
    for fd in fds:
        os.close(fd)
