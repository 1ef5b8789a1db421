"""A person's terminal joined to a command's: what passes, and what must not."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from tests.support.iterion import PYTHON, TIMEOUT_S, Iterion, check_record, python_code

pytestmark = pytest.mark.real


TAKE_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)
"Makes standard input the controlling terminal of a session that has none, and becomes another program."


@dataclass(kw_only=True)
class Terminal:
    """Our end of a pseudo-terminal, and the program that sits at the other end."""

    ours: int
    theirs: int
    process: "subprocess.Popen[bytes]"
    seen: bytes = b""
    modes: list[object] = field(default_factory=list)

    def read_until(self, text: bytes) -> bytes:
        """Read what appears on the terminal until it holds a text."""
        deadline = time.monotonic() + TIMEOUT_S
        while text not in self.seen:
            assert time.monotonic() < deadline, f"no {text!r} in {self.seen!r}"
            if select.select([self.ours], [], [], 0.1)[0]:
                self.seen += os.read(self.ours, 65536)
            elif self.process.poll() is not None and not select.select([self.ours], [], [], 0)[0]:
                raise AssertionError(f"ended without {text!r}: {self.seen!r}")
        return self.seen

    def wait(self) -> int:
        """Read everything until the program has ended; returns its exit code."""
        deadline = time.monotonic() + TIMEOUT_S
        while self.process.poll() is None or select.select([self.ours], [], [], 0)[0]:
            assert time.monotonic() < deadline, self.seen
            if select.select([self.ours], [], [], 0.05)[0]:
                self.seen += os.read(self.ours, 65536)
        return self.process.returncode

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self.ours, keys)

    def resize(self, rows: int, columns: int) -> None:
        """Change the size of the window; the kernel tells the program."""
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


@contextmanager
def at_terminal(
    iterion: Iterion, *command: str, stdout: int | None = None, options: Sequence[str] = ()
) -> Iterator[Terminal]:
    """Start a sandboxed command from a terminal of 33 rows and 111 columns, which is our program's controlling one."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 111, 0, 0))
    modes = termios.tcgetattr(theirs)

    with subprocess.Popen(
        [
            *(sys.executable, "-c", TAKE_TERMINAL),
            *iterion.command("sandbox", "run", "--quiet", *options, "--", *command),
        ],
        cwd=iterion.folder,
        env={**iterion.environment, "TERM": "xterm"},
        stdin=theirs,
        stdout=theirs if stdout is None else stdout,
        stderr=theirs,
        start_new_session=True,
    ) as process:
        try:
            yield Terminal(ours=ours, theirs=theirs, process=process, modes=modes)
        finally:
            process.kill()
            process.wait()
            os.close(ours)
            os.close(theirs)


def test_the_command_has_a_terminal_that_is_not_ours(iterion: Iterion) -> None:
    code = "import os; print([os.isatty(fd) for fd in range(3)], {os.fstat(fd).st_rdev for fd in range(3)}, 'end')"
    with at_terminal(iterion, *python_code(code)) as terminal:
        assert terminal.wait() == 0
        device = os.fstat(terminal.theirs).st_rdev
        assert termios.tcgetattr(terminal.theirs) == terminal.modes
    seen = terminal.seen.decode()
    assert "[True, True, True] {" in seen
    assert str(device) not in seen
    check_record(iterion.last, "done")


def test_the_window_s_size_is_passed_on_and_followed(iterion: Iterion) -> None:
    script = 'trap "stty size; exit 4" WINCH; stty size; while :; do sleep 0.05; done'
    with at_terminal(iterion, "sh", "-c", script) as terminal:
        terminal.read_until(b"33 111")
        terminal.resize(44, 99)
        terminal.read_until(b"44 99")
        assert terminal.wait() == 4


def test_ctrl_c_is_a_key_for_the_command_and_not_for_us(iterion: Iterion) -> None:
    script = 'trap "echo interrupted; exit 5" INT; echo ready; while :; do sleep 0.05; done'
    with at_terminal(iterion, "sh", "-c", script) as terminal:
        terminal.read_until(b"ready")
        terminal.type(b"\x03")
        terminal.read_until(b"interrupted")
        assert terminal.wait() == 5
        assert termios.tcgetattr(terminal.theirs) == terminal.modes
    check_record(iterion.last, "done")


def test_keys_and_output_are_passed_unchanged(iterion: Iterion) -> None:
    code = (
        "import sys, tty; tty.setraw(0); print('ready', end='', flush=True); "
        "data = sys.stdin.buffer.read(256); sys.stdout.buffer.write(b'<' + data + b'>'); sys.stdout.flush()"
    )
    keys = bytes(range(256))
    with at_terminal(iterion, *python_code(code)) as terminal:
        terminal.read_until(b"ready")
        terminal.type(keys)
        assert b"<" + keys + b">" in terminal.read_until(b"\xff>")
        assert terminal.wait() == 0


def test_everything_that_was_written_before_the_end_is_shown(iterion: Iterion) -> None:
    with at_terminal(iterion, "seq", "1", "60000") as terminal:
        assert terminal.wait() == 0
    assert terminal.seen.split() == [str(number).encode() for number in range(1, 60001)]


@pytest.mark.parametrize("signals", [[signal.SIGTERM], [signal.SIGHUP], [signal.SIGTERM, signal.SIGTERM]])
def test_modes_are_put_back_when_the_run_is_stopped(iterion: Iterion, signals: list[signal.Signals]) -> None:
    with at_terminal(iterion, "sh", "-c", "echo ready; sleep 1000") as terminal:
        terminal.read_until(b"ready")
        assert termios.tcgetattr(terminal.theirs) != terminal.modes
        for number in signals:
            terminal.process.send_signal(number)
        assert terminal.wait() == 128 + signals[0]
        assert termios.tcgetattr(terminal.theirs) == terminal.modes
    check_record(iterion.last, "cancelled")


def test_what_the_command_does_to_its_terminal_stays_there(iterion: Iterion) -> None:
    code = """
import fcntl, os, sys, termios, tty
with open("/dev/tty", "w") as own:
    own.write("through /dev/tty\\n")
tty.setraw(0)
for key in b"echo pushed\\n":
    try:
        fcntl.ioctl(0, termios.TIOCSTI, bytes([key]))
    except OSError as error:
        print("refused", error.errno, end="\\r\\n")
        break
print("tried", end="\\r\\n")
"""
    with at_terminal(iterion, *python_code(code)) as terminal:
        assert terminal.wait() == 0
        assert b"through /dev/tty" in terminal.seen
        assert b"tried" in terminal.seen
        assert termios.tcgetattr(terminal.theirs) == terminal.modes
        os.set_blocking(terminal.theirs, False)
        with pytest.raises(BlockingIOError):  # nothing was typed for whoever reads this terminal next
            os.read(terminal.theirs, 100)


def test_a_terminal_at_one_end_only_is_not_passed_either(iterion: Iterion) -> None:
    code = (
        "import os, sys; print([os.isatty(fd) for fd in range(3)]); print(sys.stdin.readline()); "
        "print('to stderr', file=sys.stderr)"
    )
    with (
        (iterion.folder / "out").open("wb") as out,
        at_terminal(iterion, *python_code(code), stdout=out.fileno()) as terminal,
    ):
        terminal.type(b"a line\n")
        assert terminal.wait() == 0
        assert termios.tcgetattr(terminal.theirs) == terminal.modes
    assert (iterion.folder / "out").read_text() == "[False, False, False]\na line\n\n"
    assert b"to stderr" in terminal.seen


def test_ctrl_c_stops_a_run_whose_output_is_no_terminal(iterion: Iterion) -> None:
    command = ("sh", "-c", "echo ready >&2; sleep 1000")
    with (iterion.folder / "out").open("wb") as out, at_terminal(iterion, *command, stdout=out.fileno()) as terminal:
        terminal.read_until(b"ready")
        terminal.type(b"\x03")
        assert terminal.wait() == 130
    check_record(iterion.last, "cancelled")


def test_the_end_of_the_keys_ends_the_command_s_input(iterion: Iterion) -> None:
    with (iterion.folder / "out").open("wb") as out, at_terminal(iterion, "cat", stdout=out.fileno()) as terminal:
        terminal.type(b"all of it\n\x04")
        assert terminal.wait() == 0
    assert (iterion.folder / "out").read_text() == "all of it\n"


def test_a_terminal_that_nobody_reads_does_not_stop_the_run_from_ending(iterion: Iterion) -> None:
    with at_terminal(iterion, "sh", "-c", "echo ready; yes") as terminal:
        terminal.read_until(b"ready")
        time.sleep(0.3)  # until the terminal is full
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.process.wait(10) == 143
    check_record(iterion.last, "cancelled")


def test_the_proxy_goes_on_while_the_terminal_is_full(iterion: Iterion) -> None:
    script = (
        "yes & "
        f'{PYTHON} -c "import os, socket; from urllib.parse import urlsplit; '
        "p = urlsplit(os.environ['HTTPS_PROXY']); s = socket.create_connection((p.hostname, p.port)); "
        "s.sendall(b'CONNECT a.test:443 HTTP/1.1\\r\\nHost: a.test:443\\r\\n\\r\\n'); "
        "open('answer', 'wb').write(s.recv(1000))\"; sleep 1000"
    )
    with at_terminal(iterion, "sh", "-c", script, options=["--allow", "a.test"]):
        answer = iterion.folder / "answer"
        deadline = time.monotonic() + 20
        while not (answer.exists() and answer.read_bytes()):
            assert time.monotonic() < deadline
            time.sleep(0.02)
    assert answer.read_bytes().startswith(b"HTTP/1.1 407")
