"""ssh through the proxy: the helper inside a real sandbox, both directions, and what it says when it is refused."""

import os
import shutil
import socket
from pathlib import Path

import pytest

from gateway.egress.environment import SSH_CONNECT_PATH
from tests.support.iterion import PYTHON, Iterion, tcp_server

pytestmark = pytest.mark.real

BANNER = b"SSH-2.0-test\r\n"


@pytest.fixture
def iterion(tmp_path: Path) -> Iterion:
    folder, home = tmp_path / "work", tmp_path / "home"
    folder.mkdir()
    home.mkdir()
    return Iterion(folder=folder, store=tmp_path / "store", home=home)


def rules(port: int) -> list[str]:
    return ["--allow", f"a.test:{port}", "--allow", "127.0.0.1", "--resolve", "a.test=127.0.0.1"]


def helper(host: str, port: int) -> list[str]:
    return [PYTHON, "-I", "-S", SSH_CONNECT_PATH, host, str(port)]


def greet_and_echo(client: socket.socket) -> None:
    """Speak first, as ssh servers do; send back what comes, and a last word after the client's end."""
    client.sendall(BANNER)
    while data := client.recv(65536):
        client.sendall(data)
    client.sendall(b"bye")


@pytest.mark.parametrize("size", [0, 1, 3_000_000])
def test_both_directions_and_both_ends(iterion: Iterion, size: int) -> None:
    data = os.urandom(size)
    with tcp_server(greet_and_echo) as port:
        done = iterion.run("sandbox", "run", *rules(port), "--", *helper("a.test", port), stdin=data)
    assert done.returncode == 0, done.stderr
    assert done.stdout == BANNER + data + b"bye"
    [closed] = iterion.last.of("network_closed")
    assert (closed["bytes_up"], closed["bytes_down"]) == (size, len(done.stdout))


def test_a_refusal_is_shown(iterion: Iterion) -> None:
    with tcp_server(greet_and_echo) as port:
        done = iterion.run("sandbox", "run", *rules(port), "--", *helper("b.test", port))
    assert done.returncode == 1
    assert f"ssh_connect: blocked by sandbox network policy: b.test:{port} (not_in_allowlist)".encode() in done.stderr
    assert done.stdout == b""


def test_an_upstream_that_is_not_there_is_shown(iterion: Iterion) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        port = taken.getsockname()[1]
        done = iterion.run("sandbox", "run", *rules(port), "--", *helper("a.test", port))
    assert done.returncode == 1
    assert b"ssh_connect: " in done.stderr
    assert b"Traceback" not in done.stderr


def test_without_a_proxy_it_says_so(iterion: Iterion) -> None:
    done = iterion.run("sandbox", "run", "--", "env", "-u", "HTTPS_PROXY", "-u", "https_proxy", *helper("a.test", 22))
    assert done.returncode == 1
    assert b"ssh_connect: HTTPS_PROXY names no proxy" in done.stderr


def test_the_ssh_that_git_calls_goes_through_the_proxy(iterion: Iterion) -> None:
    assert shutil.which("ssh") is not None, "apt-get install openssh-client"
    greetings: list[bytes] = []

    def serve(client: socket.socket) -> None:
        client.sendall(BANNER)
        greetings.append(client.recv(1000))

    with tcp_server(serve) as port:
        script = f'eval "$GIT_SSH_COMMAND -p {port} -o BatchMode=yes git@a.test git-upload-pack x"'
        iterion.run("sandbox", "run", *rules(port), "--", "sh", "-c", script)
    [greeting] = greetings
    assert greeting.startswith(b"SSH-2.0-OpenSSH")
    [allowed] = iterion.last.of("network_allowed")
    assert (allowed["host"], allowed["port"]) == ("a.test", port)
