"""The version of this distribution; packaging reads it from here, because asking the installed metadata is slow."""

__all__ = ["__version__"]

__version__ = "0.1.0"
