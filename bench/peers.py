"""The proxies that ours is compared with, each with a generated configuration that listens on loopback only."""

import os
import pwd
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.processes import Running, free_port, running

OUT = Path(__file__).parent / "out"
MITMPROXY_VERSION = "11.0.2"
SRT_VERSION = "0.0.78"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """One proxy under test: how its command line is made, and what is missing where it cannot run."""

    name: str
    command: Callable[[int, Path], list[str]]
    missing: Callable[[], str | None]
    max_idle: int = 1_000_000
    "The most idle tunnels it is asked to hold: one thread or 100 KB for each makes more of them pointless."

    @contextmanager
    def run(self) -> Iterator[Running]:
        """Run the proxy on a free port until the block is left."""
        port = free_port()
        folder = OUT / "run" / self.name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        argv = self.command(port, folder)
        with running(self.name, argv, port, folder / "output.log") as proxy:
            yield proxy


def _program(*places: str) -> str | None:
    return next((found for place in places if (found := shutil.which(place))), None)


def _squid_command(port: int, folder: Path) -> list[str]:
    # Squid gives up root by itself and then must be able to write its logs.
    user = "proxy" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    if os.geteuid() == 0:
        shutil.chown(folder, user)
        for parent in (OUT, OUT / "run"):
            parent.chmod(0o755)
    config = folder / "squid.conf"
    config.write_text(
        f"""http_port 127.0.0.1:{port}
acl local dst 127.0.0.0/8
http_access allow CONNECT local
http_access deny all
cache deny all
cache_mem 8 MB
cache_effective_user {user}
visible_hostname bench
pid_filename none
access_log stdio:{folder}/access.log
cache_log {folder}/cache.log
cache_store_log none
netdb_filename none
pinger_enable off
dns_nameservers 127.0.0.1
max_filedescriptors 65536
shutdown_lifetime 0 seconds
coredump_dir {folder}
"""
    )
    return [_program("squid", "/usr/sbin/squid") or "squid", "-N", "-f", str(config)]


def _tinyproxy_command(port: int, folder: Path) -> list[str]:
    config = folder / "tinyproxy.conf"
    config.write_text(
        f"""Port {port}
Listen 127.0.0.1
Allow 127.0.0.1
MaxClients 20000
Timeout 600
LogFile "{folder}/access.log"
LogLevel Connect
"""
    )
    return [_program("tinyproxy") or "tinyproxy", "-d", "-c", str(config)]


def _proxy_py_command(port: int, folder: Path) -> list[str]:
    program = str(OUT / "peers/proxypy/bin/proxy")
    return [program, "--hostname", "127.0.0.1", "--port", str(port), "--log-file", str(folder / "access.log")]


def _mitmproxy_command(port: int, folder: Path) -> list[str]:
    program = str(OUT / "peers/mitm/bin/mitmdump")
    quiet = ["--ignore-hosts", ".*", "--set", f"confdir={folder}", "--set", "connection_strategy=lazy"]
    return [program, "--listen-host", "127.0.0.1", "--listen-port", str(port), *quiet]


def _python_command(script: str) -> Callable[[int, Path], list[str]]:
    return lambda port, folder: [sys.executable, "-m", f"bench.{script}", str(port), str(folder)]


def _needs_program(name: str, *places: str) -> Callable[[], str | None]:
    return lambda: None if _program(name, *places) else f"apt-get install {name}"


def _needs_file(path: Path, cure: str) -> Callable[[], str | None]:
    return lambda: None if path.exists() else cure


OURS = Proxy(name="iterion", command=_python_command("our_proxy"), missing=lambda: None)

PEERS = (
    Proxy(name="squid", command=_squid_command, missing=_needs_program("squid", "/usr/sbin/squid")),
    Proxy(name="tinyproxy", command=_tinyproxy_command, missing=_needs_program("tinyproxy"), max_idle=2_000),
    Proxy(
        name="proxy.py",
        command=_proxy_py_command,
        missing=_needs_file(OUT / "peers/proxypy/bin/proxy", "make bench-peers"),
        max_idle=2_000,
    ),
    Proxy(
        name="mitmproxy",
        command=_mitmproxy_command,
        missing=_needs_file(OUT / "peers/mitm/bin/mitmdump", "make bench-peers"),
        max_idle=2_000,
    ),
    Proxy(name="plain relay", command=_python_command("plain_relay"), missing=lambda: None, max_idle=2_000),
)
