"""Choosing a driver."""

from pathlib import Path

import pytest

from drivers.base import DriverError
from drivers.registry import DRIVERS, select_driver, why_nothing_isolates
from tests.drivers.helpers import PATH


def test_the_best_that_runs_here(tmp_path: Path) -> None:
    assert list(DRIVERS) == ["bubblewrap", "noop"]
    assert select_driver(None, environ={"PATH": PATH}).name == "bubblewrap"
    fallback = select_driver(None, environ={"PATH": str(tmp_path)})
    assert fallback.name == "noop"
    assert not fallback.capabilities.isolates


def test_the_one_that_was_asked_for(tmp_path: Path) -> None:
    assert select_driver("noop", environ={}).name == "noop"
    with pytest.raises(DriverError, match="apt-get install bubblewrap"):
        select_driver("bubblewrap", environ={"PATH": str(tmp_path)})


@pytest.mark.parametrize("name", ["docker", "podman", "kubernetes", "nonsense", ""])
def test_those_that_are_not_here(name: str) -> None:
    with pytest.raises(DriverError, match="bubblewrap, noop"):
        select_driver(name, environ={})


def test_why_nothing_isolates(tmp_path: Path) -> None:
    assert "apt-get install bubblewrap" in why_nothing_isolates({"PATH": str(tmp_path)})
    assert why_nothing_isolates({"PATH": PATH}) == "no driver isolates on this host"
