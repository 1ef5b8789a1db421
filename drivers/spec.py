"""The resolved description of a sandbox: what every layer above has agreed on and every driver must honour.

The values are frozen and plain. `SandboxSpec.validate` finds every problem that can be seen without looking at the
host, all of them at once, so that a user fixes a file in one go.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from drivers.mounts import MountError, parse_mount
from drivers.spec_text import (
    ENV_NAME,
    IMAGE,
    MEMORY,
    USER,
    argument_problem,
    canonical_path_problem,
    printable,
    script_problem,
)
from policy.host import InvalidHost, parse_host
from policy.rules import Mode, Policy, PolicyError, RuleText, build_policy

SandboxMode = Literal["auto", "inline", "none"]
HostState = Literal["auto", "none"]
NetworkMode = Literal["open", "allowlist", "denylist"]
Inherit = Literal["merge", "append", "replace"]
Enforcement = Literal["enforced", "cooperative"]
Tls = Literal["passthrough", "inspect"]

SANDBOX_MODES = ("auto", "inline", "none")
HOST_STATES = ("auto", "none")
NETWORK_MODES = ("open", "allowlist", "denylist")
INHERITS = ("merge", "append", "replace")
ENFORCEMENTS = ("enforced", "cooperative")
TLS_MODES = ("passthrough", "inspect")


class SpecError(Exception):
    """A sandbox spec that cannot be honoured by any driver; `problems` has one line for each mistake."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def choice_problem(name: str, value: object, choices: tuple[str, ...]) -> Iterator[str]:
    """Yield a problem if `value` is none of `choices`."""
    if value not in choices:
        yield f"{name}: {printable(value)} is not a known value; write {' or '.join(choices)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildSpec:
    """An image that is built before the run from a Dockerfile in the workspace."""

    dockerfile: str = "Dockerfile"
    context: str = "."
    args: Mapping[str, str] = field(default_factory=dict)

    def problems(self) -> Iterator[str]:
        """Yield what is wrong with it."""
        for name, value in (("dockerfile", self.dockerfile), ("context", self.context)):
            yield from argument_problem(f"build.{name}", value)
            if value.startswith("/") or ".." in value.split("/"):
                yield (
                    f"build.{name}: {printable(value)} leaves the workspace; "
                    "write a path below it, relative to it and without `..`"
                )
        yield from env_problems("build.args", self.args)


def env_problems(name: str, env: Mapping[str, str]) -> Iterator[str]:
    """Yield what is wrong with a mapping of variable names to values."""
    for key, value in env.items():
        if not ENV_NAME.fullmatch(key):
            yield (
                f"{name}: {printable(key)} is not a variable name; "
                "use letters, digits and underscore, and no digit at the start"
            )
        if re.search("[\0\r\n]", value):
            yield f"{name}.{printable(key, quote=False)}: the value holds a NUL or a line break; write it on one line"


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSpec:
    """Which hosts the sandbox may reach, and how that is made sure."""

    mode: NetworkMode | None = None
    "None: nobody said. What that means is `effective_mode`."
    preset: str | None = None
    inherit: Inherit = "merge"
    rules: tuple[RuleText, ...] = ()
    enforcement: Enforcement = "enforced"
    tls: Tls = "passthrough"
    inspect_hosts: tuple[str, ...] = ()
    exclude_hosts: tuple[str, ...] = ()
    hosts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    "Static answers, name to addresses; they are judged like answers of a resolver."

    @property
    def effective_mode(self) -> Mode:
        """The mode that holds: open when nobody said anything."""
        return Mode.OPEN if self.mode is None else Mode(self.mode)

    def build_policy(self) -> Policy:
        """Compile the rules.

        :raises PolicyError: with every bad rule.
        """
        return build_policy(self.effective_mode, preset=self.preset, rules=self.rules)

    def problems(self) -> Iterator[str]:
        """Yield what is wrong with it."""
        if self.mode is not None:
            yield from choice_problem("network.mode", self.mode, NETWORK_MODES)
        yield from choice_problem("network.inherit", self.inherit, INHERITS)
        yield from choice_problem("network.enforcement", self.enforcement, ENFORCEMENTS)
        yield from choice_problem("network.tls", self.tls, TLS_MODES)
        if self.mode is None and (self.rules or self.preset is not None):
            what = "rules" if self.rules else "a preset"
            yield f"network.mode: there are {what} but no mode, so nothing would be enforced; write `mode: allowlist`"
        yield from self._rule_problems()
        for name, hosts in (("inspect_hosts", self.inspect_hosts), ("exclude_hosts", self.exclude_hosts)):
            for host in hosts:
                yield from argument_problem(f"network.{name}", host)
        if self.tls != "inspect":
            for name, hosts in (("inspect_hosts", self.inspect_hosts), ("exclude_hosts", self.exclude_hosts)):
                if hosts:
                    yield f"network.{name}: has no effect with `tls: {self.tls}`; write `tls: inspect` or leave it out"
        seen: dict[str, str] = {}
        for name, addresses in self.hosts.items():
            yield from static_host_problems(name, addresses)
            first = seen.setdefault(_canonical(name), name)
            if first != name:
                yield (
                    f"network.hosts.{printable(name, quote=False)}: the same host as {printable(first)}; "
                    "write all its addresses in one entry"
                )

    def _rule_problems(self) -> Iterator[str]:
        if self.mode == "open" and any(rule.text.startswith("!") for rule in self.rules):
            yield (
                "network.mode: `open` runs without the proxy, so the `!` rules would never be applied; "
                "write `mode: denylist` to allow everything else"
            )
        try:
            build_policy(Mode.ALLOWLIST, preset=self.preset, rules=self.rules)
        except PolicyError as error:
            yield from (f"network.rules: {problem}" for problem in error.problems)


def _canonical(name: str) -> str:
    try:
        return str(parse_host(name))
    except InvalidHost:
        return name


def static_host_problems(name: str, addresses: tuple[str, ...]) -> Iterator[str]:
    """Yield what is wrong with one static answer."""
    label = f"network.hosts.{printable(name, quote=False)}"
    try:
        if parse_host(name).address is not None:
            yield f"{label}: the key is an address; write a host name"
    except InvalidHost as error:
        yield f"{label}: not a host name ({error}); write one such as registry.acme.dev"
    if not addresses:
        yield f"{label}: no addresses; write at least one, or leave the entry out"
    for address in addresses:
        try:
            if parse_host(address).address is None:
                yield f"{label}: {printable(address)} is a name; write IP addresses"
        except InvalidHost:
            yield f"{label}: {printable(address)} is not an IP address; write one such as 192.0.2.10"


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    """One resolved sandbox. Frozen: nothing changes between what was checked and what is started."""

    mode: SandboxMode = "auto"
    image: str | None = None
    build: BuildSpec | None = None
    user: str | None = None
    workspace_folder: str | None = None
    host_state: HostState = "auto"
    post_create: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[str, ...] = ()
    network: NetworkSpec = field(default_factory=NetworkSpec)
    cpus: float | None = None
    "Processors, fractions allowed."
    memory: str | None = None
    "Bytes with a unit: `512m`, `2g`."
    pids: int | None = None
    "How many processes and threads at once."

    def validate(self) -> None:
        """Check everything that can be judged without looking at the host.

        :raises SpecError: with every problem, each naming the field, the value and the fix.
        """
        problems = tuple(self._problems())
        if problems:
            raise SpecError(problems)

    def _problems(self) -> Iterator[str]:
        yield from choice_problem("mode", self.mode, SANDBOX_MODES)
        yield from choice_problem("host_state", self.host_state, HOST_STATES)
        yield from self._image_problems()
        if self.user is not None and not USER.fullmatch(self.user):
            yield f"user: {printable(self.user)} is not a user; write a name or number, or `user:group` like 1000:1000"
        if self.workspace_folder is not None:
            yield from canonical_path_problem("workspace_folder", self.workspace_folder)
        if self.post_create is not None:
            yield from script_problem("post_create", self.post_create)
        yield from env_problems("env", self.env)
        for mount in self.mounts:
            try:
                parse_mount(mount)
            except MountError as error:
                yield str(error)
        yield from self._limit_problems()
        yield from self.network.problems()

    def _image_problems(self) -> Iterator[str]:
        if self.image is not None and self.build is not None:
            yield f"image: {printable(self.image)} and a build block exclude each other; keep one of them"
        if self.mode == "inline" and self.image is None and self.build is None:
            yield "mode: `inline` needs an image or a build block; write `image: ...`, or `mode: auto`"
        if self.image is not None and not IMAGE.fullmatch(self.image):
            yield (
                f"image: {printable(self.image)} is not an image reference; "
                "write one such as ghcr.io/acme/tools:1.2 (no spaces, no `-` at the start)"
            )
        if self.build is not None:
            yield from self.build.problems()

    def _limit_problems(self) -> Iterator[str]:
        if self.cpus is not None and not (math.isfinite(self.cpus) and self.cpus > 0):
            yield f"cpus: {self.cpus} is not a positive number; write one such as 1.5"
        if self.memory is not None and not MEMORY.fullmatch(self.memory):
            yield f"memory: {printable(self.memory)} is not a size; write a number and a unit, such as 512m or 2g"
        if self.pids is not None and self.pids <= 0:
            yield f"pids: {self.pids} is not a positive number; write one such as 512"
