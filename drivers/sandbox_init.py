"""The first process inside a sandbox: an exec server that the gateway drives over one inherited socket.

It runs alone, by path, as `python -I -S sandbox_init.py OPTIONS` or as its bytecode, on any Python from 3.10, before
and beside code that nobody trusts, and its start is on the critical path of every run. So: the standard library only,
and of that only what is written in C. `socket`, `json`, `signal`, `re` and `ctypes` would each add 5 to 10 ms for
conveniences that forty lines do without; that is why `_socket`, `_signal` and `_ctypes` are imported here by their
inner names. It is one file, and a long one, because one file is what travels into a sandbox.

Theory of operation
-------------------
The control socket is SOCK_SEQPACKET: one packet is one message, fields separated by NUL (no argument, variable or
path can hold one). Descriptors travel beside it as SCM_RIGHTS. A message that is too big for a packet comes as
`big` with a memfd that holds it, in front of its other descriptors.

    gateway -> init                                            init -> gateway
    exec    id cwd terminal|pipes argc argv... NAME=value...   ready                (with the listeners)
            fds: stdin stdout stderr, or the terminal          fatal text
    kill    id                                                 exit id code|signal n
    signal  id n                                               killed id remaining
    write   id path mode       fd: the data                    wrote id error
    probe   id seconds "kind address port"...                  probe id index 0|1 detail

Every command has a *keeper* between it and init:

    init (PID 1) --- keeper (child subreaper) --- command --- whatever it starts

Orphans and daemons climb to the nearest subreaper above them, so the processes of one command are exactly the
descendants of its keeper, whatever they do with sessions and process groups. The keeper reports how the command
ended, and goes when its last descendant went; a background child of a command that ended by itself thus stays until
the sandbox ends. A command may kill its keeper (they have the same user): then its processes become direct children
of init, where nothing but keepers has any business, and init kills them. A keeper that was stopped is told to go on.

Init and keepers are not dumpable, so that the same user cannot trace them or reach the control socket through
/proc. As PID 1, init cannot be killed from inside. It ends when the control socket ends, and the kernel then kills
everything else in its PID namespace. Without a PID namespace (`--host`) it kills its descendants itself.
"""

# ruff: noqa: SIM105 - contextlib would be one more import, see above

import _signal  # type: ignore[import-not-found]
import _socket
import errno
import fcntl
import os
import select
import sys
import time

try:
    import _ctypes
except ImportError:  # an interpreter without libffi: no subreaper, hence no safe kill
    _ctypes = None  # type: ignore[assignment]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import NoReturn

MAX_PACKET_BYTES = 65536
MAX_FDS = 8
MAX_DETAIL_CHARACTERS = 200
KILL_PASSES = 1000
"How often the process table is read for new children before they are killed regardless."
KILL_WAIT_S = 5.0
"How long killed processes may take to vanish (one in uninterruptible sleep does not)."
POLL_S = 0.001
STOPPED_POLL_MS = 100
"How long a new keeper may be silent before it is told to go on."
QUIET_PASSES = 2
"How many looks in a row must find no new process."

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
KEYCTL_JOIN_SESSION_KEYRING = 1
KEYCTL_NUMBERS = {"x86_64": 250, "aarch64": 219, "riscv64": 219, "loongarch64": 219, "ppc64le": 271, "s390x": 280}
TIOCSCTTY = 0x540E

SIGKILL, SIGTERM, SIGSTOP, SIGCHLD, SIGCONT = 9, 15, 19, 17, 18


def libc_call(name: str, *arguments: "int | None") -> int:
    """Call a C function of integers. Returns its result; the caller decides what -1 means."""
    address = _ctypes.dlsym(_ctypes.dlopen(None, 0), name)  # type: ignore[arg-type]
    return int(_ctypes.call_function(address, arguments))


def error_text(error: OSError) -> str:
    return (error.strerror or str(error))[:MAX_DETAIL_CHARACTERS]


class Control:
    """The control socket."""

    def __init__(self, fd: int) -> None:
        self.socket = _socket.socket(fileno=fd)
        os.set_inheritable(fd, False)

    def send(self, *fields: "bytes | str | int", fds: "Sequence[int]" = ()) -> None:
        """Send one message. A gateway that is gone is noticed by the reader, not here."""
        encoded = [field if isinstance(field, bytes) else str(field).encode() for field in fields]
        rights = b"".join(fd.to_bytes(4, sys.byteorder) for fd in fds)
        ancillary = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)] if fds else []
        try:
            self.socket.sendmsg([b"\0".join(encoded)], ancillary)
        except OSError:
            pass

    def receive(self) -> "tuple[list[bytes], list[int]] | None":
        """Receive one message and its descriptors, or None at the end."""
        try:
            data, ancillary, _, _ = self.socket.recvmsg(
                MAX_PACKET_BYTES, _socket.CMSG_SPACE(4 * MAX_FDS), _socket.MSG_CMSG_CLOEXEC
            )
        except OSError:
            return None
        fds = []
        for level, kind, raw in ancillary:
            if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
                fds += [int.from_bytes(raw[at : at + 4], sys.byteorder) for at in range(0, len(raw) - 3, 4)]
        if not data:
            return None
        if data == b"big":
            data = read_all(fds.pop(0))
        return data.split(b"\0"), fds


def read_all(fd: int) -> bytes:
    """Read a file from its start, and close it."""
    with open(fd, "rb") as file:
        file.seek(0)
        return file.read()


def process_table() -> "dict[int, tuple[int, bytes]]":
    """Every visible process: pid -> (parent, state letter)."""
    table = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    # The command in brackets may hold anything, brackets too: the last one ends it.
                    state, parent = file.read().rpartition(b")")[2].split(None, 2)[:2]
            except (OSError, ValueError):
                continue
            table[int(name)] = (int(parent), state)
    return table


def living_descendants(root: int) -> "list[int]":
    """All processes below `root` that are not zombies."""
    table = process_table()
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in table.items():
        children.setdefault(parent, []).append(pid)
    found, queue = [], [root]
    while queue:
        for pid in children.get(queue.pop(), ()):
            queue.append(pid)
            if table[pid][1] not in b"ZX":
                found.append(pid)
    return found


def send_signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        pass  # gone, or (on a host, after sudo) somebody else's


def kill_descendants(root: int, is_over: "Callable[[], bool]") -> int:
    """Kill every process below `root` until `is_over`. Returns how many are left.

    Killing one by one would race with forks. A process with a pending SIGSTOP cannot fork, so all are stopped first,
    until looks at the process table find no new one. No look is a proof, since reading the table takes time in which
    others fork and die; the proof is `is_over`: a subreaper that the kernel tells that it has no children.
    """
    stopped: set[int] = set()
    quiet = 0
    for _ in range(KILL_PASSES):
        fresh = set(living_descendants(root)) - stopped
        quiet = 0 if fresh else quiet + 1
        if quiet == QUIET_PASSES:
            break
        for pid in fresh:
            send_signal(pid, SIGSTOP)
        stopped |= fresh
    deadline = time.monotonic() + KILL_WAIT_S
    while True:
        living = living_descendants(root)
        for pid in living:
            send_signal(pid, SIGKILL)
        if is_over():
            return 0
        if time.monotonic() > deadline:
            return max(1, len(living))
        time.sleep(POLL_S)


def has_ended(pid: int) -> bool:
    """Whether a child of ours has ended, without collecting it."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def has_no_children() -> bool:
    """Collect what has ended. Returns whether that was all."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False


def reap_children() -> "list[tuple[int, int]]":
    """Collect every child that ended or was stopped: (pid, wait status)."""
    ended = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
        except ChildProcessError:
            break
        if pid == 0:
            break
        ended.append((pid, status))
    return ended


def reset_signals() -> None:
    """Give a command the dispositions it expects: Python ignores SIGPIPE, and init handles SIGCHLD."""
    _signal.set_wakeup_fd(-1)
    for number in range(1, 32):
        if number not in (SIGKILL, SIGSTOP):
            _signal.signal(number, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, [])


def candidates(program: bytes, search: bytes) -> "list[bytes]":
    """The files that `program` may mean."""
    if b"/" in program:
        return [program]
    return [(directory or b".") + b"/" + program for directory in search.split(b":")]


def execute(argv: "list[bytes]", variables: "list[bytes]") -> "tuple[int, str]":
    """Become the command. Returns only if that fails: the exit code and why."""
    environment = dict(variable.partition(b"=")[::2] for variable in variables)
    code, reason = 127, "No such file or directory"
    for path in candidates(argv[0], environment.get(b"PATH", b"/usr/local/bin:/usr/bin:/bin")):
        try:
            os.execve(path, argv, environment)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                code, reason = 126, error_text(error)
            if code == 127 and b"/" not in argv[0]:
                reason = "command not found"
    return code, reason


def run_command(fields: "list[bytes]", fds: "list[int]") -> "NoReturn":
    """In the forked child: set up as the message says, and become the command."""
    code, reason, argv = 126, "", [b"?"]
    try:
        directory, kind, count = fields[0], fields[1], int(fields[2])
        argv, variables = fields[3 : 3 + count], fields[3 + count :]
        os.setsid()
        if kind == b"terminal":
            # The command's controlling terminal is one that the gateway made for it, so what it pushes into it with
            # TIOCSTI, it reads itself; the user's own terminal is controlled by no process in here.
            fcntl.ioctl(fds[0], TIOCSCTTY, 0)
            fds = [fds[0]] * 3
        for target, fd in enumerate(fds):
            os.dup2(fd, target)
        try:
            os.chdir(directory)
        except OSError as error:
            reason = f"{error_text(error)}: the working directory {os.fsdecode(directory)}"
        else:
            reset_signals()
            code, reason = execute(argv, variables)
    except Exception as error:
        reason = str(error)
    message = f"iterion: cannot run {os.fsdecode(argv[0])}: {reason}\n"
    try:
        os.write(2, message.encode(errors="surrogateescape"))
    finally:
        os._exit(code)


def keep(
    control: Control, identity: bytes, fields: "list[bytes]", fds: "list[int]", report: int, host: bool
) -> "NoReturn":
    """In the forked keeper: start the command, report its end, outlive its descendants."""
    libc_call("prctl", PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    _signal.set_wakeup_fd(-1)
    _signal.signal(SIGCHLD, _signal.SIG_DFL)
    if host:  # should init be killed, there is no PID namespace that ends with it
        _signal.signal(SIGTERM, lambda _number, _frame: give_up())
        libc_call("prctl", PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0)
    main = os.fork()
    if main == 0:
        run_command(fields, fds)
    for fd in {*fds}:
        os.close(fd)
    os.write(report, str(main).encode())
    os.close(report)
    while True:
        try:
            pid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            os._exit(0)
        if pid == main:
            report_exit(control, identity, status)


def give_up() -> "NoReturn":
    """In a keeper without init: kill the command and its tree."""
    kill_descendants(os.getpid(), has_no_children)
    os._exit(1)


def report_exit(control: Control, identity: bytes, status: int) -> None:
    if os.WIFSIGNALED(status):
        control.send(b"exit", identity, b"signal", os.WTERMSIG(status))
    else:
        control.send(b"exit", identity, b"code", os.WEXITSTATUS(status))


def write_file(path: bytes, mode: int, data: int) -> str:
    """Write a file so that nobody ever sees half of it. Returns an error text, or nothing."""
    temporary = path + b".iterion-%d" % os.getpid()
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        target = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            while os.sendfile(target, data, None, 1 << 20):
                pass
            os.fchmod(target, mode)
        finally:
            os.close(target)
        os.rename(temporary, path)
    except OSError as error:
        try:
            os.unlink(temporary)
        except OSError:
            pass
        return error_text(error)
    return ""


DNS_QUERY = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x01"
"A query for the name servers of the root: every resolver can answer it, and it tells nobody anything."

UNREACHED = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EACCES, errno.EPERM, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
"Errors that mean that nothing left this host."


class Attempt:
    """One probe under way."""

    def __init__(self, target: bytes) -> None:
        kind, address, port = target.decode().split(" ")
        self.stream = kind == "tcp"
        self.result: tuple[int, str] | None = None
        family = _socket.AF_INET6 if ":" in address else _socket.AF_INET
        try:
            self.socket = _socket.socket(family, _socket.SOCK_STREAM if self.stream else _socket.SOCK_DGRAM)
            self.socket.setblocking(False)
            self.socket.connect((address, int(port)))
            if self.stream:
                self.result = (1, "connected")
            else:
                self.socket.send(DNS_QUERY)
        except BlockingIOError:
            pass
        except OSError as error:
            self.fail(error)

    def fail(self, error: OSError) -> None:
        # A refusal is an answer: the packet went out and something sent one back.
        self.result = (0 if error.errno in UNREACHED else 1, error_text(error))

    def finish(self) -> None:
        """The socket is ready: see why."""
        try:
            if not self.stream:
                self.socket.recv(512)
                self.result = (1, "got an answer")
                return
            code = self.socket.getsockopt(_socket.SOL_SOCKET, _socket.SO_ERROR)
            if code:
                raise OSError(code, os.strerror(code))
            self.result = (1, "connected")
        except BlockingIOError:
            pass
        except OSError as error:
            self.fail(error)


def probe(control: Control, identity: bytes, seconds: float, targets: "list[bytes]") -> None:
    """Try all targets at once and report each."""
    attempts = [Attempt(target) for target in targets]
    deadline = time.monotonic() + seconds
    while pending := [attempt for attempt in attempts if attempt.result is None]:
        left = deadline - time.monotonic()
        if left <= 0:
            break
        poller = select.poll()
        by_fd = {attempt.socket.fileno(): attempt for attempt in pending}
        for fd, attempt in by_fd.items():
            poller.register(fd, select.POLLOUT if attempt.stream else select.POLLIN)
        for fd, _ in poller.poll(left * 1000):
            by_fd[fd].finish()
    for index, attempt in enumerate(attempts):
        reached, detail = attempt.result or (0, "no answer")
        control.send(b"probe", identity, index, reached, detail)


class Init:
    """The state of init: which keeper keeps which command."""

    def __init__(self, control: Control, host: bool) -> None:
        self.control = control
        self.host = host
        self.keepers: dict[int, bytes] = {}
        "pid of a keeper -> id of its command"
        self.commands: dict[bytes, tuple[int, int]] = {}
        "id of a command -> (pid of its keeper, pid of the command)"
        self.helpers: set[int] = set()
        "pids of children that write a file or probe"

    def handle(self, fields: "list[bytes]", fds: "list[int]") -> None:
        """Do what one message says."""
        operation, identity = fields[0], fields[1]
        if operation == b"exec":
            try:
                self.start(identity, fields[2:], fds)
            except OSError as error:  # no more processes, memory or descriptors
                os.write(fds[-1], f"iterion: cannot start a process: {error_text(error)}\n".encode())
                self.control.send(b"exit", identity, b"code", 126)
        elif operation == b"kill":
            self.kill(identity)
        elif operation == b"signal":
            self.signal(identity, int(fields[2]))
        elif operation == b"write":
            self.help(lambda: self.control.send(b"wrote", identity, write_file(fields[2], int(fields[3], 8), fds[0])))
        elif operation == b"probe":
            self.help(lambda: probe(self.control, identity, float(fields[2]), fields[3:]))
        for fd in fds:
            os.close(fd)

    def start(self, identity: bytes, fields: "list[bytes]", fds: "list[int]") -> None:
        receiver, report = os.pipe()
        keeper = os.fork()
        if keeper == 0:
            try:
                os.close(receiver)
                keep(self.control, identity, fields, fds, report, self.host)
            finally:
                os._exit(1)
        os.close(report)
        poller = select.poll()
        poller.register(receiver, select.POLLIN)
        while not poller.poll(STOPPED_POLL_MS):
            send_signal(keeper, SIGCONT)  # another command may have stopped it, and all would wait here for ever
        main = os.read(receiver, 32)  # nothing, if the keeper could not fork: then its end is the report
        os.close(receiver)
        self.keepers[keeper] = identity
        self.commands[identity] = (keeper, int(main or b"0"))

    def help(self, work: "Callable[[], object]") -> None:
        """Do something that may block (a FIFO, a dead file system, a network) in a child."""
        pid = os.fork()
        if pid == 0:
            try:
                work()
            finally:
                os._exit(0)
        self.helpers.add(pid)

    def kill(self, identity: bytes) -> None:
        left = 0
        if identity in self.commands:
            keeper = self.commands[identity][0]
            left = kill_descendants(keeper, lambda: has_ended(keeper))
        self.control.send(b"killed", identity, left)

    def signal(self, identity: bytes, number: int) -> None:
        keeper, main = self.commands.get(identity, (0, 0))
        # The command's pid is free for reuse once its keeper has seen its end; a stranger has another parent.
        if main and process_table().get(main, (0, b""))[0] == keeper:
            send_signal(main, number)

    def reap(self) -> None:
        """Collect ended children, and kill what escaped from its keeper."""
        escaped = False
        for pid, status in reap_children():
            if os.WIFSTOPPED(status):
                if pid in self.keepers or pid in self.helpers:
                    send_signal(pid, SIGCONT)  # a command did it, so that nobody would hear of its end
                continue
            identity = self.keepers.pop(pid, None)
            self.helpers.discard(pid)
            if identity is not None:
                self.commands.pop(identity, None)
                if status != 0:  # it was killed, and its command is now ours
                    escaped = True
                    self.control.send(b"exit", identity, b"signal", SIGKILL)
        if escaped:
            self.kill_escaped()

    def kill_escaped(self) -> None:
        """Kill every child that is neither keeper nor helper, with all that is below it."""
        me, quiet = os.getpid(), 0
        deadline = time.monotonic() + KILL_WAIT_S
        while quiet < QUIET_PASSES and time.monotonic() < deadline:
            strangers = [
                pid
                for pid, (parent, state) in process_table().items()
                if parent == me and state not in b"ZX" and pid not in self.keepers and pid not in self.helpers
            ]
            quiet = 0 if strangers else quiet + 1
            for pid in strangers:
                send_signal(pid, SIGSTOP)
                kill_descendants(pid, lambda: True)  # once each; their orphans become strangers, for the next look
                send_signal(pid, SIGKILL)

    def run(self, wakeup: int) -> None:
        """Serve until the control socket ends."""
        poller = select.poll()
        poller.register(self.control.socket.fileno(), select.POLLIN)
        poller.register(wakeup, select.POLLIN)
        while True:
            ready = dict(poller.poll())
            if wakeup in ready:
                os.read(wakeup, 4096)
                self.reap()
            if self.control.socket.fileno() in ready:
                message = self.control.receive()
                if message is None:
                    return
                self.handle(*message)


def prepare(host: bool) -> int:
    """Set up this process. Returns the descriptor that wakes up when a child ends."""
    libc_call("prctl", PR_SET_DUMPABLE, 0, 0, 0, 0)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, [])
    for number in (1, 2, 3, 15):  # PID 1 is deaf to what has the default disposition; on a host, ignore it
        _signal.signal(number, _signal.SIG_IGN if host else _signal.SIG_DFL)
    receiver, sender = os.pipe()
    os.set_blocking(sender, False)
    _signal.set_wakeup_fd(sender, warn_on_full_buffer=False)
    _signal.signal(SIGCHLD, lambda _number, _frame: None)
    if host:
        libc_call("prctl", PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    elif (keyctl := KEYCTL_NUMBERS.get(os.uname().machine)) is not None:
        # The session keyring is inherited, namespaces or not, and with it the right to read the keys in it.
        libc_call("syscall", keyctl, KEYCTL_JOIN_SESSION_KEYRING, None)
    return receiver


def listen(port: int, backlog: int) -> "_socket.socket":
    """A listener on the loopback address of this network namespace."""
    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    listener.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(backlog)
    return listener


def main(arguments: "list[str]") -> int:
    """`--control FD [--host] [--listen PORT]... [--backlog N]`"""
    ports, backlog, host, control = [], 1024, False, None
    while arguments:
        option = arguments.pop(0)
        if option == "--host":
            host = True
        elif option == "--control":
            control = Control(int(arguments.pop(0)))
        elif option == "--listen":
            ports.append(int(arguments.pop(0)))
        elif option == "--backlog":
            backlog = int(arguments.pop(0))
    if control is None:
        return 2
    try:
        wakeup = prepare(host)
        listeners = [listen(port, backlog) for port in ports]
    except (OSError, AttributeError) as error:
        control.send(b"fatal", f"{type(error).__name__}: {error}"[:MAX_DETAIL_CHARACTERS])
        return 1
    control.send(b"ready", fds=[listener.fileno() for listener in listeners])
    # The gateway owns them now. A copy that stayed here would keep accepting connections nobody serves.
    for listener in listeners:
        listener.close()
    Init(control, host).run(wakeup)
    if host:
        kill_descendants(os.getpid(), has_no_children)
    return 0


if __name__ == "__main__":
    # No clean-up at the end: PID 1's exit is what ends the sandbox, and nothing here needs flushing.
    os._exit(main(sys.argv[1:]))
