"""Whose fault it is: the errors that end a run, and the one table that gives each its exit code.

Each room raises its own types; this module adds those that belong to the gateway as a whole. What the
*sandbox* is told about an error is built in ``gateway.egress.http1.replies`` and never holds a host path, an
exception's text or a secret.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from drivers.base import DriverError, SandboxLost
from drivers.spec import SpecError
from policy.rules import PolicyError

__all__ = [
    "ConfigError",
    "IterionError",
    "Position",
    "RunFailed",
    "UsageError",
    "error_leaves",
    "exit_code_of",
    "is_expected",
    "primary_error",
]


class IterionError(Exception):
    """A failure with a message for a person and the exit code of the process that meets it.

    Args:
        message: what went wrong, naming the value.
        cure: what to do about it, or None where the message says it all.
    """

    exit_code = 1

    def __init__(self, message: str, *, cure: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.cure = cure

    def __str__(self) -> str:
        return f"{self.message}\n  {self.cure}" if self.cure else self.message


class UsageError(IterionError):
    """A flag, argument or environment variable that does not fit."""

    exit_code = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A place in a configuration file; line and column count from 1."""

    file: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        return ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)


class ConfigError(IterionError):
    """A configuration file that cannot be used.

    Args:
        message: what is wrong, naming the value.
        position: where, when it is known.
        cure: what to write instead.
    """

    exit_code = 2

    def __init__(self, message: str, *, position: Position | None = None, cure: str | None = None) -> None:
        super().__init__(f"{position}: {message}" if position else message, cure=cure)
        self.position = position


class RunFailed(IterionError):
    """The run itself failed: a node, the sandbox or an explicit ``fail``."""


_EXIT_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (PolicyError, 2),
    (SpecError, 2),
    (DriverError, 1),
    (SandboxLost, 1),
)
"The errors of the other rooms that a user can meet, and the exit code of each."


def is_expected(error: BaseException) -> bool:
    """Say whether an error is one that its message explains, rather than a fault of this program."""
    return isinstance(error, (IterionError, *(kind for kind, _ in _EXIT_CODES)))


def exit_code_of(error: BaseException) -> int:
    """Return the process's exit code for an error: 2 for configuration, 1 for everything else."""
    if isinstance(error, IterionError):
        return error.exit_code
    return next((code for kind, code in _EXIT_CODES if isinstance(error, kind)), 1)


def primary_error(error: BaseException) -> BaseException:
    """Return the one error of a group that its user must see.

    An unexpected one comes first, because it is a fault; then the loss of the sandbox, because it explains the
    others; else the first in the group. The rest hang on to it as notes of its trace.
    """
    if not isinstance(error, BaseExceptionGroup):
        return error
    leaves = list(error_leaves(error))
    unexpected = [leaf for leaf in leaves if not is_expected(leaf)]
    lost = [leaf for leaf in leaves if isinstance(leaf, SandboxLost)]
    chosen = (unexpected or lost or leaves)[0]
    for other in leaves:
        if other is not chosen:
            chosen.add_note(f"also: {type(other).__name__}: {other}")
    return chosen


def error_leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    """Yield the errors of a group and of the groups in it."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from error_leaves(error)
        else:
            yield error
