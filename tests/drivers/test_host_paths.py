"""Finding homes, and comparing paths."""

import os
from pathlib import Path

from drivers.host_paths import HostHomes, credential_below_home, find_homes, is_within, refusal


def test_is_within() -> None:
    assert is_within("/a/b", "/a")
    assert is_within("/a", "/a")
    assert is_within("/a", "/")
    assert not is_within("/ab", "/a")
    assert not is_within("/a", "/a/b")


def test_homes(tmp_path: Path) -> None:
    people = tmp_path / "people"
    for name in ("jo", "ann"):
        (people / name).mkdir(parents=True)
    passwd = tmp_path / "passwd"
    passwd.write_text(
        f"daemon:x:1:1::/usr/sbin:/x\njo:x:1000:1000::{people}/jo:/bin/sh\nfar:x:1001:1::/export/far:/x\n"
        "nobody:x:65534:65534::/nonexistent:/x\nroot2:x:1002:1::/:/x\nbroken\n"
    )
    homes = find_homes({"HOME": f"{people}/jo"}, str(passwd), str(people))
    assert homes.own == f"{people}/jo"
    assert set(homes.others) == {f"{people}/ann", "/export/far", "/root"}
    assert set(homes.every) == {f"{people}/jo", f"{people}/ann", "/export/far", "/root"}


def test_homes_that_are_none(tmp_path: Path) -> None:
    for home in ("/", "/usr", "relative"):
        assert find_homes({"HOME": home}, str(tmp_path / "none"), str(tmp_path / "none")).own is None
    passwd = tmp_path / "passwd"
    passwd.write_text(f"me:x:{os.getuid()}:1::{tmp_path}/me:/bin/sh\n")
    assert find_homes({}, str(passwd), str(tmp_path / "none")).own == f"{tmp_path}/me"
    assert find_homes({"HOME": "/root"}, str(tmp_path / "none"), str(tmp_path / "none")).own == "/root"


def test_credentials_below_any_home() -> None:
    homes = HostHomes(own="/home/jo", others=("/home/ann", "/root"))
    assert credential_below_home("/home/ann/x/.aws/config", homes) == ".aws"
    assert credential_below_home("/home/jo/.config", homes) == ".config/gcloud"
    assert credential_below_home("/home/jo/.sshx", homes) is None
    assert credential_below_home("/home/jo", homes) is None
    assert credential_below_home("/srv/.ssh", homes) is None


def test_refusal() -> None:
    homes = HostHomes(own="/home/jo", others=())
    assert "contains" in (refusal("/home", homes) or "")
    assert refusal("/home/jo/work", homes) is None
    assert refusal("/opt/tool", homes) is None
