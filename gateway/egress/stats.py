"""What the connections of one egress server came to, for the summary of a run."""

from collections import Counter
from dataclasses import dataclass, field

__all__ = ["Stats"]


@dataclass(slots=True)
class Stats:
    """Counts since the server started. Of bytes, those of connections that have ended."""

    allowed: int = 0
    "Tunnels and plain requests."
    blocked: Counter[str] = field(default_factory=Counter)
    "By code; silent denials are not in it."
    silent: int = 0
    "Denials that are counted and not recorded."
    challenged: int = 0
    "Requests without credentials, answered 407."
    unavailable: int = 0
    "Connections answered 503 or closed because the gateway was at one of its limits."
    failed: Counter[str] = field(default_factory=Counter)
    "Of those allowed: could not be resolved or connected, by code."
    bytes_up: int = 0
    bytes_down: int = 0
    active: int = 0
    "Client connections open now."
