"""Real client programs in a real sandbox, against local origins: what clients do is not always what standards say."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pip
import pytest

from tests.clients.conftest import Client
from tests.clients.origins import Application, Origin, git_server, npm_registry, page, python_index, serve

pytestmark = pytest.mark.real

StartOrigin = Callable[[str, Application], Origin]


def _python() -> str:
    """Return a Python that is visible inside: the sandbox has another home than the one ours may be installed in."""
    ours = Path(sys.executable).resolve()
    return "/usr/bin/python3" if ours.is_relative_to(Path.home()) else str(ours)


def _git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=tester", "-c", "user.email=tester@example.test", "-c", "init.defaultBranch=main"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(
        ["git", *identity, *arguments], cwd=folder, env=environment, check=True, capture_output=True, text=True
    ).stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A bare repository with one commit, in a folder of its own."""
    source, root = tmp_path / "source", tmp_path / "repositories"
    source.mkdir()
    root.mkdir()
    _git(source, "init", "-q")
    (source / "hello.txt").write_text("hello from the origin\n")
    _git(source, "add", "hello.txt")
    _git(source, "commit", "-q", "-m", "one file")
    _git(root, "clone", "-q", "--bare", str(source), "project.git")
    _git(root / "project.git", "config", "http.receivepack", "true")
    return root


def test_curl_over_tls(client: Client, origin: StartOrigin) -> None:
    site = origin("site.test", page("hello"))
    outcome = client.run(["curl", "-sS", "--cacert", client.authority, f"{site.url}/a?b=c"], [site])
    assert (outcome.returncode, outcome.stdout) == (0, "hello"), outcome.stderr
    assert [request.path for request in site.requests] == ["/a"]
    (allowed,) = outcome.data("network_allowed")
    assert (allowed["host"], allowed["port"], allowed["address"]) == ("site.test", site.port, "127.0.0.1")
    (closed,) = outcome.data("network_closed")
    assert closed["bytes_up"] > 0
    assert closed["bytes_down"] > 0


def test_curl_over_plain_http_on_one_kept_connection(client: Client) -> None:
    with serve("plain.test", page("plain"), None) as site:
        url = f"http://plain.test:{site.port}/"
        outcome = client.run(["curl", "-sS", url, url], [site])
    assert (outcome.returncode, outcome.stdout) == (0, "plainplain"), outcome.stderr
    assert len(outcome.data("network_allowed")) == 2
    assert {request.headers["host"] for request in site.requests} == {f"plain.test:{site.port}"}


def test_curl_is_told_why_a_host_is_blocked(client: Client, origin: StartOrigin) -> None:
    site, other = origin("site.test", page("hello")), origin("other.test", page("secret"))
    outcome = client.run(["curl", "-sS", "--cacert", client.authority, other.url], [site], known=[other])
    assert outcome.returncode == 56  # curl: the proxy refused the tunnel
    assert "403" in outcome.stderr
    assert other.requests == []
    (blocked,) = outcome.data("network_blocked")
    assert (blocked["host"], blocked["code"]) == ("other.test", "not_in_allowlist")


def test_H50_curl_that_is_told_to_use_no_proxy_reaches_nothing(client: Client, origin: StartOrigin) -> None:
    site = origin("site.test", page("hello"))
    direct = ["curl", "-sS", "--noproxy", "*", "--max-time", "5", "--resolve", f"site.test:{site.port}:127.0.0.1"]
    outcome = client.run([*direct, "--cacert", client.authority, site.url], [site], env={"NO_PROXY": "*"})
    assert outcome.returncode == 7  # curl: could not connect
    assert site.requests == []


def test_git_clones_and_pushes_over_https(client: Client, origin: StartOrigin, repository: Path) -> None:
    server = origin("git.test", git_server(repository))
    script = f"""
        set -e
        git clone -q {server.url}/project.git
        cd project
        cat hello.txt
        head -c 2000000 /dev/urandom > large.bin
        git add large.bin
        git -c user.name=tester -c user.email=tester@example.test commit -q -m "over a megabyte"
        git push -q origin HEAD:main
    """
    environment = {"GIT_SSL_CAINFO": client.authority, "GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_NOSYSTEM": "1"}
    outcome = client.run(["sh", "-c", script], [server], env=environment)
    assert (outcome.returncode, outcome.stdout) == (0, "hello from the origin\n"), outcome.stderr
    assert _git(repository / "project.git", "log", "-1", "--format=%s", "main") == "over a megabyte\n"


def test_pip_installs_from_an_index(client: Client, origin: StartOrigin) -> None:
    index = origin("pypi.test", python_index("demopackage", "1.2.3"))
    install = [_python(), "-m", "pip", "install", "--quiet", "--no-cache-dir", "--disable-pip-version-check"]
    target = ["--target", "installed", "--index-url", f"{index.url}/simple", "demopackage"]
    environment = {
        "PIP_CERT": client.authority,
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_ROOT_USER_ACTION": "ignore",
        "PYTHONPATH": str(Path(pip.__file__).parents[1]),
    }
    outcome = client.run([*install, *target], [index], env=environment)
    assert outcome.returncode == 0, outcome.stderr
    assert (client.folder / "installed/demopackage.py").read_text() == 'VERSION = "1.2.3"\n'


def test_npm_installs_from_a_registry(client: Client, origin: StartOrigin) -> None:
    registry = origin("npm.test", npm_registry("demo-package", "4.5.6"))
    (client.folder / "package.json").write_text('{"name": "consumer", "version": "1.0.0"}')
    install = ["npm", "install", "--no-audit", "--no-fund", "--globalconfig", "/dev/null", "--cache", "cache"]
    environment = {"npm_config_cafile": client.authority, "npm_config_update_notifier": "false"}
    outcome = client.run([*install, "--registry", registry.url, "demo-package"], [registry], env=environment)
    assert outcome.returncode == 0, outcome.stderr
    installed = json.loads((client.folder / "node_modules/demo-package/package.json").read_text())
    assert installed["version"] == "4.5.6"


def test_python_urllib_connects_without_a_host_header(client: Client, origin: StartOrigin) -> None:
    """Python 3.11 sends `CONNECT host:port HTTP/1.0` and no header at all."""
    site = origin("site.test", page("hello urllib"))
    code = f"import urllib.request as r; print(r.urlopen({site.url + '/'!r}).read().decode())"
    outcome = client.run([_python(), "-c", code], [site], env={"SSL_CERT_FILE": client.authority})
    assert (outcome.returncode, outcome.stdout) == (0, "hello urllib\n"), outcome.stderr


def test_node_fetch_never_gets_round_the_proxy(client: Client, origin: StartOrigin) -> None:
    """fetch ignores the proxy's variables before node 22.21 and 24: then it must reach nothing at all."""
    node = shutil.which("node")
    assert node is not None, "apt-get install nodejs"
    version = subprocess.run([node, "--version"], check=True, capture_output=True, text=True).stdout
    major = int(version[1:].split(".")[0])
    site = origin("site.test", page("hello"))
    code = f"fetch({json.dumps(site.url)}).then(async r => console.log(await r.text()), e => console.log(e.cause.code))"
    outcome = client.run([node, "-e", code], [site], env={"NODE_EXTRA_CA_CERTS": client.authority})
    if major < 22:
        assert outcome.stdout.strip() in {"ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED"}
        assert site.requests == []
        assert outcome.data("network_allowed") == []
    else:
        assert outcome.stdout.strip() in {"hello", "ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED"}
        assert len(outcome.data("network_allowed")) == len(site.requests)
