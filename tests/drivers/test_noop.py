"""What noop is without: isolation, and a process that nobody needs."""

from pathlib import Path

import pytest
import trio

from drivers.noop import NoopDriver
from drivers.spec import BuildSpec, SandboxSpec
from tests.drivers.helpers import PATH, processes_with, run, run_info

pytestmark = pytest.mark.real


async def test_it_says_what_it_is(tmp_path: Path) -> None:
    driver = NoopDriver({"PATH": PATH})
    assert not driver.capabilities.isolates
    assert not driver.capabilities.enforces_egress
    driver.check(SandboxSpec(image="a", build=BuildSpec(), user="x", memory="1g"))
    async with driver.start(SandboxSpec(), run_info(tmp_path)) as sandbox:
        assert sandbox.listeners == {}
        assert sandbox.host_state_mounts == ()
        results = await sandbox.probe_egress()
        assert [result.reached for result in results] == [True] * 5
        assert "not tried" in results[0].detail


async def test_nothing_is_started_before_the_first_command(tmp_path: Path) -> None:
    before = len(processes_with("sandbox_init.py"))
    async with NoopDriver({"PATH": PATH}).start(SandboxSpec(), run_info(tmp_path)) as sandbox:
        assert len(processes_with("sandbox_init.py")) == before
        await run(sandbox, ["true"])
        assert len(processes_with("sandbox_init.py")) > before


async def test_the_first_command_may_be_cancelled_at_any_moment(tmp_path: Path) -> None:
    for milliseconds in range(40):
        with trio.fail_after(10), trio.move_on_after(milliseconds / 1000):
            async with NoopDriver({"PATH": PATH}).start(SandboxSpec(), run_info(tmp_path)) as sandbox:
                await run(sandbox, ["sleep", "1000"])


async def test_commands_see_the_host(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("seen")
    async with NoopDriver({"PATH": PATH, "TOKEN": "x"}).start(SandboxSpec(), run_info(tmp_path)) as sandbox:
        assert (await run(sandbox, f'cat {secret}; echo "$TOKEN"')).out == "seenx\n"
