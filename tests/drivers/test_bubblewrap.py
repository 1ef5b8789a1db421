"""What bubblewrap adds to the contract: nothing of the host but what is meant to be seen, and no way out."""

import errno
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from drivers import bubblewrap
from drivers.base import DriverError, RunInfo, Sandbox
from drivers.bubblewrap import BubblewrapDriver, explain_failure
from drivers.spec import BuildSpec, SandboxSpec
from tests.drivers.helpers import PATH, run, run_info
from tests.support.ordinary_user import OrdinaryUser

pytestmark = pytest.mark.real

CREDENTIALS = (
    ".aws/credentials",
    ".ssh/id_ed25519",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".docker/config.json",
    ".kube/config",
    ".gnupg/private-keys-v1.d/key",
    ".git-credentials",
    ".config/gcloud/credentials.db",
    ".config/gh/hosts.yml",
    ".mozilla/firefox/profile/logins.json",
    ".azure/token",
    ".iterion/runs/x/events.jsonl",
    ".cargo/credentials.toml",
    ".local/share/uv/credentials/x",
    ".local/share/keyrings/login.keyring",
    ".nvm/versions/node/v22/etc/npmrc",
    ".volta/tools/image/node/22/etc/npmrc",
    ".pyenv/versions/3.12/pip.conf",
    ".local/share/virtualenvs/project/pip.conf",
    "id_rsa",
    "server.pem",
    "snap/firefox/profile",
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home as people have them."""
    home = tmp_path / "home"
    for name in (*CREDENTIALS, "notes.txt", "project/main.c", ".cargo/bin/tool", ".pyenv/version", ".claude/state"):
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("SECRET" if name in CREDENTIALS else "plain")
    (home / "link").symlink_to(".ssh/id_ed25519")
    (home / ".gitconfig").write_text(
        '[user]\n\tname = Jo Doe\n\temail = jo@example.org\n[http]\n\textraHeader = "SECRET"\n'
        '[url "https://SECRET@github.com/"]\n\tinsteadOf = https://github.com/\n[alias]\n\tx = !SECRET\n'
    )
    return home


@pytest.fixture
def driver(home: Path) -> BubblewrapDriver:
    environ = {"PATH": PATH, "HOME": str(home), "LC_ALL": "C.UTF-8", "GITHUB_TOKEN": "SECRET", "SSH_AUTH_SOCK": "/x"}
    return BubblewrapDriver({**environ, "AWS_SECRET_ACCESS_KEY": "SECRET", "DOCKER_HOST": "x", "TERM": "xterm"})


@pytest.fixture
async def sandbox(driver: BubblewrapDriver, tmp_path: Path) -> AsyncIterator[Sandbox]:
    async with driver.start(SandboxSpec(), run_info(tmp_path)) as started:
        yield started


async def test_the_environment_is_an_allowlist(sandbox: Sandbox, home: Path) -> None:
    variables = dict(line.split("=", 1) for line in (await run(sandbox, ["env"])).out.splitlines())
    assert variables == {"PATH": PATH, "HOME": str(home), "LC_ALL": "C.UTF-8", "TERM": "xterm"}


async def test_no_credential_is_to_be_found(sandbox: Sandbox, home: Path) -> None:
    found = await run(sandbox, ["grep", "-rsl", "SECRET", str(home)])
    assert found.out == ""
    for name in CREDENTIALS:
        assert (await run(sandbox, ["cat", f"{home}/{name}"])).out == ""
    assert (await run(sandbox, ["cat", f"{home}/link"])).out == ""


async def test_the_rest_of_the_home_shows_read_only(sandbox: Sandbox, home: Path) -> None:
    shown = await run(sandbox, "cd; cat notes.txt project/main.c .cargo/bin/tool .pyenv/version; ls -A")
    assert shown.out.startswith("plain" * 4)
    assert set(shown.out[20:].split()) == {
        "notes.txt",
        "project",
        "link",
        ".cargo",
        ".pyenv",
        ".local",
        ".nvm",
        ".volta",
        ".claude",
        ".gitconfig",
    }
    denied = await run(sandbox, "cd; echo x >notes.txt; echo x >project/main.c; rm notes.txt; touch .cargo/bin/x")
    assert denied.err.count("ead-only file system") + denied.err.count("busy") >= 3
    assert (home / "notes.txt").read_text() == "plain"


async def test_the_home_is_writable_and_private(sandbox: Sandbox, home: Path) -> None:
    script = "cd && mkdir -p .cache/pip .npm .config/x .ssh && echo x >.npmrc && echo x >new && cat new .npmrc"
    assert (await run(sandbox, script)).out == "x\nx\n"
    assert not (home / "new").exists()
    assert (home / ".npmrc").read_text() == "SECRET"


async def test_git_knows_the_author_and_nothing_else(sandbox: Sandbox) -> None:
    assert (await run(sandbox, ["git", "config", "--global", "--list"])).out == (
        "user.name=Jo Doe\nuser.email=jo@example.org\n"
    )


async def test_host_state(driver: BubblewrapDriver, tmp_path: Path, home: Path) -> None:
    (home / ".claude" / "settings.json").write_text("{}")
    async with driver.start(SandboxSpec(), run_info(tmp_path)) as sandbox:
        assert sandbox.host_state_mounts == (f"{home}/.claude:{home}/.claude",)
        result = await run(sandbox, "cd ~/.claude && echo written >state && echo evil >settings.json")
        assert "ead-only" in result.err
    assert (home / ".claude" / "state").read_text() == "written\n"
    async with driver.start(SandboxSpec(host_state="none"), run_info(tmp_path)) as sandbox:
        assert sandbox.host_state_mounts == ()
        assert (await run(sandbox, "ls ~/.claude")).status.returncode != 0


async def test_the_workspace_is_writable_at_its_own_path(sandbox: Sandbox, tmp_path: Path) -> None:
    assert sandbox.workspace == str(tmp_path / "workspace")
    assert (await run(sandbox, "echo data >file && pwd")).out == f"{tmp_path}/workspace\n"
    assert (tmp_path / "workspace" / "file").read_text() == "data\n"
    assert os.stat(tmp_path / "workspace" / "file").st_uid == os.getuid()


async def test_the_workspace_at_another_path(driver: BubblewrapDriver, tmp_path: Path) -> None:
    async with driver.start(SandboxSpec(workspace_folder="/workspace"), run_info(tmp_path)) as sandbox:
        assert (await run(sandbox, "pwd; echo data >file; ls /")).out.startswith("/workspace\n")
    assert (tmp_path / "workspace" / "file").exists()
    with pytest.raises(DriverError, match="workspace_folder /usr/new"):
        async with driver.start(SandboxSpec(workspace_folder="/usr/new"), run_info(tmp_path)):
            pass


async def test_the_system_is_read_only_and_the_rest_is_private(sandbox: Sandbox, tmp_path: Path) -> None:
    script = "for d in / /etc /usr /var /opt /sys /root /home; do touch $d/x 2>/dev/null && echo $d; done; true"
    assert (await run(sandbox, script)).out == ""
    script = "for d in /tmp /var/tmp /dev/shm /run; do touch $d/x && echo ok; done; ls -A /root /home /boot 2>&1"
    result = await run(sandbox, script)
    assert result.out.startswith("ok\n" * 4)
    assert str(tmp_path) not in result.out
    for secret in ("/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/ssh/ssh_host_ed25519_key", "/proc/kcore"):
        assert (await run(sandbox, ["head", "-c", "1", secret])).out == ""
    assert (await run(sandbox, "echo 1 >/proc/sys/kernel/printk; echo h >/proc/sysrq-trigger")).status.returncode != 0


async def test_scratch_and_the_run_store_are_hidden(driver: BubblewrapDriver, tmp_path: Path) -> None:
    store = tmp_path / "workspace" / "store"
    store.mkdir(parents=True)
    (store / "events.jsonl").write_text("record")
    info = run_info(tmp_path, hidden=(store,))
    async with driver.start(SandboxSpec(), info) as sandbox:
        result = await run(sandbox, f"ls -A store; echo x >store/events.jsonl; ls -A {info.scratch}")
        assert "events" not in result.out
    assert (store / "events.jsonl").read_text() == "record"


async def test_no_privileges(sandbox: Sandbox) -> None:
    status = (await run(sandbox, "cat /proc/self/status")).out
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert {fields[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert fields["NoNewPrivs"] == "1"
    assert fields["Uid"].split()[0] == str(os.getuid())
    assert (await run(sandbox, ["unshare", "-U", "true"])).status.returncode != 0
    assert (await run(sandbox, ["mount", "-t", "tmpfs", "x", "/tmp"])).status.returncode != 0


async def test_only_the_sandbox_s_own_processes_are_there(sandbox: Sandbox) -> None:
    pids = [int(name) for name in (await run(sandbox, ["ls", "/proc"])).out.split() if name.isdigit()]
    assert 1 in pids
    assert len(pids) <= 4


@pytest.mark.parametrize("what", ["environ", "maps", "fd/3", "mem"])
async def test_init_cannot_be_looked_into(sandbox: Sandbox, what: str) -> None:
    assert (await run(sandbox, ["cat", f"/proc/1/{what}"])).status.returncode != 0


async def test_init_cannot_be_killed_or_robbed(sandbox: Sandbox) -> None:
    script = (
        "import ctypes, os, signal\n"
        "for number in (1, 2, 3, 9, 15, 17, 19):\n os.kill(1, number)\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "for pid in (1, os.getppid()):\n"
        " assert libc.ptrace(16, pid, 0, 0) == -1\n"
        " pidfd = os.pidfd_open(pid)\n"
        " assert [libc.syscall(438, pidfd, fd, 0) for fd in range(3, 16)] == [-1] * 13\n"
        "print('alive')\n"
    )
    result = await run(sandbox, ["python3", "-c", script])
    assert (result.out, result.err) == ("alive\n", "")
    assert (await run(sandbox, "kill -9 -1; true")).status.returncode in (0, 137)
    assert (await run(sandbox, "echo again")).out == "again\n"


async def test_the_terminal_of_the_gateway_is_out_of_reach(sandbox: Sandbox) -> None:
    assert (await run(sandbox, "echo x >/dev/tty")).status.returncode != 0


async def test_direct_egress_is_impossible(sandbox: Sandbox) -> None:
    results = await sandbox.probe_egress()
    assert len(results) == 5
    assert [result.reached for result in results] == [False] * 5
    assert {result.target for result in results} >= {"tcp 169.254.169.254:80", "udp 8.8.8.8:53"}


async def test_H50_what_a_command_thinks_of_proxies_does_not_matter(sandbox: Sandbox) -> None:
    script = "import socket; socket.create_connection(('192.0.2.1', 443), 5)"
    result = await run(sandbox, ["python3", "-c", script], env={"NO_PROXY": "*", "no_proxy": "*"})
    assert os.strerror(errno.ENETUNREACH) in result.err
    interfaces = (await run(sandbox, ["ls", "/proc/self/net/"])).status.returncode
    assert interfaces == 0
    assert (await run(sandbox, "tail -n +3 /proc/net/dev")).out.split(":")[0].strip() == "lo"


async def test_the_listeners_were_born_inside(sandbox: Sandbox) -> None:
    assert sandbox.proxy_endpoint == ("127.0.0.1", 3128)
    assert set(sandbox.listeners) == {"proxy", "mcp"}
    for name, port in (("proxy", 3128), ("mcp", 3129)):
        listener = sandbox.listeners[name]
        assert listener.getblocking() is False
        assert listener.getsockname() == ("127.0.0.1", port)
        script = f"import socket; s = socket.create_connection(('127.0.0.1', {port})); print(s.recv(9).decode())"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve_once, listener, b"hello")
            assert (await run(sandbox, ["python3", "-c", script])).out == "hello\n"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", 3129), 1).close()


async def serve_once(listener: socket.socket, data: bytes) -> None:
    with trio.socket.from_stdlib_socket(listener.dup()) as ours:
        connection, _ = await ours.accept()
        with connection:
            await connection.send(data)


async def test_the_network_of_the_host_on_request(driver: BubblewrapDriver, tmp_path: Path) -> None:
    async with driver.start(SandboxSpec(), run_info(tmp_path, network="host")) as sandbox:
        assert sandbox.listeners == {}
        own = os.readlink("/proc/self/ns/net")
        assert (await run(sandbox, ["readlink", "/proc/self/ns/net"])).out == f"{own}\n"
        assert all(result.reached for result in await sandbox.probe_egress())  # without sending anything


async def test_unix_sockets_of_the_host_are_out_of_reach(driver: BubblewrapDriver, tmp_path: Path) -> None:
    info = run_info(tmp_path)
    names = [info.workspace / "agent.sock", Path(os.environ["HOME"]) / f"it-{os.getpid()}.sock"]
    data = tmp_path / "data"
    data.mkdir()
    names.append(data / "daemon.sock")
    sockets = [socket.socket(socket.AF_UNIX, kind) for kind in (1, 1, 2)]
    try:
        for each, name in zip(sockets, names, strict=True):
            each.bind(str(name))
        sockets[0].listen()
        sockets[1].listen()
        abstract = socket.socket(socket.AF_UNIX)
        sockets.append(abstract)
        abstract.bind(f"\0it-{os.getpid()}")
        abstract.listen()
        spec = SandboxSpec(mounts=(f"type=bind,source={data},target=/elsewhere",))
        async with driver.start(spec, info) as sandbox:
            for kind, place in ((1, names[0]), (1, names[1]), (2, names[2]), (2, "/elsewhere/daemon.sock")):
                script = f"import socket; socket.socket(socket.AF_UNIX, {kind}).connect({str(place)!r})"
                assert (await run(sandbox, ["python3", "-c", script])).status.returncode == 1, place
            script = f"import socket; socket.socket(socket.AF_UNIX).connect('\\0it-{os.getpid()}')"
            assert "refused" in (await run(sandbox, ["python3", "-c", script])).err
    finally:
        for each in sockets:
            each.close()
        for name in names:
            name.unlink(missing_ok=True)


async def test_mounts(driver: BubblewrapDriver, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "file").write_text("content")
    spec = SandboxSpec(
        mounts=(
            f"type=bind,source={data},target=/cache",
            "type=bind,source=${localEnv:HOME}/project,target=/data/project,readonly",
            "type=tmpfs,target=/fresh",
        )
    )
    async with driver.start(spec, run_info(tmp_path)) as sandbox:
        assert (await run(sandbox, "cat /cache/file /data/project/main.c; echo x >/cache/new; ls /fresh")).out == (
            "contentplain"
        )
        assert "ead-only" in (await run(sandbox, "touch /data/project/x")).err
        assert (await run(sandbox, "touch /fresh/x && echo ok")).out == "ok\n"
    assert (data / "new").exists()


@pytest.mark.parametrize(
    "mount",
    [
        "type=bind,source=/var/run/../run/docker.sock,target=/s",
        "type=bind,source=/,target=/host",
        "type=bind,source=${localEnv:HOME},target=/h",
        "type=bind,source=${localEnv:HOME}/.ssh,target=/h",
        "type=bind,source=${localEnv:HOME}/link,target=/h",
        "type=bind,source=${localEnv:HOME}/.config,target=/h",
        "type=bind,source=/proc/1,target=/h",
        "type=bind,source=/etc,target=/h",
        "type=bind,source=/usr/share,target=/etc/cron.d",
        "type=bind,source=/usr/share,target=/run/iterion",
        "type=volume,source=x,target=/h",
    ],
)
async def test_H48_mounts_that_are_refused(driver: BubblewrapDriver, tmp_path: Path, mount: str) -> None:
    with pytest.raises(DriverError, match="mounts"):
        async with driver.start(SandboxSpec(mounts=(mount,)), run_info(tmp_path)):
            pass


@pytest.mark.parametrize(
    "place",
    [
        *("/", "/usr", "/etc/x", "/tmp", "/run/lock", "/usr/local/lib/python3", "/usr/local/sbin", "/var/spool/cron"),
        *("home", "home/..", "home/.ssh", "home/project/../.aws"),
    ],
)
async def test_workspaces_that_are_refused(driver: BubblewrapDriver, tmp_path: Path, place: str) -> None:
    info = run_info(tmp_path, workspace=Path(place) if place in ("/", "/usr", "/tmp") else None)
    wanted = Path(place) if place.startswith("/") else tmp_path / place
    info = RunInfo(run_id="r", run_name="r", workspace=wanted, scratch=info.scratch)
    with pytest.raises(DriverError, match="workspace"):
        async with driver.start(SandboxSpec(), info):
            pass


def git(folder: Path, *arguments: str) -> str:
    environ = {"PATH": PATH, "HOME": "/nonexistent", "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b"}
    environ |= {"GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
    done = subprocess.run(["git", *arguments], cwd=folder, env=environ, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_H52_configuration_and_hooks_of_the_repository_are_read_only(
    driver: BubblewrapDriver, tmp_path: Path
) -> None:
    info = run_info(tmp_path)
    git(info.workspace, "init", "-q")
    before = (info.workspace / ".git" / "config").read_text()
    async with driver.start(SandboxSpec(), info) as sandbox:
        attacks = [
            "git config core.fsmonitor ./evil",
            "echo evil >>.git/config",
            "rm -f .git/config",
            "mv .git/config .git/old",
            "mv .git .old",
            "rm -rf .git",
            "echo evil >.git/hooks/pre-commit",
            "mv .git/hooks .git/old",
        ]
        for attack in attacks:
            assert (await run(sandbox, attack)).status.returncode != 0, attack
        await run(sandbox, "mkdir evil; cp -r .git/config evil/; printf '../evil' >.git/commondir")
    assert (info.workspace / ".git" / "config").read_text() == before
    assert all(name.endswith(".sample") for name in os.listdir(info.workspace / ".git" / "hooks"))
    assert not (info.workspace / ".git" / "commondir").exists()


async def test_git_works_inside(driver: BubblewrapDriver, tmp_path: Path) -> None:
    info = run_info(tmp_path)
    git(info.workspace, "init", "-q")
    async with driver.start(SandboxSpec(), info) as sandbox:
        script = "echo a >a && git add a && git commit -qm one && git switch -qc other && git log --format=%an"
        assert (await run(sandbox, script)).out == "Jo Doe\n"
    assert "one" in git(info.workspace, "log", "--oneline", "other")


async def test_H52_a_worktree_and_its_parent(driver: BubblewrapDriver, tmp_path: Path) -> None:
    parent = tmp_path / "parent"
    parent.mkdir()
    git(parent, "init", "-q")
    git(parent, "commit", "-q", "--allow-empty", "-m", "first")
    workspace = tmp_path / "tree"
    git(parent, "worktree", "add", "-q", str(workspace))
    info = run_info(tmp_path, workspace=workspace, writable=(parent / ".git",))
    async with driver.start(SandboxSpec(), info) as sandbox:
        assert (await run(sandbox, "echo a >a && git add a && git commit -qm second")).status.returncode == 0
        assert "second" in git(workspace, "log", "--oneline")
        guarded = [parent / ".git" / "config", parent / ".git" / "worktrees" / "tree" / "commondir", workspace / ".git"]
        before = [path.read_text() for path in guarded]
        attacks = [
            "rm .git",
            "mv .git old",
            "echo 'gitdir: /tmp/evil' >.git",
            f"echo x >>{parent}/.git/config",
            f"echo x >{parent}/.git/hooks/post-commit",
            f"mv {parent}/.git/worktrees {parent}/.git/old",
            f"mv {parent}/.git/worktrees/tree {parent}/.git/old",
            f"echo /tmp >{parent}/.git/worktrees/tree/commondir",
        ]
        for attack in attacks:
            assert (await run(sandbox, attack)).status.returncode != 0, attack
        assert (await run(sandbox, ["ls", str(parent)])).out == ""
    # It may destroy what it may write, but not say where configuration comes from.
    assert [path.read_text() for path in guarded] == before
    assert not (parent / ".git" / "hooks" / "post-commit").exists()


async def test_H52_links_that_a_sandbox_left_are_not_followed(
    driver: BubblewrapDriver, tmp_path: Path, home: Path
) -> None:
    info = run_info(tmp_path)
    git(info.workspace, "init", "-q")
    (info.workspace / ".git" / "modules").symlink_to(home / ".ssh")
    (home / ".ssh" / "HEAD").write_text("SECRET")
    async with driver.start(SandboxSpec(), info) as sandbox:
        assert (await run(sandbox, "cat .git/modules/*")).out == ""
    (info.workspace / ".git" / "modules").unlink()
    shutil.rmtree(info.workspace / ".git" / "hooks")
    (info.workspace / ".git" / "hooks").symlink_to("../hooks")
    with pytest.raises(DriverError, match="symbolic link"):
        async with driver.start(SandboxSpec(), info):
            pass


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (SandboxSpec(image="a"), "image"),
        (SandboxSpec(build=BuildSpec()), "build"),
        (SandboxSpec(user="4711"), "user"),
        (SandboxSpec(memory="1g"), "memory"),
        (SandboxSpec(cpus=1), "cpus"),
        (SandboxSpec(pids=100), "pids"),
        (SandboxSpec(mounts=("type=pvc,source=a,target=/b",)), "mounts"),
        (SandboxSpec(mounts=("nonsense",)), "mounts"),
    ],
)
def test_what_it_cannot_do_is_refused_by_name(driver: BubblewrapDriver, spec: SandboxSpec, field: str) -> None:
    with pytest.raises(DriverError, match=field):
        driver.check(spec)


def test_the_caller_may_name_itself(driver: BubblewrapDriver) -> None:
    driver.check(SandboxSpec(user=f"{os.getuid()}:{os.getgid()}"))
    driver.check(SandboxSpec(post_create="true", env={"A": "b"}, workspace_folder="/x"))


async def test_without_bubblewrap(tmp_path: Path) -> None:
    driver = BubblewrapDriver({"PATH": str(tmp_path)})
    assert "apt-get install bubblewrap" in (driver.availability() or "")
    with pytest.raises(DriverError, match="apt-get install bubblewrap"):
        async with driver.start(SandboxSpec(), run_info(tmp_path)):
            pass


async def test_a_bubblewrap_that_fails(tmp_path: Path) -> None:
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(DriverError, match=r"No permissions to create new namespace.*seccomp|No permissions.*sysctl"):
        async with BubblewrapDriver({"PATH": f"{tmp_path}:{PATH}"}).start(SandboxSpec(), run_info(tmp_path)):
            pass
    assert os.listdir(tmp_path / "scratch") == []


def test_failures_are_explained() -> None:
    assert explain_failure("bwrap: Unknown option --disable-userns") == bubblewrap.TOO_OLD
    assert "permissions" in explain_failure("bwrap: Can't find source path /x: Permission denied")
    assert explain_failure("what") == "bubblewrap failed: what"


def test_everything_holds_for_an_ordinary_user_too(ordinary_user: OrdinaryUser) -> None:
    if os.geteuid() != 0:
        pytest.skip("these very tests have run as an ordinary user just now")
    root = Path(__file__).parents[2]
    folder = ordinary_user.home / "checkout"
    try:
        for name in ("tests/drivers", "tests/support"):
            shutil.copytree(root / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(root / "tests" / "conftest.py", folder / "tests")
        shutil.copy(root / "pyproject.toml", folder)
        for path in (folder, *folder.rglob("*")):
            shutil.chown(path, ordinary_user.uid, ordinary_user.gid)
        files = [f"tests/drivers/test_{name}.py" for name in ("base", "bubblewrap", "escape")]
        skip = "not ordinary_user and not cancelling_anywhere and not hundred_megabytes"
        command = [ordinary_user.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", skip, *files]
        done = ordinary_user.run(
            ["sh", "-c", 'cd checkout && exec "$@"', "sh", *command],
            timeout_s=300,
        )
        assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    finally:
        shutil.rmtree(folder)


def test_it_is_really_this_python(tmp_path: Path) -> None:
    """The interpreter that init runs on can import what it needs, alone."""
    script = Path(bubblewrap.__file__).with_name("sandbox_init.py")
    done = subprocess.run([sys.executable, "-I", "-S", str(script)], capture_output=True)
    assert (done.returncode, done.stderr) == (2, b"")


def fake_bubblewrap(folder: Path, script: str) -> dict[str, str]:
    """Variables of a host whose bubblewrap is a shell script that may go on to the real one, $REAL."""
    program = folder / "bwrap"
    program.write_text(f"#!/bin/sh\nREAL={shutil.which('bwrap', path=PATH)}\n{script}\n")
    program.chmod(0o755)
    return {"PATH": f"{folder}:{PATH}"}


async def test_a_path_that_vanished_before_it_was_mounted_costs_one_more_try(tmp_path: Path) -> None:
    failure = "echo 'bwrap: Can'\\''t find source path /gone: No such file or directory' >&2; exit 1"
    environ = fake_bubblewrap(tmp_path, f'if mkdir {tmp_path}/tried; then {failure}; fi; exec $REAL "$@"')
    async with BubblewrapDriver(environ).start(SandboxSpec(), run_info(tmp_path)) as sandbox:
        assert (await run(sandbox, "echo ok")).out == "ok\n"
    environ = fake_bubblewrap(tmp_path, failure)
    with pytest.raises(DriverError, match="/gone"):
        async with BubblewrapDriver(environ).start(SandboxSpec(), run_info(tmp_path)):
            pass


def test_a_trial_tells_whether_namespaces_are_allowed(tmp_path: Path) -> None:
    assert bubblewrap._trial(shutil.which("bwrap", path=PATH) or "") is None
    environ = fake_bubblewrap(tmp_path, "echo no >&2; exit 1")
    assert bubblewrap._trial(f"{tmp_path}/bwrap") == "no"
    assert BubblewrapDriver(environ).availability() in (None, "bubblewrap failed: no")
    assert "No such file" in (bubblewrap._trial("/no/such/bwrap") or "")


async def test_the_sandbox_of_a_user_without_a_home(tmp_path: Path) -> None:
    async with BubblewrapDriver({"PATH": PATH, "HOME": "/"}).start(SandboxSpec(), run_info(tmp_path)) as sandbox:
        assert (await run(sandbox, "cd && pwd && touch x && echo ok")).out == "/tmp/home\nok\n"
