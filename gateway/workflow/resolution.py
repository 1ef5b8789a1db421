"""Which sandbox a run and each of its nodes gets, who decided it, and what happens when it cannot be had.

Pure: everything that matters is an argument, so that a test, ``doctor`` and the run itself get the same answer.

Mode, highest first: the node's ``sandbox:``; ``--sandbox``, then ``ITERION_SANDBOX_OVERRIDE``; the workflow's
``sandbox:``; ``ITERION_SANDBOX_DEFAULT``; the entry point's own default (``auto`` for a product, nothing for an
engine that is embedded). ``auto`` from the command line does not undo a workflow's block that names an image: that
block is a sandbox too, and the more specific wish. The flag stands before the override of its tier because it is
about this run alone.

host_state, highest first: ``--sandbox-host-state``, the block, ``ITERION_SANDBOX_HOST_STATE``, ``auto``.

An *ambient* sandbox is one that nobody asked for in this run (an environment default, or the entry point's). It
degrades: outside a git repository it does not apply, and without a driver the run goes on without it. An *explicit*
one never degrades.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from drivers.base import DriverError
from drivers.spec import SandboxSpec
from gateway.errors import ConfigError, UsageError
from gateway.workflow.model import SandboxBlock, SourcePos
from gateway.workflow.sandbox_blocks import Expansion, SandboxConfigError, refine, spec_from_block

__all__ = [
    "EntryPoint",
    "NodeResolution",
    "Placement",
    "Request",
    "Resolution",
    "SandboxConfigError",
    "builtin_image",
    "degrade",
    "resolve",
    "resolve_node",
]

OVERRIDE_VARIABLE: Final = "ITERION_SANDBOX_OVERRIDE"
DEFAULT_VARIABLE: Final = "ITERION_SANDBOX_DEFAULT"
IMAGE_VARIABLE: Final = "ITERION_SANDBOX_DEFAULT_IMAGE"
HOST_STATE_VARIABLE: Final = "ITERION_SANDBOX_HOST_STATE"

MODE_FLAG: Final = "--sandbox"
HOST_STATE_FLAG: Final = "--sandbox-host-state"
SOURCE_DEFAULT: Final = "default"

SLIM_IMAGE: Final = "ghcr.io/socialgouv/iterion-sandbox-slim"
_CHOICES: Final = ("auto", "none")
_RELEASE = re.compile(r"v?(\d+\.\d+\.\d+)")


class EntryPoint(StrEnum):
    """Who starts the run. A product sandboxes by default; an embedded engine does what it is told and no more."""

    PRODUCT = "product"
    EMBEDDED = "embedded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Everything that has a say in how a run is sandboxed."""

    workflow: SandboxBlock | None = None
    mode_flag: str | None = None
    host_state_flag: str | None = None
    image_flag: str | None = None
    "``--sandbox-default-image``; None or empty if it was not given, except that an embedded engine's empty one holds."
    environ: Mapping[str, str] = field(default_factory=dict)
    workspace: str = "/"
    "Absolute path on the host; ``${PROJECT_DIR}``."
    in_git_repository: bool = True
    devcontainer: str | None = None
    "The workspace's devcontainer.json, if it has one."
    entry_point: EntryPoint = EntryPoint.PRODUCT
    version: str = ""
    "Of this program: a release has an image of its own."

    @property
    def expansion(self) -> Expansion:
        """What ``${NAME}`` stands for in blocks."""
        return Expansion(environ=self.environ, workspace=self.workspace)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """What a run gets.

    ``spec`` is None exactly when commands run on the host; ``mode`` is then ``none``, and ``wanted`` is the mode that
    was wanted before it turned out not to apply or not to be possible.
    """

    mode: str
    wanted: str
    spec: SandboxSpec | None
    source: str
    explicit: bool
    host_state: str
    host_state_source: str
    devcontainer: str | None = None
    "The devcontainer.json that an ``auto`` sandbox is made from; the spec then names no image."
    skip_reason: str | None = None
    "Why a wanted sandbox was given up, to be shown; None when it was not, or when nobody has to know."
    warnings: tuple[str, ...] = ()


class Placement(StrEnum):
    """Where the commands of a node run."""

    RUN = "run"
    "In the sandbox of the run."
    OWN = "own"
    "In a sandbox that differs from the run's."
    HOST = "host"
    "On the host, with its credentials and files."


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeResolution:
    """What one node gets; ``spec`` is None exactly on the host."""

    placement: Placement
    spec: SandboxSpec | None
    source: str
    warnings: tuple[str, ...] = ()


def resolve(request: Request) -> Resolution:
    """Resolve the sandbox of a run.

    Raises:
        UsageError: a flag holds another value than ``auto`` or ``none``.
        ConfigError: an environment variable does, or ``auto`` has no image to fall back to.
        SandboxConfigError: the workflow's block has problems; each names its file and line.
    """
    choice = _choose(request)
    host_state, host_state_source = _host_state(request, request.workflow)
    applies = choice.mode != "none" and (choice.explicit or request.in_git_repository)
    spec = _spec(request, choice, host_state) if applies else None
    warnings = []
    if choice.mode == "none" and choice.block is None and choice.source != SOURCE_DEFAULT:
        warnings.append(_host_warning(choice.source))
    return Resolution(
        mode=choice.mode if applies else "none",
        wanted=choice.mode,
        spec=spec,
        source=choice.source,
        explicit=choice.explicit,
        host_state=host_state,
        host_state_source=host_state_source,
        devcontainer=request.devcontainer if spec is not None and spec.mode == "auto" else None,
        warnings=tuple(warnings),
    )


def degrade(resolution: Resolution, reason: str) -> Resolution:
    """Return the resolution of a run on a host where no driver can make the sandbox that was resolved.

    Args:
        resolution: one with a spec.
        reason: what is missing and how to get it.

    Returns:
        The same without a sandbox and with a skip_reason, if the sandbox was ambient.

    Raises:
        DriverError: the sandbox was asked for.
    """
    if resolution.explicit:
        raise DriverError(
            f"{resolution.source} asks for a sandbox (mode {resolution.wanted}), and this host has none: {reason}"
        )
    return replace(resolution, mode="none", spec=None, skip_reason=reason, devcontainer=None)


def resolve_node(request: Request, run: Resolution, block: SandboxBlock | None) -> NodeResolution:
    """Resolve the sandbox of one node.

    Args:
        request: what the run was resolved from.
        run: what the run got.
        block: the node's own ``sandbox:``, if it has one. It wins over everything; what it does not say comes from
            the run, above all the network policy.

    Raises:
        UsageError, ConfigError, SandboxConfigError: as for `resolve`.
    """
    if block is None:
        return NodeResolution(
            placement=Placement.HOST if run.spec is None else Placement.RUN, spec=run.spec, source=run.source
        )
    source = _block_source(block, "node")
    if block.effective_mode == "none":
        return NodeResolution(placement=Placement.HOST, spec=None, source=source, warnings=(_host_warning(source),))
    host_state, _ = _host_state(request, block if block.host_state is not None else request.workflow)
    if run.spec is None:
        choice = _Choice(mode=block.effective_mode, source=source, explicit=True, block=block)
        spec = _spec(request, choice, host_state, origin="node")
        return NodeResolution(placement=Placement.OWN, spec=spec, source=source)
    spec = refine(run.spec, block, request.expansion, host_state=host_state)
    placement = Placement.RUN if spec == run.spec else Placement.OWN
    return NodeResolution(placement=placement, spec=spec, source=source)


def builtin_image(version: str) -> str:
    """Return the published image that belongs to a version of this program; snapshots use the rolling tag."""
    release = _RELEASE.fullmatch(version)
    return f"{SLIM_IMAGE}:v{release[1]}" if release else f"{SLIM_IMAGE}:edge"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """Who won, what they want, and the block that describes it, if one does."""

    mode: str
    source: str
    explicit: bool
    block: SandboxBlock | None = None


def _choose(request: Request) -> _Choice:
    block = request.workflow
    forced, source = _flag(MODE_FLAG, request.mode_flag), f"cli flag {MODE_FLAG}"
    if forced is None:
        forced, source = _variable(request.environ, OVERRIDE_VARIABLE), OVERRIDE_VARIABLE
    if forced == "none":
        return _Choice(mode="none", source=source, explicit=True)
    if block is not None and (forced is None or _names_image(block)):
        return _Choice(mode=block.effective_mode, source=_block_source(block), explicit=True, block=block)
    if forced is not None:
        kept = None if block is None or block.effective_mode == "none" else block
        return _Choice(mode=forced, source=source, explicit=True, block=kept)
    ambient = _variable(request.environ, DEFAULT_VARIABLE)
    if ambient is not None:
        return _Choice(mode=ambient, source=DEFAULT_VARIABLE, explicit=False)
    mode = "auto" if request.entry_point is EntryPoint.PRODUCT else "none"
    return _Choice(mode=mode, source=SOURCE_DEFAULT, explicit=False)


def _names_image(block: SandboxBlock) -> bool:
    return block.effective_mode == "inline" and (block.image is not None or block.build is not None)


def _spec(request: Request, choice: _Choice, host_state: str, *, origin: str = "user") -> SandboxSpec:
    block = choice.block or _nothing_written(request)
    spec = spec_from_block(block, request.expansion, origin=origin, mode=choice.mode, host_state=host_state)
    if spec.mode != "auto":
        return spec
    if request.devcontainer is not None:
        return replace(spec, image=None, build=None)  # the file says both
    if spec.image is None and spec.build is None:
        return replace(spec, image=_fallback_image(request))
    return spec


def _nothing_written(request: Request) -> SandboxBlock:
    return SandboxBlock(word=True, mode="auto", position=SourcePos(file=request.workspace, line=1, column=1))


def _fallback_image(request: Request) -> str:
    if request.image_flag:
        return request.image_flag
    if request.image_flag == "" and request.entry_point is EntryPoint.EMBEDDED:
        raise ConfigError(
            "mode=auto but no .devcontainer/devcontainer.json found",
            cure="name a default image, or add a devcontainer.json to the workspace",
        )
    return request.environ.get(IMAGE_VARIABLE) or builtin_image(request.version)


def _host_state(request: Request, block: SandboxBlock | None) -> tuple[str, str]:
    flag = _flag(HOST_STATE_FLAG, request.host_state_flag)
    if flag is not None:
        return flag, f"cli flag {HOST_STATE_FLAG}"
    if block is not None and block.host_state is not None:
        return block.host_state, _block_source(block)
    variable = _variable(request.environ, HOST_STATE_VARIABLE)
    return (variable, HOST_STATE_VARIABLE) if variable is not None else ("auto", SOURCE_DEFAULT)


def _block_source(block: SandboxBlock, owner: str = "workflow") -> str:
    return f"{owner} sandbox: block ({block.position.file})"


def _host_warning(source: str) -> str:
    return f"{source}: commands run without a sandbox, with the host's credentials and files"


def _flag(name: str, value: str | None) -> str | None:
    if value is None or value in _CHOICES:
        return value
    raise UsageError(f"{name}={value[:80]!r} is not a mode", cure=f"write {name}=auto or {name}=none")


def _variable(environ: Mapping[str, str], name: str) -> str | None:
    value = environ.get(name, "")
    if value in _CHOICES:
        return value
    if value == "":
        return None
    raise ConfigError(f"{name}={value[:80]!r} is not a mode", cure=f"set {name} to auto or none, or unset it")
