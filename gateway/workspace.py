"""The directory that a run works in."""

from pathlib import Path

from gateway.errors import UsageError

__all__ = ["working_directory"]


def working_directory() -> Path:
    """Return the current directory, absolute.

    Raises:
        UsageError: it was removed, or one above it may not be entered.
    """
    try:
        return Path.cwd()
    except OSError as error:
        raise UsageError(
            f"the current directory cannot be used ({error.strerror})", cure="change to one that exists"
        ) from None
