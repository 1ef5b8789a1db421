"""Every limit of the egress server, with its unit, in one frozen value."""

import dataclasses
import math
from dataclasses import dataclass

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much a client, an upstream or a resolver may use before the gateway gives up on it.

    Raises:
        ValueError: a value that is not positive, not finite or out of its range; the message names the field.
    """

    max_connections: int = 16_384
    "Client connections at once; one more is answered 503."
    max_refusals: int = 64
    "Connections over the cap that are read for a moment, so that the 503 arrives; any more are just closed."
    retry_after_s: int = 1
    "What Retry-After says in a 503 (seconds)."
    accept_batch: int = 64
    "Connections accepted in a row before the other tasks get a turn."

    max_head_bytes: int = 65_536
    "A request head, request line included."
    head_timeout_s: float = 10.0
    "From accept, or from the first byte of a later request, to the end of the head."
    keep_alive_timeout_s: float = 75.0
    "A kept connection between two requests."
    write_timeout_s: float = 10.0
    "A client that does not take a reply of the gateway's own."
    linger_timeout_s: float = 2.0
    "After a refusal: how long what the client still sends is read and thrown away, so that it sees the reply."
    audit_timeout_s: float = 5.0
    "How long a judged connection waits for its line while the record is behind; then 503."

    decision_cache_entries: int = 1_024
    "Spellings of a host and port whose decision is remembered."

    resolve_timeout_s: float = 10.0
    "One name, both address families."
    resolution_delay_s: float = 0.25
    "After the first family has answered: how much longer the other may take."
    dns_cache_entries: int = 1_024
    "Names whose addresses are kept."
    dns_cache_max_ttl_s: float = 60.0
    "No answer is kept longer than this, whatever its TTL says."
    max_addresses: int = 32
    "Addresses of one name that are looked at; the rest of a longer answer is dropped."

    dial_timeout_s: float = 10.0
    "All attempts for one connection together."
    happy_eyeballs_delay_s: float = 0.25
    "Between two attempts (RFC 8305 section 5)."
    keepalive_idle_s: int = 60
    "Silence before TCP asks whether the peer is still there."
    keepalive_interval_s: int = 15
    "Between two such probes."
    keepalive_probes: int = 4
    "Unanswered probes after which the peer is dead."

    max_client_hello_bytes: int = 32_768
    "A TLS ClientHello, record headers included."
    handshake_timeout_s: float = 10.0
    "From the first byte of a ClientHello to its last."
    idle_timeout_s: float = 7_200.0
    "A tunnel in which no byte moves. Dead peers are found sooner, by TCP keepalive."
    half_close_timeout_s: float = 600.0
    "The same once one side has finished sending."
    client_check_s: float = 10.0
    "How often a plain exchange whose upstream is silent looks whether its client is still there."
    total_timeout_s: float | None = None
    "A tunnel's whole life; None sets no bound."
    drain_timeout_s: float = 5.0
    "After a graceful stop: how long open connections may go on."

    relay_chunk_bytes: int = 65_536
    "One recv. All tunnels share one buffer of this size."
    relay_pipe_bytes: int = 1_048_576
    "The pipe that bulk data is spliced through."
    max_relay_pipes: int = 64
    "Pipes at once; tunnels that find none copy through the shared buffer."
    relay_turn_bytes: int = 1_048_576
    "What one direction of one tunnel may move before the others get a turn."

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is None and field.name == "total_timeout_s":
                continue
            if not isinstance(value, (int, float)) or isinstance(value, bool):
                raise ValueError(f"{field.name}: {value!r} is not a number")
            if not math.isfinite(value) or value <= 0:
                raise ValueError(f"{field.name}: {value!r} is not a positive, finite number")
            if field.type in (int, "int") and not isinstance(value, int):
                raise ValueError(f"{field.name}: {value!r} is not a whole number")
        if self.max_head_bytes < 1_024:
            raise ValueError(f"max_head_bytes: {self.max_head_bytes} is under 1024, too short for real clients")
        if self.max_client_hello_bytes < 1_024:
            raise ValueError(f"max_client_hello_bytes: {self.max_client_hello_bytes} is under 1024")
        if self.relay_chunk_bytes < self.max_client_hello_bytes // 16:
            raise ValueError(f"relay_chunk_bytes: {self.relay_chunk_bytes} is too small to be of use")
