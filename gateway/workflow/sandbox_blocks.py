"""``sandbox:`` blocks as written, turned into specs that drivers understand.

Whatever is wrong is told with the line it stands on: a spec knows field names only, the block knows where each
field was written.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from drivers.mounts import expand
from drivers.spec import BuildSpec, NetworkSpec, SandboxSpec, SpecError
from gateway.errors import ConfigError
from gateway.workflow.model import ListItem, NetworkBlock, SandboxBlock, SourcePos
from policy.rules import RuleSource, RuleText

__all__ = ["Expansion", "SandboxConfigError", "network_spec", "refine", "spec_from_block"]

PROJECT_DIR: Final = "PROJECT_DIR"
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_LATER = ("secrets", "http")


class SandboxConfigError(ConfigError):
    """A ``sandbox:`` block that cannot be honoured; ``problems`` has one line for each mistake, with its place."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


@dataclass(frozen=True, slots=True, kw_only=True)
class Expansion:
    """What ``${NAME}`` stands for in a block: the host's environment, and the workspace's absolute path."""

    environ: Mapping[str, str]
    workspace: str


class _Reader:
    """Reads the texts of one block and collects what is wrong with them."""

    def __init__(self, expansion: Expansion) -> None:
        self.expansion = expansion
        self.problems: list[str] = []

    def text(self, name: str, text: str, position: SourcePos) -> str:
        """The text with its variables replaced by their values."""

        def value(match: re.Match[str]) -> str:
            variable = match[1]
            if variable == PROJECT_DIR:
                return self.expansion.workspace
            found = self.expansion.environ.get(variable)
            if found is None:
                self.problem(position, f"{name}: the environment has no {variable}; set it, or write the value itself")
                return ""
            return found

        # One pass for our variables, then one for those of devcontainers; what a value brings is not expanded again
        # by the first, and the second knows `${localEnv:...}` only in what the author wrote.
        pieces = re.split(r"(\$\{(?:localEnv|env):[^}]*\}|\$\{localWorkspaceFolder(?:Basename)?\})", text)
        return "".join(
            expand(piece, self.expansion.environ, self.expansion.workspace)
            if index % 2
            else _VARIABLE.sub(value, piece)
            for index, piece in enumerate(pieces)
        )

    def optional(self, block: SandboxBlock, name: str) -> str | None:
        """The text of a property, or None if it is absent."""
        text: str | None = getattr(block, name)
        return None if text is None else self.text(f"sandbox.{name}", text, block.where(name))

    def mapping(self, name: str, values: Mapping[str, str], position: SourcePos) -> Mapping[str, str]:
        """The same names with their values expanded."""
        expanded = {key: self.text(f"{name}.{key}", text, position) for key, text in values.items()}
        return MappingProxyType(expanded)

    def items(self, name: str, items: tuple[ListItem, ...]) -> tuple[str, ...]:
        """The texts of a list."""
        return tuple(self.text(name, item.text, item.position) for item in items)

    def problem(self, position: SourcePos, problem: str) -> None:
        """Note a problem and its place."""
        self.problems.append(f"{position.file}:{position.line}: {problem}")


def spec_from_block(
    block: SandboxBlock, expansion: Expansion, *, origin: str, mode: str, host_state: str
) -> SandboxSpec:
    """Return the spec that one block describes by itself.

    Args:
        block: what was written.
        expansion: what ``${NAME}`` stands for.
        origin: whose rules these are, for messages about them: ``user`` or ``node``.
        mode: the resolved mode, ``auto`` or ``inline``.
        host_state: the resolved host_state.

    Raises:
        SandboxConfigError: with every problem and its place.
    """
    reader = _Reader(expansion)
    given = _given(block, reader, origin)
    spec = SandboxSpec(**{**given, "mode": mode, "host_state": host_state})
    _check(spec, reader, block)
    return spec


def refine(parent: SandboxSpec, block: SandboxBlock, expansion: Expansion, *, host_state: str) -> SandboxSpec:
    """Return the spec of a node whose block refines its run's spec.

    With an ``image`` or ``build`` of its own the block describes another sandbox: nothing of the parent's user,
    environment, mounts and commands fits that image. What protects the host holds there too: the network policy
    and the limits, unless the block changes them. Without one it is the parent's sandbox with what the block adds:
    environment by name, mounts after the parent's, everything else replaced.

    Raises:
        SandboxConfigError: with every problem and its place.
    """
    reader = _Reader(expansion)
    given = _given(block, reader, "node")
    network = parent.network
    if block.network is not None:
        own = replace(
            given["network"],
            enforcement=block.network.enforcement or parent.network.enforcement,
            tls=block.network.tls or parent.network.tls,
        )
        network = refine_network(parent.network, own)
    given["network"] = network
    if block.image is not None or block.build is not None:
        protected = {"cpus": parent.cpus, "memory": parent.memory, "pids": parent.pids}
        spec = SandboxSpec(**{**protected, "mode": "inline", **given, "host_state": host_state})
    else:
        given["env"] = MappingProxyType({**parent.env, **given.get("env", {})})
        given["mounts"] = parent.mounts + given.get("mounts", ())
        spec = replace(parent, **{**given, "host_state": host_state})
    _check(spec, reader, block)
    return spec


def refine_network(parent: NetworkSpec, own: NetworkSpec) -> NetworkSpec:
    """Return the network of a node: its own block on top of its run's.

    ``merge`` and ``append`` put the node's rules after the parent's; ``replace`` drops the parent's rules and preset,
    and keeps its mode unless the node says another: to forget a policy is not to open the network.
    """
    replaced = own.inherit == "replace"
    return replace(
        own,
        mode=own.mode or parent.mode,
        preset=own.preset if replaced or own.preset is not None else parent.preset,
        rules=own.rules if replaced else parent.rules + own.rules,
        hosts=MappingProxyType({**parent.hosts, **own.hosts}),
        inspect_hosts=parent.inspect_hosts + own.inspect_hosts,
        exclude_hosts=parent.exclude_hosts + own.exclude_hosts,
    )


def _given(block: SandboxBlock, reader: _Reader, origin: str) -> dict[str, Any]:
    """The fields that a block sets, by their name in SandboxSpec; ``mode`` and ``host_state`` are the caller's."""
    if block.secrets is not None:
        reader.problem(block.where("secrets"), "sandbox.secrets: not supported by this version; remove it")
    given: dict[str, Any] = {
        name: reader.optional(block, name)
        for name in ("image", "user", "workspace_folder", "memory")
        if getattr(block, name) is not None
    }
    given |= {
        name: getattr(block, name)
        for name in ("post_create", "cpus", "pids")  # a script's ${NAME} is the shell's own
        if getattr(block, name) is not None
    }
    if block.build is not None:
        build = {
            name: reader.text(f"sandbox.build.{name}", text, block.build.position)
            for name, text in (("dockerfile", block.build.dockerfile), ("context", block.build.context))
            if text is not None
        }
        args = reader.mapping("sandbox.build.args", block.build.args, block.build.position)
        given["build"] = BuildSpec(**build, args=args)
    if block.env:
        given["env"] = reader.mapping("sandbox.env", block.env, block.where("env"))
    if block.mounts:
        given["mounts"] = reader.items("sandbox.mounts", block.mounts)
    if block.network is not None:
        given["network"] = _network(block.network, reader, origin)
    return given


def network_spec(block: NetworkBlock, *, origin: str) -> NetworkSpec:
    """Return the network spec of one ``network:`` block as it is written, unchecked.

    Raises:
        SandboxConfigError: it asks for what this version does not have.
    """
    reader = _Reader(Expansion(environ={}, workspace=""))
    network = _network(block, reader, origin)
    if reader.problems:
        raise SandboxConfigError(reader.problems)
    return network


def _network(block: NetworkBlock, reader: _Reader, origin: str) -> NetworkSpec:
    if block.http is not None:
        where = block.positions.get("http", block.position)
        reader.problem(where, "sandbox.network.http: not supported by this version; remove it")
    given: dict[str, Any] = {
        name: getattr(block, name)
        for name in ("mode", "preset", "inherit", "enforcement", "tls")
        if getattr(block, name) is not None
    }
    return NetworkSpec(
        **given,
        rules=tuple(
            RuleText(item.text, RuleSource(origin, item.position.file, item.position.line)) for item in block.rules
        ),
        inspect_hosts=tuple(item.text for item in block.inspect_hosts),
        exclude_hosts=tuple(item.text for item in block.exclude_hosts),
        hosts=MappingProxyType({name: tuple(item.text for item in items) for name, items in block.hosts.items()}),
    )


def _check(spec: SandboxSpec, reader: _Reader, block: SandboxBlock) -> None:
    try:
        spec.validate()
    except SpecError as error:
        for problem in error.problems:
            position = _place(block, problem.partition(":")[0])
            reader.problem(position, f"sandbox.{problem}")
    if reader.problems:
        raise SandboxConfigError(reader.problems)


def _place(block: SandboxBlock, field: str) -> SourcePos:
    """Where a field such as ``network.mode`` was written, or the nearest thing to it that was."""
    top, _, rest = field.partition(".")
    if top == "network" and block.network is not None:
        return block.network.positions.get(rest.partition(".")[0], block.network.position)
    if top == "build" and block.build is not None:
        return block.build.position
    return block.where(top)
