"""The current directory, also when it is gone."""

from pathlib import Path

import pytest

from gateway.errors import UsageError
from gateway.workspace import working_directory


def test_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert working_directory() == tmp_path


def test_a_directory_that_was_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(UsageError, match="current directory cannot be used"):
        working_directory()
