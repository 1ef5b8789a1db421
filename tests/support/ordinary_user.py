"""Running our own program as a user without privileges, also when the tests run as root."""

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("policy", "gateway", "drivers")
NOT_NEEDED = ("mypy", "mypyc", "ruff*", "uv*", "hypothesis*", "atheris*", "pip", "setuptools", "__pycache__", "*.pth")
USER = "nobody"


@dataclass(frozen=True, slots=True, kw_only=True)
class OrdinaryUser:
    """A user without privileges: a home folder of its own, and a Python that can import our packages.

    Args:
        uid: the user; the one who runs the tests unless that is root.
        gid: its group.
        home: an empty folder that it owns, removed afterwards.
        python: an interpreter that it may run.
        environ: the variables that make the interpreter find our packages.
    """

    uid: int
    gid: int
    home: Path
    python: str
    environ: Mapping[str, str]

    def iterion(self, *arguments: str) -> list[str]:
        """Return the command line that runs our program."""
        return [self.python, "-c", "from gateway.cli.main import main; main()", *arguments]

    def run(
        self, argv: Sequence[str], *, timeout_s: float = 60, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the user's home folder and return its output as text."""
        as_root = os.geteuid() == 0
        return subprocess.run(
            argv,
            cwd=self.home,
            env={**self.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            user=self.uid if as_root else None,
            group=self.gid if as_root else None,
            extra_groups=[] if as_root else None,
        )


def _python_for(uid: int, gid: int) -> str:
    """Return an interpreter of our own version that the user can run: ours may lie in root's home."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for candidate in (sys.executable, f"/usr/bin/{version}", f"/usr/local/bin/{version}"):
        try:
            subprocess.run([candidate, "-c", ""], user=uid, group=gid, extra_groups=[], cwd="/", env={}, check=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        return candidate
    raise RuntimeError(f"no {version} that an ordinary user can run: apt-get install {version}")


def _site_packages() -> Path:
    import trio

    return Path(trio.__file__).parents[1]


@contextmanager
def ordinary_user() -> Iterator[OrdinaryUser]:
    """Give an ordinary user until the block is left; everything that was made for it is removed then."""
    folder = Path(tempfile.mkdtemp(prefix="u"))  # short: addresses of Unix sockets are made below it
    try:
        home = folder / "home"
        home.mkdir()
        environ = {"HOME": str(home), "PATH": "/usr/local/bin:/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
        for name in ("TMPDIR", "ITERION_TEST_SESSION"):
            if name in os.environ:
                environ[name] = os.environ[name]
        if os.geteuid() != 0:
            environ["PYTHONPATH"] = str(ROOT)
            yield OrdinaryUser(uid=os.geteuid(), gid=os.getegid(), home=home, python=sys.executable, environ=environ)
            return
        entry = pwd.getpwnam(USER)
        # The checkout may lie where only root can look, so the user gets a copy.
        library = folder / "library"
        shutil.copytree(_site_packages(), library, ignore=shutil.ignore_patterns(*NOT_NEEDED))
        for name in PACKAGES:
            shutil.copytree(ROOT / name, library / name, ignore=shutil.ignore_patterns("__pycache__"))
        folder.chmod(0o755)
        shutil.chown(home, entry.pw_uid, entry.pw_gid)
        environ["PYTHONPATH"] = str(library)
        python = _python_for(entry.pw_uid, entry.pw_gid)
        yield OrdinaryUser(uid=entry.pw_uid, gid=entry.pw_gid, home=home, python=python, environ=environ)
    finally:
        shutil.rmtree(folder)
