"""The embedded default: a sandbox made of Linux namespaces by bubblewrap. No engine, no image, no root.

Theory of operation
-------------------
bubblewrap makes the namespaces and the view (see `bubblewrap_view.py`) and becomes, as PID 1 inside, our init. With
an isolated network, init opens the two listeners in the sandbox's own network namespace, before anybody else runs
there, and hands their descriptors out: what the gateway accepts on them comes from inside, and nothing inside leads
anywhere else. There is no relay and no firewall.

    gateway --(Popen, PDEATHSIG)--> bwrap --(PDEATHSIG, new namespaces)--> init (PID 1) --> keepers --> commands
       \\______________________________ control socket ______________________/

Everything ends when any link of that chain does. A gateway that is killed takes bwrap with it (--die-with-parent),
bwrap takes init, and the kernel takes whatever is left in init's PID namespace. Should bwrap have been spawned by a
parent that died before it could ask to die too, the control socket ends, and so does init.

Inside, the user has the same ids as outside, no capabilities, no way to gain any (no_new_privs, --disable-userns), none
of the system calls that reach past the namespaces (see `seccomp.py`), a session keyring of its own, and a terminal only
if the gateway made one for it.

With the host's network (no policy, or one that is only advice) abstract unix sockets of the host can be reached too:
they belong to the network namespace.
"""

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from drivers.base import Capabilities, DriverError, RunInfo
from drivers.bubblewrap_view import HostFacts, Plan, plan_view, running_python
from drivers.environment import DEFAULT_PATH, base_environment
from drivers.git_guard import remember, remove_planted, without_commondir
from drivers.host_paths import find_homes
from drivers.init_client import InitClient
from drivers.init_sandbox import LISTENER_NAMES, LISTENER_PORTS, InitSandbox
from drivers.init_session import InitSession, init_arguments, init_bytecode, run_init
from drivers.mount_table import read_mount_table
from drivers.mounts import MountError, parse_mount
from drivers.seccomp import seccomp_program
from drivers.spawn import SandboxRoot, memory_file
from drivers.spec import SandboxSpec
from drivers.unix_sockets import bound_sockets
from drivers.view import View

MISSING = (
    "bubblewrap is not installed; get it with `apt-get install bubblewrap` (or `dnf`, `apk`, `nix profile install`)"
)
TOO_OLD = "bubblewrap 0.8.0 or newer is needed (for --disable-userns); upgrade it"
TRIAL_TIMEOUT_S = 5.0
INIT_INSIDE = "/run/iterion/init.pyc"

NAMESPACES = (
    *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--disable-userns"),
    *("--cap-drop", "ALL", "--die-with-parent", "--new-session", "--as-pid-1"),
)

SYSCTLS = (
    ("user/max_user_namespaces", "0", "user.max_user_namespaces=15000"),
    ("kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
    ("kernel/apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns=0"),
)
"""Settings that forbid user namespaces: where, the value that does, what to write instead."""


class BubblewrapDriver:
    """Runs commands in Linux namespaces; see `drivers.base.Driver`."""

    name = "bubblewrap"
    capabilities = Capabilities(
        isolates=True,
        enforces_egress=True,
        images=False,
        build=False,
        mounts=True,
        remote_user=False,
        post_create=True,
    )

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        """Make it.

        :param environ: says where bubblewrap and the home directory are; by default the environment of this process.
        """
        self._environ = os.environ if environ is None else environ

    def _program(self) -> str | None:
        return shutil.which("bwrap", path=self._environ.get("PATH", DEFAULT_PATH))

    def availability(self) -> str | None:
        """Whether bubblewrap is here and namespaces are allowed; see `drivers.base.Driver.availability`."""
        if sys.platform != "linux":
            return "the bubblewrap driver needs Linux"
        program = self._program()
        if program is None:
            return MISSING
        if os.path.exists("/proc/sys/user") and _sysctl("user/max_user_namespaces") == "0":
            return forbidden_namespaces()
        if _has_restrictions() and (said := _trial(program)) is not None:
            return explain_failure(said)
        return None

    def check(self, spec: SandboxSpec) -> None:
        """Refuse what only a container engine could do; see `drivers.base.Driver.check`."""
        problems = []
        if spec.image is not None:
            problems.append(
                f"image: {spec.image} needs a container engine; leave it out (mode: auto uses this host's tools)"
            )
        if spec.build is not None:
            problems.append("build: needs a container engine; leave it out (mode: auto uses this host's tools)")
        if spec.user is not None and spec.user not in _own_names():
            problems.append(f"user: {spec.user} is not the user who runs this; leave it out")
        for name, value in (("cpus", spec.cpus), ("memory", spec.memory), ("pids", spec.pids)):
            if value is not None:
                problems.append(f"{name}: {value} cannot be enforced without a container engine; leave it out")
        for text in spec.mounts:
            try:
                kind = parse_mount(text).type
            except MountError as error:
                problems.append(str(error))
            else:
                if kind not in ("bind", "tmpfs"):
                    problems.append(f"mounts: type={kind} needs another driver; write type=bind or type=tmpfs")
        if problems:
            raise DriverError("the bubblewrap driver cannot do this:\n" + "\n".join(problems))

    @asynccontextmanager
    async def start(self, spec: SandboxSpec, info: RunInfo) -> AsyncIterator[InitSandbox]:
        """Start a sandbox; see `drivers.base.Driver.start`."""
        self.check(spec)
        program = self._program()
        if program is None:
            raise DriverError(MISSING)
        folder = tempfile.mkdtemp(prefix="bubblewrap-", dir=info.scratch)
        planted: list[str] = []
        try:
            async with AsyncExitStack() as stack:
                plan, session = await self._start(stack, program, spec, info, folder)
                planted = without_commondir(list(plan.git_directories))
                remember(planted, folder)
                yield self._assemble(plan, session, spec, info)
        finally:
            remove_planted(planted)
            shutil.rmtree(folder, ignore_errors=True)

    async def _start(
        self, stack: AsyncExitStack, program: str, spec: SandboxSpec, info: RunInfo, folder: str
    ) -> tuple[Plan, InitSession]:
        """Plan and start, once more if the file system changed between the two."""
        for attempt in (1, 2):
            host = HostFacts(
                homes=find_homes(self._environ, mounts=read_mount_table()),
                environ=self._environ,
                sockets=bound_sockets(),
                python=running_python(),
            )
            plan = plan_view(spec, info, host, _empty_view(folder))
            ports = LISTENER_PORTS if info.network == "isolated" else ()
            try:
                spawn = functools.partial(_spawn, program, plan, info, ports)
                session = await stack.enter_async_context(run_init(spawn, listener_count=len(ports)))
            except DriverError as error:
                if attempt == 1 and "No such file or directory" in str(error):
                    continue
                raise DriverError(explain_failure(str(error))) from None
            return plan, session
        raise AssertionError("unreachable")

    def _assemble(self, plan: Plan, session: InitSession, spec: SandboxSpec, info: RunInfo) -> InitSandbox:
        async def connect() -> InitClient:
            return session.client

        return InitSandbox(
            driver=self.name,
            workspace=plan.workspace,
            environment={**base_environment(self._environ, plan.home), **spec.env},
            connect=connect,
            wait_lost=session.wait_lost,
            isolated=info.network == "isolated",
            listeners=dict(zip(LISTENER_NAMES, session.listeners, strict=False)),
            host_state_mounts=plan.host_state_mounts,
        )


def _empty_view(folder: str) -> View:
    empty_file, empty_directory = Path(folder, "empty"), Path(folder, "nothing")
    empty_file.touch(0o444)
    empty_directory.mkdir(0o555, exist_ok=True)
    return View(empty_file=str(empty_file), empty_directory=str(empty_directory))


def _spawn(program: str, plan: Plan, info: RunInfo, ports: tuple[int, ...], control_fd: int) -> SandboxRoot:
    """Spawn bubblewrap. Its options travel in a memfd: there are many, and they name files of the user's."""
    network = ("--unshare-net",) if info.network == "isolated" else ()
    ids = ("--uid", str(os.getuid()), "--gid", str(os.getgid()))
    fds = []
    try:
        options = [*NAMESPACES, *network, *ids, *plan.options]
        for data, path in plan.files:
            fds.append(memory_file(data))
            options += ["--perms", "0644", "--file", str(fds[-1]), path]
        fds.append(memory_file(init_bytecode()))
        options += ["--perms", "0444", "--ro-bind-data", str(fds[-1]), INIT_INSIDE, "--chdir", plan.workspace]
        if (filter_program := seccomp_program(os.uname().machine)) is not None:
            fds.append(memory_file(filter_program))
            options += ["--seccomp", str(fds[-1])]
        fds.append(memory_file("\0".join([*options, ""]).encode(errors="surrogateescape")))
        init = init_arguments(plan.python, INIT_INSIDE, control_fd, ports, host=False)
        return SandboxRoot([program, "--args", str(fds[-1]), "--", *init], {}, [control_fd, *fds], "/")
    except OSError as error:
        raise DriverError(f"cannot start {program}: {error}") from error
    finally:
        for fd in fds:
            os.close(fd)


def _own_names() -> tuple[str, ...]:
    uid, gid = os.getuid(), os.getgid()
    return (str(uid), f"{uid}:{gid}", *(("root",) if uid == 0 else ()))


def _sysctl(name: str) -> str | None:
    try:
        return Path("/proc/sys", name).read_text().strip()
    except OSError:
        return None


def forbidden_namespaces() -> str:
    """Why user namespaces cannot be made, as far as the system's settings tell."""
    for name, value, cure in SYSCTLS:
        if _sysctl(name) == value:
            return f"this system forbids user namespaces ({name.replace('/', '.')} is {value}); run `sysctl -w {cure}`"
    return (
        "this system forbids user namespaces, as containers usually do by their seccomp profile; "
        "allow them there (docker: --security-opt seccomp=unconfined), or run on the host itself"
    )


def _has_restrictions() -> bool:
    """Whether something here makes a trial worth its ten milliseconds."""
    if any(_sysctl(name) == value for name, value, _ in SYSCTLS):
        return True
    try:
        return "\nSeccomp:\t0" not in Path("/proc/self/status").read_text()
    except OSError:
        return True


def _trial(program: str) -> str | None:
    """Make a sandbox that does nothing. Returns what bubblewrap said if it could not."""
    argv = [program, *NAMESPACES, "--unshare-net", "--ro-bind", "/", "/", "--proc", "/proc", program, "--version"]
    try:
        done = subprocess.run(
            argv, env={}, stdin=subprocess.DEVNULL, capture_output=True, timeout=TRIAL_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if done.returncode == 0 else done.stderr.decode(errors="replace").strip()


def explain_failure(said: str) -> str:
    """A message with a cure for what bubblewrap said when it failed."""
    if "nknown option" in said:
        return TOO_OLD
    if any(word in said for word in ("namespace", "uid map", "RTM_NEWADDR", "loopback", "Failed to mount")):
        return f"bubblewrap failed: {said}; {forbidden_namespaces()}"
    if "Permission denied" in said or "No such file" in said:
        return f"bubblewrap failed: {said}; look at that path's permissions, or leave it out of the mounts"
    return f"bubblewrap failed: {said}"
