"""From what a client asked for to a connected socket: decide, resolve, judge, dial - in that order, always.

A denied name is never resolved, what is dialled is one of the addresses that were judged, and no name is ever
dialled. CONNECT and plain requests both come through here, so they cannot differ.
"""

import socket
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from gateway.egress.dial import DialFailed, DialFailure, dial
from gateway.egress.interfaces import host_addresses
from gateway.egress.limits import Limits
from gateway.egress.resolver import ResolveError, ResolveFailure, Resolver
from policy.engine import Engine
from policy.host import Authority
from policy.rules import Decision, Judgement, Reason, Rule

__all__ = ["Failure", "LivePolicy", "Route", "host_addresses"]

IPAddress = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why an allowed host could not be reached: a code for the record, a status and a fixed text for the client."""

    code: str
    status: int
    detail: str


FAILURES: Final = {
    failure.code: failure
    for failure in (
        Failure(code=ResolveFailure.NO_SUCH_NAME, status=502, detail="the name does not exist"),
        Failure(code=ResolveFailure.NO_ADDRESS, status=502, detail="the name has no address"),
        Failure(code=ResolveFailure.TIMEOUT, status=504, detail="the name could not be resolved in time"),
        Failure(code=ResolveFailure.SERVER_FAILURE, status=502, detail="the name could not be resolved"),
        Failure(code=DialFailure.REFUSED, status=502, detail="it refused the connection"),
        Failure(code=DialFailure.UNREACHABLE, status=502, detail="it cannot be reached from here"),
        Failure(code=DialFailure.TIMEOUT, status=504, detail="it did not answer in time"),
        Failure(code=DialFailure.NO_RESOURCES, status=503, detail="no descriptors or ports are left"),
        Failure(code=DialFailure.OTHER, status=502, detail="the connection failed"),
    )
}


class LivePolicy:
    """An engine that remembers what it was asked last: clients come back to the same few hosts again and again.

    The engine is a pure function of the text, so remembering changes no answer.

    Args:
        engine: asked once for each spelling of a host and port.
        capacity: answers that are kept.
    """

    __slots__ = ("_answers", "_capacity", "engine")

    def __init__(self, engine: Engine, capacity: int) -> None:
        self.engine: Final = engine
        self._capacity = capacity
        self._answers: dict[str, Decision] = {}

    def decide(self, text: str) -> Decision:
        """Return the engine's decision on ``host:port`` as a client wrote it. Never raises."""
        decision = self._answers.get(text)
        if decision is None:
            decision = self.engine.decide_text(text)
            if len(self._answers) >= self._capacity:
                del self._answers[next(iter(self._answers))]  # the oldest
            self._answers[text] = decision
        return decision


class Route:
    """One way through the pipeline, and what is known of it so far: also after a failure or a cancellation.

    Args:
        policy: answers for the whole way.
        text: ``host:port`` as the client wrote it.

    ``decision`` is there from the start. If ``denied`` is not None after that or after ``open``, policy refuses;
    else, after ``open``, either ``sock`` and ``address`` are set or ``failure`` is. The socket is the caller's.
    """

    __slots__ = ("address", "addresses", "decision", "failure", "judgement", "policy", "sock", "text")

    def __init__(self, policy: "LivePolicy", text: str) -> None:
        self.policy: Final = policy
        self.text: Final = text
        self.decision: Final = policy.decide(text)
        self.addresses: tuple[IPAddress, ...] = ()
        self.judgement: Judgement | None = None
        self.address: IPAddress | None = None
        self.sock: socket.socket | None = None
        self.failure: Failure | None = None

    @property
    def denied(self) -> Reason | None:
        """Why policy refuses, as far as is known by now; None where it does not."""
        if not self.decision.allowed:
            return self.decision.reason
        if self.judgement is not None and not self.judgement.allowed:
            return self.judgement.reason
        return None

    @property
    def rule(self) -> Rule | None:
        """The rule behind the latest answer of policy."""
        judgement = self.judgement
        if judgement is not None and (judgement.rule is not None or not judgement.allowed):
            return judgement.rule
        return self.decision.rule

    @property
    def authority(self) -> Authority:
        """The host and port; only where the decision is not invalid_host."""
        assert self.decision.authority is not None
        return self.decision.authority

    async def open(self, resolver: Resolver, limits: Limits) -> None:
        """Resolve, judge and dial. To be called once, where ``denied`` is None.

        Args:
            resolver: asked once, and only for a name.
            limits: of resolving and dialling.

        Does not checkpoint where nothing has to be waited for. Cancellation leaves no socket.
        """
        authority = self.authority
        literal = authority.host.address
        if literal is not None:
            self.addresses = (literal,)
        else:
            try:
                self.addresses = await resolver.resolve(str(authority.host))
            except ResolveError as error:
                self.failure = FAILURES[error.failure]
                return
        self.judgement = judgement = self.policy.engine.judge(self.decision, self.addresses)
        if not judgement.allowed:
            return
        try:
            dialled = await dial(judgement.survivors, authority.port, limits)
        except DialFailed as error:
            self.failure = FAILURES[error.failure]
            return
        self.sock, self.address = dialled.sock, dialled.address

    def follow(self, earlier: "Route") -> None:
        """Lead where an earlier route, of the same authority under the same policy, has led: same connection."""
        self.addresses, self.judgement = earlier.addresses, earlier.judgement
        self.sock, self.address = earlier.sock, earlier.address
