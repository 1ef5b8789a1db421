"""What the egress server says about each connection: events for the record, counts for the summary."""

from typing import Final, Protocol

import trio

from gateway.egress.connect import Route
from gateway.egress.stats import Stats
from gateway.events import DroppedAddress, EgressSaturated, Event, NetworkAllowed, NetworkBlocked, NetworkClosed
from policy.rules import Judgement, Rule

__all__ = ["Audit", "Passage", "Recorder", "rule_label"]


class Recorder(Protocol):
    """The part of the event log that the egress server needs."""

    @property
    def run_id(self) -> str: ...

    @property
    def healthy(self) -> bool: ...

    def emit(self, event: Event, *, node_id: str | None = None) -> None: ...

    async def settled(self, timeout_s: float) -> bool: ...


class Passage:
    """One allowed tunnel or request, from ``network_allowed`` to exactly one ``network_closed``."""

    __slots__ = ("_audit", "_began", "_closed", "_connection", "_host", "_port")

    def __init__(self, audit: "Audit", host: str, port: int, connection: int) -> None:
        self._audit = audit
        self._host = host
        self._port = port
        self._connection = connection
        self._began = trio.current_time()
        self._closed = False

    def close(self, outcome: str, bytes_up: int = 0, bytes_down: int = 0) -> None:
        """Record the end; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        stats = self._audit.stats
        stats.bytes_up += bytes_up
        stats.bytes_down += bytes_down
        self._audit.emit(
            NetworkClosed(
                host=self._host,
                port=self._port,
                connection=self._connection,
                bytes_up=bytes_up,
                bytes_down=bytes_down,
                duration_ms=round((trio.current_time() - self._began) * 1000),
                outcome=outcome,
            )
        )


class Audit:
    """Turns what happens to connections into events and counts.

    Args:
        recorder: takes the events.
        node_id: the workflow node that the connections belong to, or None.
    """

    def __init__(self, recorder: Recorder, node_id: str | None = None) -> None:
        self.recorder: Final = recorder
        self.stats: Final = Stats()
        self._node_id = node_id
        self._saturated = False

    def emit(self, event: Event) -> None:
        """Record an event of this server's."""
        self.recorder.emit(event, node_id=self._node_id)

    def allowed(self, connection: int, route: Route, protocol: str) -> Passage:
        """Record that a tunnel or request is allowed; its ``close`` must be called when it is over.

        Args:
            connection: number of the client's connection.
            route: where it leads, opened or failed.
            protocol: ``connect`` or ``http``.
        """
        authority, judgement, addresses = route.authority, route.judgement, route.addresses
        host = str(authority.host)
        # Printing addresses is most of this function's time, and mostly there is one and it is printed twice.
        texts = (host,) if authority.host.address is not None else tuple(map(str, addresses))
        address = None
        if route.address is not None:
            address = texts[0] if len(texts) == 1 else str(route.address)
        self.stats.allowed += 1
        if route.failure is not None:
            self.stats.failed[route.failure.code] += 1
        self.emit(
            NetworkAllowed(
                host=host,
                port=authority.port,
                code=(judgement or route.decision).reason,
                rule=rule_label(route.rule),
                addresses=texts,
                dropped=_dropped(judgement) if judgement is not None and judgement.dropped else (),
                address=address,
                protocol=protocol,
                connection=connection,
            )
        )
        return Passage(self, host, authority.port, connection)

    def denied(self, connection: int, route: Route) -> None:
        """Record that policy refuses a route, or only count it where its decision is silent."""
        reason = route.denied
        assert reason is not None
        decision = route.decision
        if decision.silent:
            self.stats.silent += 1
            return
        authority = decision.authority
        self.blocked(
            connection,
            code=reason,
            reason=decision.detail or reason.message,
            host=str(authority.host) if authority is not None else route.text,
            port=authority.port if authority is not None else None,
            rule=rule_label(route.rule),
            addresses=tuple(map(str, route.addresses)),
        )

    def blocked(
        self,
        connection: int,
        *,
        code: str,
        reason: str,
        host: str = "",
        port: int | None = None,
        rule: str | None = None,
        addresses: tuple[str, ...] = (),
    ) -> None:
        """Record a refusal; the arguments are the fields of ``network_blocked``."""
        self.stats.blocked[code] += 1
        self.emit(
            NetworkBlocked(
                host=host[:MAX_HOST_CHARACTERS],
                reason=reason,
                run_id=self.recorder.run_id,
                port=port,
                code=code,
                rule=rule,
                addresses=addresses,
                connection=connection,
            )
        )

    def saturated(self, reason: str, limit: int) -> None:
        """Count a connection that the gateway is too full for; the first one of a row is recorded."""
        self.stats.unavailable += 1
        if not self._saturated:
            self._saturated = True
            self.emit(EgressSaturated(reason=reason, active=self.stats.active, limit=limit))

    def relieved(self) -> None:
        """Connections are served again: the next saturation is news."""
        self._saturated = False


MAX_HOST_CHARACTERS: Final = 300
"What the record keeps of a host that is none."


def _dropped(judgement: Judgement) -> tuple[DroppedAddress, ...]:
    return tuple(
        DroppedAddress(address=str(drop.address), code=drop.reason, rule=rule_label(drop.rule))
        for drop in judgement.dropped
    )


def rule_label(rule: Rule | None) -> str | None:
    """Return a rule as events show it: its text and where it was written."""
    return None if rule is None else f"{rule.text} ({rule.source})"
