"""The program as its users have it: a working directory, a store and a home of its own."""

from pathlib import Path

import pytest

from tests.support.iterion import Iterion


@pytest.fixture
def iterion(tmp_path: Path) -> Iterion:
    """Our program in an empty working directory."""
    folder, home = tmp_path / "work", tmp_path / "home"
    folder.mkdir()
    home.mkdir()
    return Iterion(folder=folder, store=tmp_path / "store", home=home)
