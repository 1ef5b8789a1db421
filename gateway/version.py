"""Which version of this distribution is installed."""

from importlib import metadata
from typing import Final

__all__ = ["project_version"]

DISTRIBUTION: Final = "iterion-sandbox"


def project_version() -> str:
    """Return the installed version, such as ``0.1.0``."""
    return metadata.version(DISTRIBUTION)
