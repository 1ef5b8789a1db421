"""Which paths of a host no sandbox may have: credentials, engine sockets, kernel interfaces, whole homes.

Everything is compared on real paths, so that a relative, symlinked or `..` spelling is the same path.
"""

import os
import posixpath
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from drivers.mount_table import MountTable

ENGINE_SOCKETS = (
    "/run/docker.sock",
    "/var/run/docker.sock",
    "/run/podman",
    "/var/run/podman",
    "/run/containerd",
    "/var/run/containerd",
    "/run/crio",
    "/run/buildkit",
    "/run/k3s",
    "/run/user",
    "/run/dbus",
    "/run/systemd/private",
)
"""Whoever reaches one of these can start a process outside. /run/user holds the rootless engines' sockets."""

KERNEL_PATHS = ("/proc", "/sys", "/dev", "/boot")

SYSTEM_SECRETS = (
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/security/opasswd",
    "/etc/krb5.keytab",
    "/etc/ssl/private",
    "/etc/pki/tls/private",
    "/etc/letsencrypt",
    "/etc/wireguard",
    "/etc/openvpn",
    "/etc/ipsec.secrets",
    "/etc/ppp/chap-secrets",
    "/etc/NetworkManager/system-connections",
    "/etc/docker/key.json",
    "/etc/kubernetes",
    "/etc/rancher",
    "/var/lib/docker",
    "/var/lib/containerd",
    "/var/lib/containers",
    "/var/lib/kubelet",
    "/var/lib/rancher",
    "/var/lib/private",
    "/var/lib/sss",
    "/var/lib/NetworkManager",
    "/var/lib/systemd/credential.secret",
    "/var/spool/cron",
    "/var/mail",
    "/var/spool/mail",
    "/var/backups",
    "/swapfile",
)
"""What a sandbox of root's, or of a member of some group, could otherwise read."""

SSH_HOST_KEYS = "/etc/ssh"
"""Only the private keys in it are masked: programs read the rest."""

REFUSED_SOURCES = ("/root", *KERNEL_PATHS, *ENGINE_SOCKETS, *SYSTEM_SECRETS)
"""No mount may show one of these, something below it, or a directory that contains it."""

HOME_CREDENTIALS = (
    ".aws",
    ".ssh",
    ".gnupg",
    ".docker",
    ".kube",
    ".gcloud",
    ".config/gcloud",
    ".azure",
    ".npmrc",
    ".pypirc",
    ".netrc",
    ".git-credentials",
)
"""Names that are credentials anywhere below a home."""

MIN_PERSON_UID = 1000
NOBODY_UIDS = (65534, 65535)

SYSTEM_DIRECTORIES = (
    *("/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib32", "/lib64", "/libx32", "/media", "/mnt", "/nix"),
    *("/opt", "/proc", "/root", "/run", "/sbin", "/srv", "/sys", "/tmp", "/usr", "/usr/bin", "/usr/lib", "/usr/local"),
    *("/usr/local/bin", "/usr/local/lib", "/usr/sbin", "/usr/share", "/var", "/var/lib", "/var/run", "/var/tmp"),
)
"""Directories that are not anybody's project."""

SYSTEM_TREES = ("/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/sbin", "/sys", "/usr/bin", "/usr/lib")
"""Trees in which there are no projects either."""

NOT_WRITABLE = (
    *SYSTEM_TREES,
    *("/lib32", "/libx32", "/run", "/usr/include", "/usr/lib32", "/usr/lib64", "/usr/libexec", "/usr/libx32"),
    *("/usr/local/bin", "/usr/local/etc", "/usr/local/lib", "/usr/local/sbin", "/usr/local/share", "/usr/sbin"),
    *("/usr/share", *ENGINE_SOCKETS, *SYSTEM_SECRETS),
)
"""Trees that no sandbox may write to: programs of the host load what is in them, or run it (a crontab, a unit)."""


def is_within(path: str, ancestor: str) -> bool:
    """Whether `path` is `ancestor` or below it; both canonical."""
    return path == ancestor or path.startswith(ancestor.rstrip("/") + "/")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostHomes:
    """The home directories of this host, as real paths."""

    own: str | None
    "The one of the user who runs us, if there is one that could hold anything."
    others: tuple[str, ...]
    "Of other people, those outside /home and /root too; and every home under the other paths that mounts give it."
    mounts: MountTable = field(default=MountTable(), repr=False)
    "Under which other paths anything is found."

    @property
    def every(self) -> tuple[str, ...]:
        """All of them."""
        return (*((self.own,) if self.own else ()), *self.others)


def find_homes(
    environ: Mapping[str, str],
    passwd: str = "/etc/passwd",
    home_root: str = "/home",
    mounts: MountTable | None = None,
) -> HostHomes:
    """Find the homes: HOME, the people in the user database's file, and what lies in /home.

    The file is read as it is: asking a directory service for every person could take minutes.
    """
    uid = os.getuid()
    own = environ.get("HOME", "")
    others = {"/root"}
    for entry_uid, home in _passwd_homes(passwd):
        if entry_uid == uid and not own:
            own = home
        if entry_uid >= MIN_PERSON_UID and entry_uid not in NOBODY_UIDS:
            others.add(home)
    with suppress(OSError):  # no such place, or not for us to look into: it is masked as a whole
        others.update(entry.path for entry in os.scandir(home_root))
    real = {os.path.realpath(path) for path in others if path.startswith("/")}
    mine = os.path.realpath(own) if own.startswith("/") else None
    if mine in SYSTEM_DIRECTORIES and mine != "/root":
        mine = None  # daemons and containers have `/`; that is nobody's home
    mounts = mounts or MountTable()
    real = {spelling for path in (*real, *((mine,) if mine else ())) for spelling in mounts.spellings(path)}
    others = real - {mine, *SYSTEM_DIRECTORIES} | ({"/root"} - {mine})
    return HostHomes(own=mine, others=tuple(sorted(others)), mounts=mounts)


def _passwd_homes(passwd: str) -> Iterator[tuple[int, str]]:
    try:
        lines = Path(passwd).read_text(errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        fields = line.split(":")
        if len(fields) == 7 and fields[2].isdigit():
            yield int(fields[2]), posixpath.normpath(fields[5])


def credential_below_home(path: str, homes: HostHomes) -> str | None:
    """The credential that `path`, below a home, is, is inside of, or contains by name; None if it is harmless."""
    for home in homes.every:
        if not is_within(path, home) or path == home:
            continue
        padded = path[len(home) :] + "/"
        for name in HOME_CREDENTIALS:
            if f"/{name}/" in padded:
                return name
            if is_within(f"{home}/{name}", path):
                return name
    return None


def refusal(path: str, homes: HostHomes) -> str | None:
    """Why a mount may not show `path` (a real path); None if it may."""
    for refused in REFUSED_SOURCES:
        for spelling in (refused, *homes.mounts.spellings(os.path.realpath(refused))):
            if is_within(path, spelling):
                return f"{refused} is never visible in a sandbox"
            if is_within(spelling, path):
                return f"it contains {refused}, which is never visible in a sandbox"
    for home in homes.every:
        if is_within(home, path):
            return f"it contains the home directory {home}, and with it credentials"
    if (credential := credential_below_home(path, homes)) is not None:
        return f"{credential} below a home directory holds credentials"
    return None
