"""The shape of a workflow's graph: which edges leave a node, and who can still reach whom.

Joining needs an order: a node waits for the branches that can still reach it. The edges that close a cycle would
make everything reach everything, so they are left out here: an edge without a loop never closes one (the checks of
the file see to that), and of the edges with a loop those are left out that would.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from gateway.workflow.model import RESERVED_TARGETS, Edge, Flow

__all__ = ["Topology"]


class Topology:
    """The graph of one flow. Nodes are known by name; ``order`` puts each before all that it leads to."""

    def __init__(self, nodes: Sequence[str], edges: Sequence[Edge]) -> None:
        """Take the nodes and edges in the order of the file.

        Raises:
            ValueError: edges without a loop close a cycle.
        """
        self.leaving: Final[Mapping[str, tuple[Edge, ...]]] = {
            name: tuple(edge for edge in edges if edge.source == name) for name in nodes
        }
        self._position: Final = {id(edge): index for index, edge in enumerate(edges)}
        self._forward: dict[str, list[str]] = {name: [] for name in nodes}
        inner = [edge for edge in edges if edge.target not in RESERVED_TARGETS]
        for edge in inner:
            if edge.loop is None:
                self._forward[edge.source].append(edge.target)
        for edge in inner:
            if edge.loop is not None and not self._leads(edge.target, edge.source):
                self._forward[edge.source].append(edge.target)
        self.order: Final = self._sorted(nodes)
        reach: dict[str, frozenset[str]] = {}
        for name in reversed(self.order):
            targets = self._forward[name]
            reach[name] = frozenset(targets).union(*(reach[target] for target in targets))
        self.reach: Final[Mapping[str, frozenset[str]]] = reach
        "The nodes behind each node, without those that only a repetition would reach."

    @classmethod
    def of(cls, flow: Flow) -> "Topology":
        """The shape of a flow."""
        return cls(tuple(flow.nodes), flow.workflow.edges)

    def position(self, edge: Edge) -> int:
        """Where an edge stands among all edges of the file, from 0."""
        return self._position[id(edge)]

    def _leads(self, start: str, goal: str) -> bool:
        return goal in self._walk(start)

    def _walk(self, start: str) -> Iterator[str]:
        """Every node from ``start`` on, itself included."""
        seen = {start}
        pending = [start]
        while pending:
            name = pending.pop()
            yield name
            for target in self._forward[name]:
                if target not in seen:
                    seen.add(target)
                    pending.append(target)

    def _sorted(self, nodes: Sequence[str]) -> tuple[str, ...]:
        """Kahn's algorithm; among equals the order of the file."""
        open_edges = dict.fromkeys(nodes, 0)
        for targets in self._forward.values():
            for target in targets:
                open_edges[target] += 1
        ready = [name for name in nodes if not open_edges[name]]
        order = []
        while ready:
            name = ready.pop(0)
            order.append(name)
            for target in self._forward[name]:
                open_edges[target] -= 1
                if not open_edges[target]:
                    ready.append(target)
        if len(order) < len(open_edges):
            raise ValueError("edges without a loop close a cycle")
        return tuple(order)
