"""What the tests of drivers share: a run's folders, and running one command to its end."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import trio

from drivers.base import ExitStatus, RunInfo, Sandbox

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def run_info(
    folder: Path,
    *,
    workspace: Path | None = None,
    writable: tuple[Path, ...] = (),
    hidden: tuple[Path, ...] = (),
    network: Literal["isolated", "host"] = "isolated",
) -> RunInfo:
    """A run whose workspace and scratch directory are in `folder`."""
    workspace = workspace or folder / "workspace"
    scratch = folder / "scratch"
    for path in (workspace, scratch):
        path.mkdir(exist_ok=True)
    return RunInfo(
        run_id="0190",
        run_name="test",
        workspace=workspace,
        writable=writable,
        scratch=scratch,
        hidden=hidden,
        network=network,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a command left."""

    status: ExitStatus
    out: str
    err: str


async def run(
    sandbox: Sandbox,
    argv: Sequence[str] | str,
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    timeout_s: float = 30,
) -> Result:
    """Run a command (a text is a shell script) and collect its outputs."""
    outputs: dict[str, bytes] = {}

    async def read(name: str, stream: trio.abc.ReceiveStream | None) -> None:
        assert stream is not None
        outputs[name] = b"".join([bytes(data) async for data in stream])

    command = ["sh", "-c", argv] if isinstance(argv, str) else argv
    with trio.fail_after(timeout_s):
        async with sandbox.exec(command, env=env or {}, cwd=cwd) as process:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(read, "out", process.stdout)
                nursery.start_soon(read, "err", process.stderr)
            status = await process.wait()
    return Result(status=status, out=outputs["out"].decode(), err=outputs["err"].decode())


def processes_with(mark: str) -> list[int]:
    """Every process of this host whose command line or environment holds `mark`."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                text = Path(f"/proc/{name}/cmdline").read_bytes()
                state = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if mark.encode() in text and state != "Z":
                found.append(int(name))
    return found


async def wait_until_gone(mark: str, timeout_s: float = 5) -> None:
    """Wait until no process holds `mark`."""
    with trio.fail_after(timeout_s):
        while processes_with(mark):  # noqa: ASYNC110 - nobody tells us about other processes
            await trio.sleep(0.01)


async def wait_until_there(mark: str, count: int = 1, timeout_s: float = 5) -> None:
    """Wait until so many processes hold `mark`."""
    with trio.fail_after(timeout_s):
        while len(processes_with(mark)) < count:  # noqa: ASYNC110 - nobody tells us about other processes
            await trio.sleep(0.01)
