"""Who runs next: branches, joins and the end of a run, without any waiting of its own.

Theory of operation
-------------------
A *branch* is one thread of the run. It stands at a node and is *ready* (to be started), *running* or *parked* (it has
arrived and waits for others). A router that fans out ends its branch and begins one for each edge it takes.

A branch that arrives at a node is parked there, and leaves the parking at once unless a join is due: some other
branch could still arrive at the same node. "Could" is a matter of the graph's shape alone (`Topology.reach`), so the
answer does not depend on who is faster. When nobody else can arrive, all branches parked at the node become one,
which starts with the inputs of all of them, merged in the order of their edges in the file. Reachability without
repetitions is a partial order, so the foremost parked branch is never blocked by a parked one: nothing deadlocks.

A branch that reaches ``done`` ends, and the run is done when the last one has ended. ``fail`` ends the run.

When a node fails, the next node at which its branch would have met another one decides: ``best_effort`` goes on
without it, everything else, and a failure that would not have met anybody, fails the run.

Nothing here awaits: between two calls the state is complete. The caller starts what `take_ready` gives, and calls
`leave` or `fail` once for each.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.workflow.model import AwaitMode, Edge, JsonValue
from gateway.workflow.topology import Topology

__all__ = ["Branch", "Departure", "Scheduler"]

DONE: Final = "done"
FAIL: Final = "fail"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Branch:
    """A branch that stands at a node, with the input that the node gets."""

    node: str
    input: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """An edge that a branch takes, and what it brings along."""

    edge: Edge
    input: Mapping[str, JsonValue]


class Scheduler:
    """The branches of one run.

    ``failed_at`` is the edge by which the run reached ``fail``, or None.
    """

    def __init__(self, topology: Topology, awaits: Mapping[str, AwaitMode | None], entry: str) -> None:
        """Take the graph, what each node awaits, and where the one first branch stands."""
        self._topology = topology
        self._awaits = awaits
        self._ready: deque[Branch] = deque([Branch(node=entry, input={})])
        self._active: list[Branch] = list(self._ready)
        "Ready or running."
        self._parked: dict[str, list[tuple[int, Mapping[str, JsonValue]]]] = {}
        self.failed_at: Edge | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing is left to start or to wait for."""
        return self.failed_at is not None or not (self._active or self._parked)

    def take_ready(self) -> Branch | None:
        """Return the next branch to start, or None if all that can run do."""
        return self._ready.popleft() if self._ready and self.failed_at is None else None

    def leave(self, branch: Branch, departures: Sequence[Departure]) -> None:
        """Note that a branch's node ended well, and by which edges the run goes on; by none, the branch ends."""
        self._active.remove(branch)
        for departure in departures:
            target = departure.edge.target
            if target == FAIL:
                self.failed_at = self.failed_at or departure.edge
            elif target != DONE:
                arrival = (self._topology.position(departure.edge), departure.input)
                self._parked.setdefault(target, []).append(arrival)
        self._release()

    def fail(self, branch: Branch) -> bool:
        """Note that a branch's node failed.

        Returns:
            Whether the run goes on without it; if not, it has failed, and the state is as it was.
        """
        meeting = self._meeting(branch)
        if meeting is None or self._awaits.get(meeting) is not AwaitMode.BEST_EFFORT:
            return False
        self._active.remove(branch)
        self._release()
        return True

    def _meeting(self, branch: Branch) -> str | None:
        """The next node at which a branch would meet another one."""
        others = {other.node for other in self._active if other is not branch} | set(self._parked)
        for name in self._topology.order:
            if name in self._topology.reach[branch.node] and any(
                name == other or name in self._topology.reach[other] for other in others
            ):
                return name
        return None

    def _release(self) -> None:
        for name in self._topology.order:
            if name in self._parked and not self._is_awaited(name):
                arrivals = sorted(self._parked.pop(name), key=lambda arrival: arrival[0])
                merged: dict[str, JsonValue] = {}
                for _, input_ in arrivals:
                    merged |= input_
                branch = Branch(node=name, input=merged)
                self._ready.append(branch)
                self._active.append(branch)

    def _is_awaited(self, name: str) -> bool:
        """Whether some other branch could still arrive at a node."""
        reach = self._topology.reach
        return any(branch.node == name or name in reach[branch.node] for branch in self._active) or any(
            name in reach[parked] for parked in self._parked
        )
