"""Each error has an exit code, and of a group the user sees the one that explains the rest."""

import pytest

from drivers.base import DriverError, SandboxLost
from drivers.spec import SpecError
from gateway.errors import (
    ConfigError,
    IterionError,
    Position,
    RunFailed,
    UsageError,
    exit_code_of,
    is_expected,
    primary_error,
)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("x"), 2),
        (ConfigError("x"), 2),
        (SpecError(("x",)), 2),
        (RunFailed("x"), 1),
        (DriverError("x"), 1),
        (SandboxLost("x"), 1),
        (ZeroDivisionError("x"), 1),
    ],
)
def test_exit_codes(error: Exception, code: int) -> None:
    assert exit_code_of(error) == code
    assert is_expected(error) == (not isinstance(error, ZeroDivisionError))


def test_a_message_names_the_place_and_the_cure() -> None:
    error = ConfigError("`mod` is not a key", position=Position(file="p.yaml", line=3, column=1), cure="write `mode`")
    assert str(error) == "p.yaml:3:1: `mod` is not a key\n  write `mode`"
    assert str(Position(file="p.yaml")) == "p.yaml"
    assert str(IterionError("plain")) == "plain"


def test_a_fault_comes_before_a_lost_sandbox_before_the_rest() -> None:
    lost, failed, fault = SandboxLost("gone"), RunFailed("node"), ZeroDivisionError("oops")
    assert primary_error(failed) is failed
    assert primary_error(ExceptionGroup("", [failed, ExceptionGroup("", [lost])])) is lost
    chosen = primary_error(ExceptionGroup("", [failed, lost, fault]))
    assert chosen is fault
    assert chosen.__notes__ == ["also: RunFailed: node", "also: SandboxLost: gone"]
