"""Fixtures for every room: a temporary folder of the session's own, the check for leaks, an ordinary user."""

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import leaks
from tests.support.ordinary_user import OrdinaryUser
from tests.support.ordinary_user import ordinary_user as make_ordinary_user


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Say in the XML report which tests use something real, so that a skipped one can be found there."""
    for item in items:
        if item.get_closest_marker("real") is not None:
            item.user_properties.append(("real", "yes"))


@pytest.fixture(scope="session", autouse=True)
def session_temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give this session, and all that it starts, a temporary folder in which nothing else is ever put."""
    tmp_path_factory.getbasetemp()  # pytest's own folders stay where they are kept for a look after a failure
    folder = Path(tempfile.mkdtemp(prefix="it-"))
    folder.chmod(0o1777)  # an ordinary user's programs use it too
    saved = tempfile.tempdir, os.environ.get("TMPDIR")
    tempfile.tempdir = os.environ["TMPDIR"] = str(folder)
    os.environ[leaks.MARK] = uuid.uuid4().hex
    yield folder
    del os.environ[leaks.MARK]
    tempfile.tempdir = saved[0]
    if saved[1] is None:
        del os.environ["TMPDIR"]
    else:
        os.environ["TMPDIR"] = saved[1]
    shutil.rmtree(folder)


@pytest.fixture(name="no_leaks")
def _no_leaks() -> Iterator[None]:
    """Fail the test if it leaves a process, socket, temporary file, mount or namespace behind."""
    before = leaks.Snapshot.take()
    yield
    if left := leaks.wait_for_leaks(before):
        pytest.fail("the test left behind:\n  " + "\n  ".join(left))


@pytest.fixture(autouse=True)
def _real_tests_leave_nothing(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test that uses a real engine or client is checked for leaks; others ask for ``no_leaks``."""
    if request.node.get_closest_marker("real") is None:
        yield
        return
    before = leaks.Snapshot.take()
    yield
    if left := leaks.wait_for_leaks(before):
        pytest.fail("the test left behind:\n  " + "\n  ".join(left))


@pytest.fixture(scope="session")
def ordinary_user() -> Iterator[OrdinaryUser]:
    """A user without privileges who can run our program (the one running the tests, unless that is root)."""
    with make_ordinary_user() as user:
        yield user
