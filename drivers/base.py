"""The contract between whoever runs commands and whatever isolates them.

A `Driver` turns a resolved `SandboxSpec` into a running `Sandbox`; a `Sandbox` runs commands until the block that
started it is left. Everything above this file sees these types only, so that noop, bubblewrap and the container
engines are interchangeable, and so that one test suite holds for all of them.
"""

import enum
import socket
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import trio

from drivers.spec import SandboxSpec

PROXY_PORT = 3128
"""TCP port of the egress proxy as seen inside a sandbox, on 127.0.0.1."""
MCP_PORT = 3129
"""TCP port of the MCP bridge as seen inside a sandbox, on 127.0.0.1."""


class DriverError(Exception):
    """A sandbox cannot be had; the message names the cause and the cure."""


class SandboxLost(Exception):
    """A running sandbox died, or spoke nonsense, while somebody still needed it."""


class Stdio(enum.Enum):
    """Where one standard stream of a command leads."""

    PIPE = "pipe"
    "A byte stream with backpressure, in the hands of the caller."
    INHERIT = "inherit"
    "The same stream of this process."
    DEVNULL = "devnull"
    "Nowhere."
    STDOUT = "stdout"
    "For the error output: where the output leads, in the order in which both were written."


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitStatus:
    """How a command ended: exactly one of an exit code and a signal number."""

    code: int | None = None
    signal: int | None = None

    @property
    def returncode(self) -> int:
        """The status as a shell reports it: the exit code, or 128 plus the signal number."""
        if self.signal is not None:
            return 128 + self.signal
        return 0 if self.code is None else self.code


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a driver can do; a spec that needs more is refused by `Driver.check`."""

    isolates: bool
    "Commands cannot reach the host's files and processes."
    enforces_egress: bool
    "Commands have no way to the network but the proxy."
    images: bool
    build: bool
    mounts: bool
    remote_user: bool
    post_create: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """What a driver must know about one run beside its spec."""

    run_id: str
    run_name: str
    workspace: Path
    "Absolute directory on the host: the working directory, writable inside."
    writable: tuple[Path, ...] = ()
    "Further writable directories, such as the .git of the repository that a worktree belongs to."
    scratch: Path
    "A host directory for the driver's own files of this run. Never visible inside."
    hidden: tuple[Path, ...] = ()
    "Host directories that must not be visible inside, such as the run store: the record of a run is kept there."
    network: Literal["isolated", "host"] = "isolated"
    "isolated: no network but the listeners. host: the host's network, nothing is enforced."


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeTarget:
    """One way out that must not work from inside a sandbox with enforced egress."""

    name: str
    kind: Literal["tcp", "udp"]
    "tcp: connect. udp: send one DNS query and wait for any answer."
    address: str
    "An IP address literal: a name would need a resolver, whose absence proves nothing."
    port: int


PROBE_TARGETS: tuple[ProbeTarget, ...] = (
    ProbeTarget(name="direct TCP", kind="tcp", address="1.1.1.1", port=443),
    ProbeTarget(name="DNS over UDP", kind="udp", address="8.8.8.8", port=53),
    ProbeTarget(name="direct TCP over IPv6", kind="tcp", address="2606:4700:4700::1111", port=443),
    ProbeTarget(name="DNS over UDP over IPv6", kind="udp", address="2001:4860:4860::8888", port=53),
    ProbeTarget(name="cloud metadata", kind="tcp", address="169.254.169.254", port=80),
)
"""Well-known anycast addresses: they answer wherever there is any network, so that silence means isolation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """What one probe found."""

    target: str
    "The target, printable: `tcp 1.1.1.1:443`."
    kind: str
    "The target's name: `direct TCP`."
    reached: bool
    detail: str
    "The error or answer in a few words."


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalSize:
    """The size of a terminal in character cells."""

    columns: int = 80
    rows: int = 24


class SandboxProcess(Protocol):
    """One running command; it lives at most as long as the `exec` block that gave it."""

    @property
    def stdin(self) -> trio.abc.SendStream | None:
        """The command's input if it is PIPE or a terminal; closing it is the half-close."""
        ...

    @property
    def stdout(self) -> trio.abc.ReceiveStream | None:
        """The command's output if it is PIPE or a terminal (which carries both outputs)."""
        ...

    @property
    def stderr(self) -> trio.abc.ReceiveStream | None:
        """The command's error output if it is PIPE."""
        ...

    async def wait(self) -> ExitStatus:
        """Wait for the command itself to end.

        :returns: how it ended. 126 and 127 stand for a command that could not be executed and one that was not found.
        :raises SandboxLost: the sandbox died first.

        Cancellation leaves the command running; it may be called again, and by several tasks.
        """
        ...

    async def kill(self) -> None:
        """Kill the command and everything it started, inside the sandbox. Does nothing when they are gone.

        :raises SandboxLost: the sandbox died first (and with it the command).

        Cancellation may leave the kill undone; leaving the `exec` block does it again.
        """
        ...

    async def send_signal(self, signal_number: int) -> None:
        """Send a signal to the command alone. Does nothing when it is gone.

        :raises SandboxLost: the sandbox died first.
        """
        ...

    async def resize(self, size: TerminalSize) -> None:
        """Tell a command on a terminal that its window changed. Does nothing without a terminal."""
        ...


class Sandbox(Protocol):
    """A running sandbox."""

    @property
    def driver(self) -> str:
        """The name of the driver that made it."""
        ...

    @property
    def workspace(self) -> str:
        """The workspace's absolute path inside, which is where commands start."""
        ...

    @property
    def listeners(self) -> Mapping[str, socket.socket]:
        """Listening sockets born inside the sandbox, non-blocking: "proxy" and "mcp", or none.

        The sandbox owns them and closes them at its end; a server that wants to close them earlier may.
        """
        ...

    @property
    def proxy_endpoint(self) -> tuple[str, int]:
        """Host and port under which commands inside reach the proxy."""
        ...

    @property
    def host_state_mounts(self) -> tuple[str, ...]:
        """The host's state that is visible inside, each `host path:inside path`."""
        ...

    def exec(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | None = None,
        stdin: Stdio = Stdio.DEVNULL,
        stdout: Stdio = Stdio.PIPE,
        stderr: Stdio = Stdio.PIPE,
        terminal: bool = False,
        terminal_size: TerminalSize | None = None,
    ) -> AbstractAsyncContextManager[SandboxProcess]:
        """Run one command; leaving the block kills its process tree unless the command ended by itself.

        :param argv: the command, looked up in the PATH it is given; no shell takes part.
        :param env: added to (and winning over) the sandbox's base environment and the spec's `env`.
        :param cwd: absolute, or relative to the workspace, which is the default.
        :param terminal: give the command its own terminal; stdin and stdout are then its two directions, and the
            three stream arguments are ignored.
        :raises DriverError: an argument cannot be passed to any command (NUL bytes, an empty argv).
        :raises SandboxLost: the sandbox is dead.

        Children that a normally ended command left behind live until the sandbox ends. Cancellation kills the
        process tree inside before it goes on, shielded and bounded in time.
        """
        ...

    async def write_file(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """Write a file inside, whole or not at all, and make its missing parent directories.

        :param path: absolute, or relative to the workspace.
        :param mode: permission bits.
        :raises DriverError: the file cannot be written there.
        :raises SandboxLost: the sandbox is dead.

        Cancellation may leave the old file or the new one, never half of one.
        """
        ...

    async def probe_egress(self, targets: Sequence[ProbeTarget] = PROBE_TARGETS) -> tuple[ProbeResult, ...]:
        """Try each way out from inside, all at once, each for a few seconds at most.

        A driver that does not isolate the network sends nothing and reports every target as reached.

        :raises SandboxLost: the sandbox died.
        """
        ...

    async def wait_lost(self) -> str:
        """Wait until the sandbox dies by itself.

        :returns: what happened, for a message: the exit status and the last lines of its error output.

        It never returns for a sandbox that ends because its block is left.
        """
        ...


class Driver(Protocol):
    """One way to isolate commands."""

    @property
    def name(self) -> str:
        """The name users write: `bubblewrap`."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""
        ...

    def availability(self) -> str | None:
        """Say quickly, and without side effects, whether this host can run it.

        :returns: None if it can, else what is missing and how to get it.
        """
        ...

    def check(self, spec: SandboxSpec) -> None:
        """Refuse a spec that this driver cannot honour in full.

        :raises DriverError: naming the field and what to write instead.
        """
        ...

    def start(self, spec: SandboxSpec, info: RunInfo) -> AbstractAsyncContextManager[Sandbox]:
        """Start a sandbox that lives as long as the block.

        :raises DriverError: it cannot be started.

        Leaving the block, cancelled or not, removes everything that the sandbox consists of; that part is shielded
        from cancellation and bounded in time.
        """
        ...
