"""Mount strings, and what no mount may show."""

import os
import socket
from pathlib import Path

import pytest

from drivers.host_paths import HostHomes
from drivers.mounts import Mount, MountError, expand, parse_mount, resolve_bind


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    (home / "projects").mkdir(parents=True)
    (home / ".ssh").mkdir()
    return home


def resolve(text: str, home: Path) -> Mount:
    return resolve_bind(text, {"HOME": str(home)}, "/work/place", HostHomes(own=str(home), others=("/root",)))


def test_parsing() -> None:
    assert parse_mount("type=bind,source=/a,target=/b") == Mount(type="bind", source="/a", target="/b")
    assert parse_mount("type=bind,src=/a,dst=/b,ro").readonly
    assert parse_mount("type=bind,source=/a,destination=/b,readonly=true,consistency=cached").readonly
    assert not parse_mount("type=bind,source=/a,target=/b,readonly=false").readonly
    assert parse_mount("type=tmpfs,target=/b").source is None
    assert parse_mount("type=configmap,source=a,target=/b,key=c,readonly").type == "configmap"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "empty"),
        ("-v", "option"),
        ("type=bind,source=/a\n,target=/b", "control"),
        ("/a:/b", "not known"),
        ("source=/a,target=/b", "type"),
        ("type=nfs,source=/a,target=/b", "type"),
        ("type=bind,source=/a", "target"),
        ("type=bind,target=/a", "source"),
        ("type=bind,source=/a,target=/b,target=/c", "twice"),
        ("type=bind,source=/a,src=/b,target=/c", "twice"),
        ("type=bind,source=/a,target=/b,bind-propagation=shared", "not known"),
        ("type=bind,source=/a,target=/b,readonly=maybe", "readonly"),
    ],
)
def test_parsing_errors(text: str, word: str) -> None:
    with pytest.raises(MountError, match=word):
        parse_mount(text)


def test_variables() -> None:
    environ = {"HOME": "/home/jo", "EMPTY": ""}
    assert expand("${localEnv:HOME}/x", environ, "/w") == "/home/jo/x"
    assert expand("${env:HOME}", environ, "/w") == "/home/jo"
    assert expand("${localEnv:NONE}", environ, "/w") == ""
    assert expand("${localEnv:NONE:http://x:80}", environ, "/w") == "http://x:80"
    assert expand("${localEnv:EMPTY:default}", environ, "/w") == "default"
    assert expand("${localWorkspaceFolder}/${localWorkspaceFolderBasename}", environ, "/a/b") == "/a/b/b"
    assert expand("${unknown:X} $HOME", environ, "/w") == "${unknown:X} $HOME"


def test_a_mount_is_resolved(home: Path) -> None:
    mount = resolve("type=bind,source=${localEnv:HOME}/projects/../projects,target=/p,readonly", home)
    assert mount == Mount(type="bind", source=str(home / "projects"), target="/p", readonly=True)
    assert resolve("type=tmpfs,target=/p", home).source is None


@pytest.mark.parametrize(
    "source",
    [
        "/",
        "/etc",
        "/etc/shadow",
        "/etc/sudoers.d",
        "/var",
        "/run",
        "/run/docker.sock",
        "/var/run/docker.sock",
        "/var/run/../run/docker.sock",
        "/usr/../var/run//docker.sock",
        "/run/podman/podman.sock",
        "/run/containerd/containerd.sock",
        "/run/user/1000/podman/podman.sock",
        "/proc",
        "/proc/self/environ",
        "/sys/kernel",
        "/dev/sda",
        "/boot",
        "/root",
        "/root/project",
        "/var/lib/docker",
        "{home}",
        "{home}/..",
        "{home}/.",
        "{home}/.ssh",
        "{home}/.ssh/id_rsa",
        "{home}/projects/../.ssh",
        "{home}/.config",
        "{home}/.config/gcloud",
        "{home}/.npmrc",
        "{home}/projects/.aws/credentials",
        "{home}/key-link",
        "{home}/home-link",
    ],
)
def test_H48_refused_sources(source: str, home: Path) -> None:
    (home / "key-link").symlink_to(".ssh")
    (home / "home-link").symlink_to(home)
    with pytest.raises(MountError, match="refused"):
        resolve(f"type=bind,source={source.format(home=home)},target=/x", home)


@pytest.mark.parametrize("source", ["relative/path", ".", "../up", "~/x"])
def test_relative_sources(source: str, home: Path) -> None:
    with pytest.raises(MountError, match="not absolute"):
        resolve(f"type=bind,source={source},target=/x", home)


def test_sources_that_are_not_there_or_not_files(home: Path) -> None:
    with pytest.raises(MountError, match="create it"):
        resolve(f"type=bind,source={home}/projects/none,target=/x", home)
    with pytest.raises(MountError, match="empty"):
        resolve("type=bind,source=${localEnv:NONE},target=/x", home)
    path = home / "projects" / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        folder = os.open(path.parent, os.O_PATH)  # socket paths are short
        try:
            listener.bind(f"/proc/self/fd/{folder}/s")
        finally:
            os.close(folder)
        with pytest.raises(MountError, match="socket"):
            resolve(f"type=bind,source={path},target=/x", home)


@pytest.mark.parametrize("target", ["x", "/", "/a/../b", "/a/"])
def test_targets_are_canonical(target: str, home: Path) -> None:
    with pytest.raises(MountError, match="target"):
        resolve(f"type=bind,source=/usr/share,target={target}", home)


def test_types_of_other_drivers(home: Path) -> None:
    with pytest.raises(MountError, match="type=volume"):
        resolve("type=volume,source=x,target=/x", home)
