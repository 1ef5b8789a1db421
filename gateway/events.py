"""The record of a run: one typed struct for each kind of event."""

from typing import ClassVar

import msgspec

__all__ = [
    "AuditRecovered",
    "AuditStalled",
    "DroppedAddress",
    "EgressSaturated",
    "Event",
    "EventLine",
    "NetworkAllowed",
    "NetworkBlocked",
    "NetworkClosed",
    "NodeFinished",
    "NodeStarted",
    "PolicyFindings",
    "PolicyReloaded",
    "ProbeRecord",
    "RunCancelled",
    "RunFailed",
    "RunFinished",
    "RunStarted",
    "SandboxEgressUnenforced",
    "SandboxEgressVerified",
    "SandboxHostStateMounted",
    "SandboxLost",
    "SandboxRemoved",
    "SandboxSkipped",
    "SandboxStarted",
]


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """What the ``data`` of one event line holds. ``type`` names it; ``security`` asks for an fsync."""

    type: ClassVar[str]
    security: ClassVar[bool] = False


class RunStarted(Event, frozen=True, kw_only=True):
    """A run began. ``flow`` is the workflow file, or None for a single command."""

    type: ClassVar[str] = "run_started"
    name: str
    flow: str | None
    workspace: str
    worktree: str | None
    version: str


class RunFinished(Event, frozen=True, kw_only=True):
    """A run reached ``done``, or its command ended by itself."""

    type: ClassVar[str] = "run_finished"
    exit_code: int
    duration_ms: int


class RunFailed(Event, frozen=True, kw_only=True):
    """A run failed; ``error`` is what its user was told."""

    type: ClassVar[str] = "run_failed"
    security: ClassVar[bool] = True
    error: str
    exit_code: int
    duration_ms: int


class RunCancelled(Event, frozen=True, kw_only=True):
    """A run was stopped from outside (a signal, or its control channel)."""

    type: ClassVar[str] = "run_cancelled"
    reason: str
    duration_ms: int


class NodeStarted(Event, frozen=True, kw_only=True):
    """A workflow node began; ``iteration`` counts its starts in this run from 1."""

    type: ClassVar[str] = "node_started"
    kind: str
    iteration: int


class NodeFinished(Event, frozen=True, kw_only=True):
    """A workflow node ended. ``status`` is ``ok``, ``failed`` or ``cancelled``."""

    type: ClassVar[str] = "node_finished"
    status: str
    exit_code: int | None
    duration_ms: int
    error: str | None


class SandboxSkipped(Event, frozen=True, kw_only=True):
    """An active sandbox mode was wanted and nothing isolates the commands."""

    type: ClassVar[str] = "sandbox_skipped"
    security: ClassVar[bool] = True
    driver: str
    mode: str
    source: str
    reason: str


class SandboxStarted(Event, frozen=True, kw_only=True):
    """The sandbox is up. ``enforcement`` says whether egress is enforced, cooperative or open."""

    type: ClassVar[str] = "sandbox_started"
    driver: str
    mode: str
    source: str
    image: str
    has_post_create: bool
    enforcement: str
    user: str
    workspace_folder: str


class SandboxHostStateMounted(Event, frozen=True, kw_only=True):
    """Which state of the host the sandbox sees, as ``host:container`` pairs."""

    type: ClassVar[str] = "sandbox_host_state_mounted"
    enabled: bool
    source: str
    workspace_folder: str
    mounts: tuple[str, ...]


class ProbeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One way out that was tried from inside."""

    target: str
    kind: str
    reached: bool
    detail: str


class SandboxEgressVerified(Event, frozen=True, kw_only=True):
    """What was tried from inside to get past the gateway; ``enforced`` is True when all of it failed."""

    type: ClassVar[str] = "sandbox_egress_verified"
    security: ClassVar[bool] = True
    enforced: bool
    attempts: tuple[ProbeRecord, ...]
    duration_ms: int


class SandboxEgressUnenforced(Event, frozen=True, kw_only=True):
    """The proxy is advice only: commands can go round it."""

    type: ClassVar[str] = "sandbox_egress_unenforced"
    security: ClassVar[bool] = True
    driver: str
    enforcement: str
    reason: str


class SandboxLost(Event, frozen=True, kw_only=True):
    """The sandbox died by itself while the run needed it."""

    type: ClassVar[str] = "sandbox_lost"
    security: ClassVar[bool] = True
    driver: str
    error: str


class SandboxRemoved(Event, frozen=True, kw_only=True):
    """The sandbox is gone. ``clean`` is False when something could not be removed in time."""

    type: ClassVar[str] = "sandbox_removed"
    driver: str
    clean: bool
    duration_ms: int


class PolicyFindings(Event, frozen=True, kw_only=True):
    """What the linter found in the policy that this run starts with."""

    type: ClassVar[str] = "policy_findings"
    mode: str
    preset: str | None
    rules: int
    findings: tuple[str, ...]


class PolicyReloaded(Event, frozen=True, kw_only=True):
    """The policy was replaced while the run lives."""

    type: ClassVar[str] = "policy_reloaded"
    security: ClassVar[bool] = True
    mode: str
    rules: int


class DroppedAddress(msgspec.Struct, frozen=True, kw_only=True):
    """An address that a name resolved to and that policy refuses."""

    address: str
    code: str
    rule: str | None = None


class NetworkAllowed(Event, frozen=True, kw_only=True):
    """A connection, or a request on a kept connection, that policy allows; written before it is served."""

    type: ClassVar[str] = "network_allowed"
    host: str
    port: int
    code: str
    rule: str | None
    addresses: tuple[str, ...]
    dropped: tuple[DroppedAddress, ...]
    address: str | None
    protocol: str
    connection: int


class NetworkBlocked(Event, frozen=True, kw_only=True):
    """A connection or request that was refused; written before the refusal is sent."""

    type: ClassVar[str] = "network_blocked"
    security: ClassVar[bool] = True
    host: str
    reason: str
    run_id: str
    port: int | None
    code: str
    rule: str | None
    addresses: tuple[str, ...]
    connection: int


class NetworkClosed(Event, frozen=True, kw_only=True):
    """The end of what a ``network_allowed`` began; byte counts are of the payload, each way."""

    type: ClassVar[str] = "network_closed"
    host: str
    port: int
    connection: int
    bytes_up: int
    bytes_down: int
    duration_ms: int
    outcome: str


class EgressSaturated(Event, frozen=True, kw_only=True):
    """New connections are being refused: the connection cap, or no file descriptors left."""

    type: ClassVar[str] = "egress_saturated"
    security: ClassVar[bool] = True
    reason: str
    active: int
    limit: int


class AuditStalled(Event, frozen=True, kw_only=True):
    """The record could not be written at once; new connections are refused until it can."""

    type: ClassVar[str] = "audit_stalled"
    security: ClassVar[bool] = True
    error: str


class AuditRecovered(Event, frozen=True, kw_only=True):
    """Every delayed line has been written; ``lines`` were late, the first by ``duration_ms``."""

    type: ClassVar[str] = "audit_recovered"
    security: ClassVar[bool] = True
    lines: int
    duration_ms: int


class EventLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of events.jsonl; ``seq`` counts from 1 without gaps, ``ts`` is RFC 3339, UTC, milliseconds."""

    type: str
    seq: int
    ts: str
    run_id: str
    node_id: str | None = None
    data: Event
