"""Whose fault it is: the errors that end a run, and the one table that gives each its exit code.

Each room raises its own types; this module adds those that belong to the gateway as a whole. What the
*sandbox* is told about an error is built in ``gateway.egress.http1.replies`` and never holds a host path, an
exception's text or a secret.
"""

from dataclasses import dataclass

__all__ = ["ConfigError", "IterionError", "RunFailed", "UsageError"]


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
