"""Mount strings: `type=bind,source=/data,target=/data,readonly`, parsed, expanded and judged."""

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from drivers.host_paths import HostHomes, refusal
from drivers.spec_text import argument_problem, canonical_path_problem, printable

MountType = Literal["bind", "tmpfs", "volume", "pvc", "configmap", "secret"]
MOUNT_TYPES: tuple[MountType, ...] = ("bind", "tmpfs", "volume", "pvc", "configmap", "secret")

KEY_ALIASES = {"src": "source", "destination": "target", "dst": "target", "ro": "readonly"}
KEYS = ("type", "source", "target", "readonly", "consistency", "key")
TRUTH = {"": True, "true": True, "1": True, "false": False, "0": False}

VARIABLE = re.compile(r"\$\{(localEnv|env):([^}:]+)(?::([^}]*))?\}|\$\{(localWorkspaceFolder(?:Basename)?)\}")


class MountError(Exception):
    """A mount that cannot be had; the message names the value and what to write instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One mount."""

    type: MountType
    source: str | None
    target: str
    readonly: bool = False


def parse_mount(text: str) -> Mount:
    """Read a mount string. Variables may still stand in it.

    :raises MountError: it is not one.
    """
    for problem in argument_problem("mounts", text):
        raise MountError(problem)
    values: dict[str, str] = {}
    for part in text.split(","):
        key, _, value = part.partition("=")
        key = KEY_ALIASES.get(key, key)
        if key not in KEYS:
            raise MountError(
                f"mounts: {printable(part)} is not known; write type=bind,source=PATH,target=PATH[,readonly]"
            )
        if key in values:
            raise MountError(f"mounts: {printable(text)} says `{key}` twice; keep one")
        values[key] = value
    kind = next((known for known in MOUNT_TYPES if known == values.get("type")), None)
    if kind is None:
        raise MountError(f"mounts: {printable(text)} has no known type; write type={'|'.join(MOUNT_TYPES)}")
    if not values.get("target"):
        raise MountError(f"mounts: {printable(text)} has no target; add target=PATH")
    if not values.get("source") and kind != "tmpfs":
        raise MountError(f"mounts: {printable(text)} has no source; add source=...")
    if values.get("readonly", "") not in TRUTH:
        raise MountError(f"mounts: {printable(text)}: `readonly` is true or false; write `readonly` alone")
    return Mount(
        type=kind,
        source=values.get("source"),
        target=values["target"],
        readonly="readonly" in values and TRUTH[values["readonly"]],
    )


def expand(text: str, environ: Mapping[str, str], workspace: str) -> str:
    """Replace `${localEnv:NAME}`, `${localEnv:NAME:default}` and `${localWorkspaceFolder}`.

    A missing variable is its default (all of it: a URL keeps its colons) or nothing; an unknown `${...}` stays.
    """

    def value(match: re.Match[str]) -> str:
        _, name, default, folder = match.groups()
        if folder is not None:
            return os.path.basename(workspace) if folder.endswith("Basename") else workspace
        return environ.get(name) or default or ""

    return VARIABLE.sub(value, text)


def resolve_bind(text: str, environ: Mapping[str, str], workspace: str, homes: HostHomes) -> Mount:
    """Parse, expand and judge a mount for a driver that has this host's files.

    :returns: the mount with a real source path (none for tmpfs).
    :raises MountError: it is refused.
    """
    raw = parse_mount(text)
    target = expand(raw.target, environ, workspace)
    for problem in canonical_path_problem("mounts: target", target):
        raise MountError(problem)
    if raw.type == "tmpfs":
        return Mount(type="tmpfs", source=None, target=target, readonly=raw.readonly)
    if raw.type != "bind":
        raise MountError(f"mounts: type={raw.type} is not for this driver; write type=bind or type=tmpfs")
    source = expand(raw.source or "", environ, workspace)
    for problem in argument_problem("mounts: source", source):
        raise MountError(problem)
    if not source.startswith("/"):
        raise MountError(f"mounts: source {printable(source)} is not absolute; write a path that starts with `/`")
    real = os.path.realpath(source)
    if (reason := refusal(real, homes)) is not None:
        raise MountError(
            f"mounts: source {printable(source)} is refused: {reason}; mount a directory of its own instead"
        )
    try:
        mode = os.stat(real).st_mode
    except OSError as error:
        raise MountError(f"mounts: source {printable(source)}: {error.strerror}; create it first") from None
    if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
        raise MountError(
            f"mounts: source {printable(source)} is neither a file nor a directory; a socket or device is refused"
        )
    return Mount(type="bind", source=real, target=target, readonly=raw.readonly)
