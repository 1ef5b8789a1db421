"""``iterion sandbox run`` and ``reap`` as they are called: exit codes, streams, notices, the record."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.iterion import PYTHON, Iterion, answer_http, check_record, tcp_server

pytestmark = pytest.mark.real

FETCH = "import sys, urllib.request; sys.stdout.write(urllib.request.urlopen(sys.argv[1], timeout=10).read().decode())"


@pytest.fixture
def origin() -> Iterator[int]:
    with tcp_server(answer_http) as port:
        yield port


def fetch(url: str) -> list[str]:
    return [PYTHON, "-c", FETCH, url]


# Exit codes and streams


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["true"], 0),
        (["sh", "-c", "exit 7"], 7),
        (["sh", "-c", "exit 255"], 255),
        (["no-such-command"], 127),
        (["./not-executable"], 126),
        (["sh", "-c", "kill -TERM $$"], 128 + signal.SIGTERM),
        (["sh", "-c", "kill -KILL $$"], 128 + signal.SIGKILL),
    ],
)
def test_the_exit_code_is_the_command_s_own(iterion: Iterion, command: list[str], code: int) -> None:
    iterion.write("not-executable", "")
    done = iterion.run("sandbox", "run", "--", *command)
    assert done.returncode == code
    run = iterion.last
    assert run.types[-1] == "run_finished"
    assert run.of("run_finished")[0]["exit_code"] == run.record["exit_code"] == code
    assert run.record["command"] == command


def test_standard_input_and_output_are_the_command_s_alone(iterion: Iterion) -> None:
    data = os.urandom(300_000)
    done = iterion.run("sandbox", "run", "--allow", "a.test", "--", "cat", stdin=data)
    assert (done.returncode, done.stdout) == (0, data)


def test_errors_of_the_command_go_to_standard_error(iterion: Iterion) -> None:
    done = iterion.run("sandbox", "run", "--quiet", "--", "sh", "-c", "echo out; echo err >&2")
    assert (done.stdout, done.stderr) == (b"out\n", b"err\n")


def test_options_of_the_command_are_not_ours(iterion: Iterion) -> None:
    done = iterion.run("sandbox", "run", "--quiet", "echo", "--allow", "--", "-h")
    assert done.stdout == b"--allow -- -h\n"


def test_variables_are_passed_and_no_others(iterion: Iterion) -> None:
    done = iterion.run("sandbox", "run", "--env", "A=b=c", "--env", "E=", "--", "env", env={"SECRET": "hunter2"})
    lines = done.stdout.decode().splitlines()
    assert "A=b=c" in lines
    assert "E=" in lines
    assert not any(line.startswith(("SECRET", "ITERION", "PYTHONPATH")) for line in lines)


# What is said


def test_the_summary_names_what_was_allowed_and_blocked(iterion: Iterion, origin: int) -> None:
    done = iterion.run(
        *("sandbox", "run", "--allow", "a.test", "--allow", "127.0.0.1", "--resolve", "a.test=127.0.0.1", "--"),
        *(
            "sh",
            "-c",
            f'"$@" http://a.test:{origin}/; "$@" http://b.test:{origin}/; "$@" http://b.test:{origin}/',
            "sh",
        ),
        *fetch("")[:-1],
    )
    assert done.stdout == b"hello"
    ours = [line for line in done.stderr.decode().splitlines() if line.startswith("iterion: ")]
    events = iterion.last.path / "events.jsonl"
    assert ours[0].startswith("iterion: network: 1 allowed, 2 blocked (2 not_in_allowlist); ")
    assert ours[1] == f"iterion: blocked: b.test:{origin} (not_in_allowlist), 2 times"
    assert ours[2:] == [f"iterion: events: {events}"]
    run = iterion.last
    [allowed] = run.of("network_allowed")
    assert (allowed["host"], allowed["port"], allowed["rule"]) == ("a.test", origin, "a.test (--allow)")
    assert [blocked["host"] for blocked in run.of("network_blocked")] == ["b.test", "b.test"]
    assert run.of("network_closed")[0]["outcome"] == "completed"


def test_quiet_says_nothing_but_errors(iterion: Iterion) -> None:
    assert iterion.run("sandbox", "run", "--quiet", "--", "true").stderr == b""
    failed = iterion.run("sandbox", "run", "--quiet", "--driver", "noop", "--allow", "a.test", "--", "true")
    assert failed.returncode == 1
    assert failed.stderr.startswith(b"iterion: error: the noop driver cannot enforce")


def test_the_events_of_a_run_are_complete(iterion: Iterion) -> None:
    iterion.run("sandbox", "run", "--run-id", "one", "--", "true")
    run = iterion.last
    assert run.path == iterion.store / "runs" / "one"
    assert run.types == [
        "run_started",
        "policy_findings",
        "sandbox_started",
        "sandbox_host_state_mounted",
        "sandbox_egress_verified",
        "sandbox_removed",
        "run_finished",
    ]
    [verified] = run.of("sandbox_egress_verified")
    assert verified["enforced"] is True
    assert len(verified["attempts"]) == 5
    assert run.record["sandbox"]["driver"] == "bubblewrap"


# Mistakes


def test_a_run_id_is_used_once(iterion: Iterion) -> None:
    assert iterion.run("sandbox", "run", "--run-id", "one", "--", "true").returncode == 0
    events = (iterion.store / "runs" / "one" / "events.jsonl").read_bytes()
    again = iterion.run("sandbox", "run", "--run-id", "one", "--", "true")
    assert again.returncode == 2
    assert b"run one exists already" in again.stderr
    assert (iterion.store / "runs" / "one" / "events.jsonl").read_bytes() == events


@pytest.mark.parametrize("run_id", ["../x", ".", "", "a/b", "-x", "x" * 64])
def test_a_run_id_names_a_directory(iterion: Iterion, run_id: str) -> None:
    done = iterion.run("sandbox", "run", f"--run-id={run_id}", "--", "true")
    assert done.returncode == 2
    assert b"cannot name a directory" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--allow", "*.a.*"], "--allow: `*.a.*`"),
        (["--allow", "A.COM"], "a.com"),
        (["--allow", ""], "--allow"),
        (["--resolve", "a.test"], "--resolve 'a.test' is not HOST=ADDRESS"),
        (["--resolve", "a.test=b.test"], "b.test"),
        (["--resolve", "a b=127.0.0.1"], "a b"),
        (["--env", "NAME"], "--env 'NAME' is not NAME=VALUE"),
        (["--env", "=x"], "env"),
        (["--policy", "bad.yaml"], "bad.yaml:3:"),
        (["--policy", "modeless.yaml"], "modeless.yaml: no mode"),
        (["--policy", "torn.yaml"], "torn.yaml:3:"),
        (["--policy", "unknown.yaml"], "unknown.yaml:2:"),
    ],
)
def test_a_mistake_in_the_request_is_2_and_says_where(iterion: Iterion, arguments: list[str], said: str) -> None:
    iterion.write("bad.yaml", "mode: allowlist\nrules:\n  - 'a..com'\n")
    iterion.write("modeless.yaml", "rules: []\n")
    iterion.write("torn.yaml", "mode: allowlist\nrules: [a.com\n")
    iterion.write("unknown.yaml", "mode: allowlist\nrulez: []\n")
    done = iterion.run("sandbox", "run", *arguments, "--", "true")
    assert done.returncode == 2
    assert said in done.stderr.decode()
    assert b"Traceback" not in done.stderr
    assert not (iterion.store / "runs").exists()


@pytest.mark.parametrize("driver", ["docker", "bublewrap", ""])
def test_a_driver_that_is_not_there_is_named_with_those_that_are(iterion: Iterion, driver: str) -> None:
    done = iterion.run("sandbox", "run", "--driver", driver, "--", "true")
    assert done.returncode == 1
    assert b"bubblewrap, noop" in done.stderr


def test_an_image_needs_another_driver(iterion: Iterion) -> None:
    done = iterion.run("sandbox", "run", "--image", "debian:12", "--", "true")
    assert done.returncode == 1
    assert b"debian:12" in done.stderr


# Without isolation, and without a policy


def test_noop_with_a_policy_is_refused(iterion: Iterion) -> None:
    done = iterion.run("sandbox", "run", "--driver", "noop", "--allow", "a.test", "--", "touch", "ran")
    assert done.returncode == 1
    assert b"enforcement: cooperative" in done.stderr
    assert not (iterion.folder / "ran").exists()
    assert iterion.last.types == ["run_started", "run_failed"]


def test_noop_with_advice_says_loudly_that_it_is_advice(iterion: Iterion, origin: int) -> None:
    done = iterion.run(
        *("sandbox", "run", "--driver", "noop", "--enforcement", "cooperative", "--allow", "a.test"),
        *("--allow", "127.0.0.1", "--resolve", "a.test=127.0.0.1", "--", *fetch(f"http://a.test:{origin}/")),
    )
    assert (done.returncode, done.stdout) == (0, b"hello")
    assert b"WARNING: no sandbox (noop driver)" in done.stderr
    assert b"WARNING: network policy is not enforced" in done.stderr
    run = iterion.last
    assert run.of("sandbox_skipped")[0]["driver"] == "noop"
    assert run.of("sandbox_egress_unenforced")[0]["enforcement"] == "cooperative"
    assert "sandbox_egress_verified" not in run.types
    assert "sandbox_started" not in run.types
    assert len(run.of("network_allowed")) == 1


def test_advice_in_a_sandbox_says_so_too(iterion: Iterion, origin: int) -> None:
    done = iterion.run(
        *("sandbox", "run", "--enforcement", "cooperative", "--allow", "a.test", "--allow", "127.0.0.1"),
        *("--resolve", "a.test=127.0.0.1", "--", *fetch(f"http://a.test:{origin}/")),
    )
    assert (done.returncode, done.stdout) == (0, b"hello")
    assert b"not enforced" in done.stderr
    run = iterion.last
    assert run.of("sandbox_started")[0]["enforcement"] == "cooperative"
    assert len(run.of("sandbox_egress_unenforced")) == 1


def test_an_open_network_has_no_proxy(iterion: Iterion, origin: int) -> None:
    iterion.write("open.yaml", "mode: open\n")
    command = ["sh", "-c", f'env | grep -i proxy; "$@" http://127.0.0.1:{origin}/', "sh", *fetch("")[:-1]]
    done = iterion.run("sandbox", "run", "--policy", "open.yaml", "--", *command)
    assert (done.returncode, done.stdout) == (0, b"hello")
    run = iterion.last
    assert run.of("sandbox_started")[0]["enforcement"] == "open"
    assert not [kind for kind in run.types if kind.startswith(("network_", "policy_", "sandbox_egress"))]
    assert b"network:" not in done.stderr


# The checker and the proxy

HOSTS = (
    "a.test",
    "A.TEST.",
    "b.a.test",
    "c.b.a.test",
    "denied.a.test",
    "notrusted-a.test",
    "evil.test",
    "127.0.0.1",
    "localhost",
    "x.localhost",
    "host.docker.internal",
    "169.254.169.254",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "2130706433",
    "0x7f.1",
    "10.1.2.3",
    "metadata.google.internal",
)


def test_H18_the_checker_and_the_proxy_agree(iterion: Iterion, origin: int) -> None:
    iterion.write(
        "policy.yaml",
        "mode: allowlist\n"
        "rules: ['a.test', '**.a.test', '!denied.a.test', '127.0.0.1', '2001:db8::/32']\n"
        "hosts:\n"
        + "".join(f"  {name}: ['127.0.0.1']\n" for name in ("a.test", "b.a.test", "c.b.a.test", "evil.test")),
    )
    targets = [f"{host}:{origin}" for host in HOSTS]
    checked = json.loads(iterion.run("policy", "check", "--policy", "policy.yaml", "--json", *targets).stdout)
    verdicts = {each["target"]: each["allowed"] for each in checked["results"]}
    probe = """
import os, socket, sys
from urllib.parse import urlsplit
from base64 import b64encode
proxy = urlsplit(os.environ["HTTPS_PROXY"])
token = b64encode(f"{proxy.username}:{proxy.password}".encode()).decode()
for target in sys.argv[1:]:
    with socket.create_connection((proxy.hostname, proxy.port), timeout=20) as s:
        lines = f"CONNECT {target} HTTP/1.1", f"Host: {target}", f"Proxy-Authorization: Basic {token}", "", ""
        s.sendall("\\r\\n".join(lines).encode())
        print(target, s.recv(100).split()[1].decode())
"""
    done = iterion.run("sandbox", "run", "--policy", "policy.yaml", "--", PYTHON, "-c", probe, *targets)
    assert done.returncode == 0, done.stderr.decode()
    statuses = dict(line.split() for line in done.stdout.decode().splitlines())
    assert {target: status not in ("400", "403") for target, status in statuses.items()} == verdicts
    assert sum(verdicts.values()) >= 5
    check_record(iterion.last)


# After the event


def test_reap_has_nothing_to_say_of_runs_that_ended(iterion: Iterion) -> None:
    iterion.run("sandbox", "run", "--", "true")
    done = iterion.run("sandbox", "reap")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"0 stale runs cleaned up\n", b"")


def test_the_record_of_runs_is_not_visible_inside(iterion: Iterion) -> None:
    done = iterion.run("sandbox", "run", "--store-dir", "store", "--", "ls", "-A", "store/runs")
    assert (done.returncode, done.stdout) == (0, b"")
    assert Path(iterion.folder, "store/runs").is_dir()


def test_a_sandbox_that_cannot_be_had_is_an_error_and_never_the_host(iterion: Iterion, tmp_path: Path) -> None:
    refused = iterion.run("sandbox", "run", "--allow", "a.test", "--", "true", env={"PATH": str(tmp_path)})
    assert refused.returncode == 1
    assert b"bubblewrap is not installed" in refused.stderr
    assert iterion.runs() == []
