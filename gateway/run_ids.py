"""Names of runs: a time-ordered identifier for machines, and a short name for people."""

import re
import secrets
import threading
import time
import uuid
from collections.abc import Callable

from gateway.errors import UsageError

MAX_RUN_ID_CHARS = 63

_SAFE_RUN_ID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62})", re.ASCII)

_COUNTER_BITS = 42
_TAIL_BITS = 32
_COUNTER_LOW_BITS = 30

_ADJECTIVE_TEXT = """
    amber brave brisk calm clear copper crisp deft eager early fair fleet fresh gentle glad golden green
    hardy humble keen kind late light lively lucid mellow merry mild neat nimble noble patient plain
    polite prompt proud quick quiet rapid ready royal rustic sandy sharp silent silver simple smooth
    snowy solid spry stable steady still stout sturdy subtle sunny swift tidy vivid warm wise
"""
_NOUN_TEXT = """
    acorn alder anchor aspen badger beacon birch bison brook canyon cedar cliff comet coral crane creek
    delta falcon fern finch fjord forest garnet glacier harbor hazel heron island ivy jasper juniper
    kestrel lagoon lantern larch lark lynx maple marten meadow moss oak orchid osprey otter pebble pine
    plover prairie quartz raven reef ridge river robin sable spruce summit swan thicket tundra walnut
    willow
"""
_ADJECTIVES = tuple(_ADJECTIVE_TEXT.split())
_NOUNS = tuple(_NOUN_TEXT.split())


class InvalidRunId(UsageError):
    """A run identifier that cannot safely be a directory name."""


class RunIdSource:
    """Makes UUIDs of version 7 that increase strictly within one process.

    The 74 bits after the timestamp are a 42-bit counter, seeded at random with its top bit clear in each new
    millisecond, and 32 random bits; if the clock stands still or goes back, the counter goes on
    (RFC 9562, sections 5.7 and 6.2, method 1).
    """

    def __init__(
        self,
        *,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        random_bits: Callable[[int], int] = secrets.randbits,
    ) -> None:
        """Take the clock (milliseconds since the Unix epoch) and the source of random bits."""
        self._now_ms = now_ms
        self._random_bits = random_bits
        self._lock = threading.Lock()
        self._last_ms = -1
        self._counter = 0

    def new(self) -> str:
        """Return the next identifier, in lower-case hex with hyphens."""
        with self._lock:
            now = self._now_ms()
            if now > self._last_ms:
                self._last_ms = now
                self._counter = self._random_bits(_COUNTER_BITS - 1)
            else:
                self._counter += 1
                if self._counter >> _COUNTER_BITS:
                    self._last_ms += 1
                    self._counter = self._random_bits(_COUNTER_BITS - 1)
            stamp, counter = self._last_ms, self._counter
        value = (stamp & (1 << 48) - 1) << 80
        value |= 7 << 76
        value |= (counter >> _COUNTER_LOW_BITS) << 64
        value |= 0b10 << 62
        value |= (counter & (1 << _COUNTER_LOW_BITS) - 1) << _TAIL_BITS
        value |= self._random_bits(_TAIL_BITS)
        return str(uuid.UUID(int=value))


_SOURCE = RunIdSource()


def new_run_id() -> str:
    """Return a fresh identifier for a run: a UUID of version 7, increasing within this process."""
    return _SOURCE.new()


def validate_run_id(text: str) -> str:
    """Return the given run identifier if it is a safe directory name.

    Raises InvalidRunId; the message says what is allowed.
    """
    if _SAFE_RUN_ID.fullmatch(text) is None:
        raise InvalidRunId(
            f"run id {text[:80]!r} cannot name a directory",
            cure=f"write 1 to {MAX_RUN_ID_CHARS} letters, digits, '.', '_' or '-', not '.', '_' or '-' first",
        )
    return text


def new_run_name(random_bits: Callable[[int], int] = secrets.randbits) -> str:
    """Return a name that people can remember, and git takes as a branch: `calm-otter-4f2a`."""
    adjective = _ADJECTIVES[random_bits(32) % len(_ADJECTIVES)]
    noun = _NOUNS[random_bits(32) % len(_NOUNS)]
    return f"{adjective}-{noun}-{random_bits(16):04x}"
