"""What a bubblewrap sandbox sees of the host.

The root is private and empty. Into it go the host's top-level directories, read-only, except for those that belong to
the kernel, to running services or to people; then a private home, the workspace, and the mounts that were asked for.
At the end, whatever is still visible and must not be is masked: secrets of the system, and every unix socket.
"""

import glob
import os
import stat
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from drivers.base import DriverError, RunInfo
from drivers.git_guard import git_directories, guard_git
from drivers.home_view import plain_git_settings, show_claude_state, show_home
from drivers.host_paths import (
    NOT_WRITABLE,
    SSH_HOST_KEYS,
    SYSTEM_DIRECTORIES,
    SYSTEM_SECRETS,
    SYSTEM_TREES,
    HostHomes,
    credential_below_home,
    is_within,
)
from drivers.mount_table import MountTable
from drivers.mounts import MountError, resolve_bind
from drivers.private_files import SEARCHED, private_files
from drivers.spec import SandboxSpec
from drivers.view import View, is_reachable

HOMELESS = "/tmp/home"
"""The home of a user who has none."""

NOT_SHOWN = frozenset({"boot", "dev", "home", "lost+found", "proc", "root", "run", "sys", "tmp"})
"""Top-level directories that are private, or absent, inside. Top-level files are never shown."""

PRIVATE_DIRECTORIES = (
    ("/tmp", 0o1777),
    ("/var/tmp", 0o1777),
    ("/dev/shm", 0o1777),
    ("/run", 0o755),
    ("/var/run", 0o755),
)

SHOWN_AGAIN = ("/sys/devices/system/cpu", "/run/current-system", "/run/booted-system", "/run/opengl-driver")
"""How many processors there are; on NixOS, where every program is."""

ROOT_OWNED_PROC = (
    *(
        "acpi",
        "asound",
        "bootconfig",
        "config.gz",
        "driver",
        "fs",
        "iomem",
        "ioports",
        "kallsyms",
        "kcore",
        "key-users",
    ),
    *("keys", "kmsg", "kpagecgroup", "kpagecount", "kpageflags", "latency_stats", "modules", "mtrr", "sched_debug"),
    *("dynamic_debug", "scsi", "slabinfo", "timer_list", "tty/driver", "vmallocinfo", "vmstat"),
)
"""Files of /proc that belong to the host's root, whom a sandbox of root's is without its capabilities. Those that not
everybody may read, or somebody may write, are found by their modes and hidden as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A view, ready to be started."""

    options: tuple[str, ...]
    "For bubblewrap."
    files: tuple[tuple[bytes, str], ...]
    "Contents and places of files to make inside."
    workspace: str
    home: str
    python: str
    host_state_mounts: tuple[str, ...]
    git_directories: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """What a plan depends on beside the file system."""

    homes: HostHomes
    environ: Mapping[str, str]
    sockets: tuple[str, ...]
    python: str
    "The real path of an interpreter without a virtual environment."


def running_python() -> str:
    """The interpreter that runs us, seen through its virtual environment and through links."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def plan_view(spec: SandboxSpec, info: RunInfo, host: HostFacts, view: View) -> Plan:
    """Decide what the sandbox sees.

    :param view: an empty one.
    :raises DriverError: something that was asked for cannot be shown.
    """
    workspace = checked_workspace(str(info.workspace), host.homes)
    _show_system(view, info)
    home = host.homes.own if host.homes.own and os.path.isdir(host.homes.own) else None
    for other in host.homes.others:
        if view.is_visible(other) and is_reachable(other) and os.path.isdir(other):
            view.private(other, sealed=True)
    files: tuple[tuple[bytes, str], ...] = ()
    mounts: tuple[str, ...] = ()
    if home is None:
        view.plain("--perms", "0700", "--dir", HOMELESS)
    else:
        show_home(view, home)
        settings = plain_git_settings(home)
        files = ((settings.encode(errors="surrogateescape"), f"{home}/.gitconfig"),) if settings else ()
        mounts = show_claude_state(view, home) if spec.host_state == "auto" else ()
    _show_mounts(view, spec, host, workspace)
    hidden = _outermost(
        spelling
        for path in (info.scratch, *info.hidden)
        for spelling in host.homes.mounts.spellings(os.path.realpath(path))
    )
    for writable in (workspace, *(os.path.realpath(extra) for extra in info.writable)):
        if any(is_within(writable, path) for path in hidden):
            raise DriverError(f"the workspace {writable} is where runs are recorded; work in a directory of its own")
    _hide(view, hidden)  # what is around the workspace before it, what is inside afterwards
    inside = spec.workspace_folder or workspace
    _show_workspace(view, workspace, inside)
    _pin(view, hidden, workspace, inside)
    guarded = git_directories(workspace)
    for extra in info.writable:
        real = checked_workspace(str(extra), host.homes)
        view.show(real, writable=True)
        guard_git(view, real, real)
        _pin(view, hidden, real, real)
        guarded += git_directories(real)
    _hide(view, hidden)
    _show_python(view, host.python)
    _mask_secrets(view, host.homes.mounts)
    _mask_sockets(view, host.sockets, host.homes.mounts)
    return Plan(
        options=tuple(view.finish()),
        files=files,
        workspace=inside,
        home=home or HOMELESS,
        python=host.python,
        host_state_mounts=mounts,
        git_directories=tuple(guarded),
    )


def checked_workspace(path: str, homes: HostHomes) -> str:
    """The real path of a directory that is to be writable.

    :raises DriverError: it is no directory, or making it writable would give away more than a project.
    """
    cure = "work in a directory of its own, such as ~/projects/name"
    real = os.path.realpath(path)
    if not os.path.isdir(real):
        raise DriverError(f"the workspace {path} is not a directory; create it")
    for spelling in homes.mounts.spellings(real):
        in_system = spelling in SYSTEM_DIRECTORIES or any(is_within(spelling, tree) for tree in NOT_WRITABLE)
        if in_system and not spelling.startswith("/dev/shm/"):
            raise DriverError(f"the workspace {path} is a directory of the system; {cure}")
    for home in homes.every:
        if is_within(home, real):
            raise DriverError(f"the workspace {path} is or contains the home directory {home}; {cure}")
    if (credential := credential_below_home(real, homes)) is not None:
        raise DriverError(f"the workspace {path} is or contains {credential}, which holds credentials; {cure}")
    if not is_reachable(real):
        raise DriverError(
            f"the workspace {path} belongs to another user, and root has no power over others' files in a sandbox; "
            "run this as its owner"
        )
    return real


def _show_system(view: View, info: RunInfo) -> None:
    with os.scandir("/") as entries:
        top = sorted((entry.name, entry.is_symlink(), entry.is_dir()) for entry in entries)
    for name, is_link, is_directory in top:
        if name in NOT_SHOWN:
            continue
        if is_link:
            view.plain("--symlink", os.readlink(f"/{name}"), f"/{name}")
        elif is_directory:
            view.show(f"/{name}")
    if os.geteuid() == 0:
        _hide_private_files(view)
    view.private("/proc")
    view.options[-4:] = ["--proc", "/proc"]
    # The kernel's settings ask for the user id of the host's root, not for a capability. bubblewrap does not see that
    # they are writable: it asks access(2) about the directory, whose mode forbids it to everybody.
    view.show("/proc/sys")
    if os.geteuid() == 0:
        for name in sorted({*ROOT_OWNED_PROC, *_guarded_proc()}):
            if os.path.exists(f"/proc/{name}"):
                view.mask(f"/proc/{name}", directory=os.path.isdir(f"/proc/{name}"))
    view.private("/dev")
    view.options[-4:] = ["--dev", "/dev"]
    for path, mode in PRIVATE_DIRECTORIES:
        if path in ("/tmp", "/run", "/dev/shm") or (os.path.isdir(path) and not os.path.islink(path)):
            view.private(path, mode)
    for path in SHOWN_AGAIN:
        if os.path.exists(path):
            view.show(path)
    view.plain("--dir", "/home", "--dir", "/root")
    resolver = os.path.realpath("/etc/resolv.conf")
    if info.network == "host" and not view.is_visible(resolver) and os.path.isfile(resolver):
        view.show(resolver)


def _hide_private_files(view: View) -> None:
    """Hide what only root may read, before anything that was asked for is shown on top of it."""
    for tree, depth in SEARCHED:
        for found in private_files(tree, depth):
            if found.is_directory:
                view.private(found.path, sealed=True)  # the workspace may lie below it, and needs a mount point there
            else:
                view.mask(found.path, directory=False)


def _guarded_proc() -> list[str]:
    """The files of /proc, processes aside, that not everybody may read or that somebody may write."""
    names = []
    with os.scandir("/proc") as entries:
        for entry in entries:
            if not entry.name.isdigit() and entry.is_file(follow_symlinks=False):
                mode = entry.stat(follow_symlinks=False).st_mode
                if mode & stat.S_IWUSR or mode & stat.S_IWOTH or not mode & stat.S_IROTH:
                    names.append(entry.name)
    return names


def _show_mounts(view: View, spec: SandboxSpec, host: HostFacts, workspace: str) -> None:
    for text in spec.mounts:
        try:
            mount = resolve_bind(text, host.environ, workspace, host.homes)
        except MountError as error:
            raise DriverError(str(error)) from None
        _check_target(view, "mounts: target", mount.target)
        if mount.source is None:
            view.private(mount.target, sealed=mount.readonly)
        else:
            view.show(mount.source, mount.target, writable=not mount.readonly)


def _check_target(view: View, name: str, target: str) -> None:
    """Refuse a place that would hide what the sandbox lives on, or where no mount point can be made."""
    if target in SYSTEM_DIRECTORIES or any(is_within(target, tree) for tree in (*SYSTEM_TREES, "/run/iterion")):
        raise DriverError(f"{name} {target} would hide a part of the system; write another place, such as /data")
    source = view.what_is_at(target)
    if source is not None and not os.path.lexists(source):
        raise DriverError(
            f"{name} {target} does not exist on this host, and nothing can be created in its read-only parent; "
            "create it, or write a new name directly below `/`"
        )


def _show_workspace(view: View, workspace: str, inside: str) -> None:
    if inside != workspace:
        _check_target(view, "workspace_folder", inside)
    view.show(workspace, inside, writable=True)
    guard_git(view, workspace, inside)


def _hide(view: View, paths: list[str]) -> None:
    """Put something empty over directories that belong to the gateway."""
    for path in paths:
        for place in view.places_of(path):
            if os.path.isdir(path) and is_reachable(path):
                view.private(place, sealed=True)


def _outermost(paths: Iterable[str]) -> list[str]:
    """The paths without those that lie in another of them."""
    outermost: list[str] = []
    for path in sorted(paths):
        if not any(is_within(path, other) for other in outermost):
            outermost.append(path)
    return outermost


def _pin(view: View, hidden: list[str], writable: str, inside: str) -> None:
    """Make every directory between a writable one and a hidden one in it a mount point.

    A mount point can be neither renamed nor replaced. Otherwise a sandbox could move the hidden directory away with
    its parent, and put its own in the place where the host looks for it.
    """
    for path in hidden:
        if is_within(path, writable):
            parts = os.path.relpath(path, writable).split("/")
            for count in range(1, len(parts)):
                below = "/".join(parts[:count])
                view.show(f"{writable}/{below}", f"{inside}/{below}", writable=True)


def _show_python(view: View, python: str) -> None:
    """Show the interpreter that init runs on, and no more of where it is installed than it needs."""
    library = os.path.dirname(os.__file__)
    needed = [python, library, *glob.glob(f"{glob.escape(os.path.dirname(library))}/libpython*.so*")]
    for path in needed:
        if not view.is_visible(path):
            view.show(path)


def _mask_secrets(view: View, mounts: MountTable) -> None:
    keys = glob.glob(f"{SSH_HOST_KEYS}/ssh_host_*_key")
    for path in {os.path.realpath(secret) for secret in (*SYSTEM_SECRETS, *keys)}:
        _mask_everywhere(view, path, mounts)


def _mask_sockets(view: View, sockets: tuple[str, ...], mounts: MountTable) -> None:
    for path in sockets:
        try:
            is_socket = stat.S_ISSOCK(os.lstat(path).st_mode)
        except OSError:
            continue  # of another mount namespace, or gone
        if is_socket:
            _mask_everywhere(view, path, mounts)


def _mask_everywhere(view: View, path: str, mounts: MountTable) -> None:
    for spelling in mounts.spellings(path):
        for place in view.places_of(spelling):
            if is_reachable(spelling):
                view.mask(place, directory=os.path.isdir(spelling))
