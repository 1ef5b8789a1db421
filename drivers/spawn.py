"""Starting the process that holds a sandbox, and noticing when it ends."""

import os
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence

import trio

MAX_STDERR_BYTES = 2048
"""How much of the end of its error output goes into a message."""


class SandboxRoot:
    """The outermost process of a sandbox, as seen from the host.

    It is spawned by `subprocess.Popen` on the thread that runs trio, never by `trio.lowlevel.open_process`: that one
    forks in a worker thread, and PR_SET_PDEATHSIG, which makes a sandbox die with its gateway, fires at the end of
    the *thread* that forked. A worker thread that idles out would kill the sandbox in the middle of a run.

    Its error output goes to a memfd: nothing has to read it while it runs, and its end is there when it is needed.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], pass_fds: Sequence[int], cwd: str) -> None:
        """Spawn it.

        :raises OSError: the program cannot be executed.
        """
        self._waiting = trio.Lock()
        self._stderr = os.memfd_create("iterion-stderr", os.MFD_CLOEXEC)
        try:
            self._process = subprocess.Popen(
                argv,
                env=dict(env),
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._stderr,
                pass_fds=pass_fds,
                start_new_session=True,  # a Ctrl-C on our terminal is for us alone; we then end the sandbox in order
            )
            self._pidfd = os.pidfd_open(self._process.pid)
        except BaseException:
            os.close(self._stderr)
            raise

    @property
    def pid(self) -> int:
        """Its process id in our PID namespace."""
        return self._process.pid

    async def wait(self) -> int:
        """Wait for its end. Returns the exit code, or minus the signal number. Several tasks may wait.

        Cancellation leaves it running.
        """
        async with self._waiting:  # trio lets one task wait for a descriptor
            while (code := self._process.poll()) is None:
                await trio.lowlevel.wait_readable(self._pidfd)
        return code

    def kill(self) -> None:
        """Kill it at once. For bubblewrap that kills everything inside."""
        self._process.kill()

    def describe_end(self) -> str:
        """How it ended and what it said last, for a message; for after `wait`."""
        code = self._process.returncode
        if code is None:
            how = "still running"
        elif code < 0:
            how = f"killed by {signal.Signals(-code).name}" if -code in set(signal.Signals) else f"killed by {-code}"
        else:
            how = f"exit status {code}"
        said = self.stderr_tail()
        return f"{how}: {said}" if said else how

    def stderr_tail(self) -> str:
        """The last lines of its error output, on one line."""
        size = os.fstat(self._stderr).st_size
        data = os.pread(self._stderr, MAX_STDERR_BYTES, max(0, size - MAX_STDERR_BYTES))
        lines = [line for line in data.decode(errors="replace").splitlines() if line.strip()]
        return "".join(c if c.isprintable() else "?" for c in "; ".join(lines[-5:]))

    def close(self) -> None:
        """Close our descriptors; for after its end."""
        os.close(self._pidfd)
        os.close(self._stderr)


def control_pair() -> tuple[socket.socket, socket.socket]:
    """The two ends of a control socket, ours first."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def memory_file(data: bytes) -> int:
    """An anonymous file with `data`, read from its start; the caller closes it."""
    fd = os.memfd_create("iterion", os.MFD_CLOEXEC)
    with open(fd, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
