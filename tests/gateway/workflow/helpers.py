"""Shared by the tests of the language."""

from gateway.workflow.diagnostics import FlowError
from gateway.workflow.language import read_flow
from gateway.workflow.model import Diagnostic


def findings(text: str) -> tuple[Diagnostic, ...]:
    """Everything that is found in a file."""
    try:
        return read_flow(text, file="f.bot")[1]
    except FlowError as error:
        return error.diagnostics


def found(text: str) -> list[str]:
    """Everything that is found in a file, as ``CODE line:column``."""
    return [f"{item.code} {item.position.line}:{item.position.column}" for item in findings(text)]


def only(text: str) -> Diagnostic:
    """The one finding in a file."""
    (item,) = findings(text)
    return item
