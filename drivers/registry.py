"""Which driver this host gets."""

from collections.abc import Callable, Mapping
from typing import Final

from drivers.base import Driver, DriverError
from drivers.bubblewrap import BubblewrapDriver
from drivers.noop import NoopDriver

DRIVERS: Final[Mapping[str, Callable[[Mapping[str, str]], Driver]]] = {
    "bubblewrap": BubblewrapDriver,
    "noop": NoopDriver,
}
"""Every driver of this build, the preferred one first; each is made from the environment variables."""

ABSENT_DRIVERS: Final = ("docker", "podman", "kubernetes")
"""Drivers that users may know of and that this build does not have."""


def select_driver(name: str | None, *, environ: Mapping[str, str]) -> Driver:
    """Choose a driver.

    :param name: the one that was asked for, or None for the best one that this host can run. The last resort is
        noop, which isolates nothing: look at its `capabilities` before you rely on it.
    :param environ: environment variables: where programs, and the home directory, are.
    :raises DriverError: the one that was asked for is unknown or cannot run here.
    """
    if name is None:
        drivers = [make(environ) for make in DRIVERS.values()]
        return next((driver for driver in drivers if driver.availability() is None), drivers[-1])
    if name in ABSENT_DRIVERS:
        raise DriverError(f"the {name} driver is not part of this version; use one of: {', '.join(DRIVERS)}")
    if name not in DRIVERS:
        raise DriverError(f"there is no {name[:40]!r} driver; use one of: {', '.join(DRIVERS)}")
    driver = DRIVERS[name](environ)
    if (missing := driver.availability()) is not None:
        raise DriverError(missing)
    return driver


def why_nothing_isolates(environ: Mapping[str, str]) -> str:
    """Say what each driver that isolates lacks on this host, and how to get it.

    :param environ: environment variables, as for `select_driver`.
    """
    drivers = [make(environ) for make in DRIVERS.values()]
    lacks = [driver.availability() for driver in drivers if driver.capabilities.isolates]
    return "; ".join(text for text in lacks if text is not None) or "no driver isolates on this host"
