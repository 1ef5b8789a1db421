"""The version of this distribution; packaging reads it from here, because asking the installed metadata is slow."""

from typing import Final

__all__ = ["__version__"]

__version__: Final = "0.1.0"
