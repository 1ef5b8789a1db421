"""What can be wrong with a workflow file, and how it is told.

Two families of codes. ``E...`` come from reading the file (`language`); ``C...`` from what the declarations
mean together. C006, C007, C040, C041 and C042 are found while the declarations are put together, the others
by `check`, which looks at the finished flow.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import islice

from gateway.errors import ConfigError
from gateway.workflow.model import Diagnostic, Severity, SourcePos

CODES: dict[str, tuple[Severity, str]] = {
    "E001": (Severity.ERROR, "the text cannot be read"),
    "E002": (Severity.ERROR, "a declaration or property that does not exist here"),
    "E003": (Severity.ERROR, "a value of the wrong kind"),
    "E004": (Severity.ERROR, "something is declared twice"),
    "C001": (Severity.ERROR, "an edge to or from an unknown node"),
    "C002": (Severity.ERROR, "an unknown schema"),
    "C003": (Severity.ERROR, "an unknown prompt"),
    "C004": (Severity.ERROR, "a malformed template"),
    "C005": (Severity.ERROR, "one loop name with two limits"),
    "C006": (Severity.ERROR, "no workflow"),
    "C007": (Severity.ERROR, "several workflows"),
    "C008": (Severity.ERROR, "the entry is missing or unknown"),
    "C010": (Severity.ERROR, "several unconditional edges from one node"),
    "C012": (Severity.ERROR, "conditions without a fallback"),
    "C016": (Severity.ERROR, "a node that nothing leads to"),
    "C019": (Severity.ERROR, "a cycle without a loop"),
    "C026": (Severity.ERROR, "a loop limit below 1"),
    "C029": (Severity.ERROR, "the output of an unknown node"),
    "C030": (Severity.WARNING, "the codex backend, which a sandbox cannot hold"),
    "C033": (Severity.ERROR, "an undeclared variable"),
    "C040": (Severity.ERROR, "an expression that cannot be parsed"),
    "C041": (Severity.ERROR, "two nodes with one name"),
    "C042": (Severity.ERROR, "a reserved name"),
    "C044": (Severity.ERROR, "an invalid sandbox"),
    "C080": (Severity.WARNING, "an unknown capability"),
    "C081": (Severity.ERROR, "a malformed capability"),
    "C128": (Severity.WARNING, "no sandbox"),
}
"""Every code: how severe it is and what it means."""


class FlowError(ConfigError):
    """A workflow file that cannot run; ``diagnostics`` holds everything found, errors first, in file order.

    ``str()`` shows the errors with their lines, as they should stand on a terminal.
    """

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(
            sorted(diagnostics, key=lambda found: (found.severity is not Severity.ERROR, found.position))
        )
        super().__init__("\n".join(found.render() for found in self.errors))

    @property
    def errors(self) -> tuple[Diagnostic, ...]:
        """The findings that stop the run."""
        return tuple(found for found in self.diagnostics if found.severity is Severity.ERROR)


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingLimits:
    """How much is told about one file."""

    max_errors: int = 100
    max_warnings: int = 100
    max_names: int = 2_000
    """Names that a misspelt one is compared with."""


LIMITS = FindingLimits()


class TooManyFindingsError(Exception):
    """The file has so many errors that looking further helps nobody."""


class Findings:
    """Collects diagnostics; every code is one of `CODES`, which says how severe it is."""

    def __init__(self) -> None:
        self.errors: list[Diagnostic] = []
        self.warnings: list[Diagnostic] = []
        self._seen: set[tuple[str, SourcePos, str]] = set()

    def add(self, code: str, position: SourcePos, message: str, hint: str | Callable[[], str] = "") -> None:
        """Note one finding; a ``hint`` that is costly to make is made only if it is shown.

        Raises `TooManyFindingsError` beyond `LIMITS`; warnings beyond it are dropped.
        """
        severity, _ = CODES[code]
        key = code, position, message
        if key in self._seen:
            return
        of_kind, most = self.errors, LIMITS.max_errors
        if severity is Severity.WARNING:
            of_kind, most = self.warnings, LIMITS.max_warnings
        if len(of_kind) < most:
            self._seen.add(key)
            hint = hint if isinstance(hint, str) else hint()
            of_kind.append(Diagnostic(code=code, severity=severity, message=message, position=position, hint=hint))
        elif severity is Severity.ERROR:
            raise TooManyFindingsError

    def with_lines(self, line_at: Callable[[int], str]) -> tuple[Diagnostic, ...]:
        """Everything found, each with the line of the file it is about, in file order."""
        return tuple(
            replace(found, source_line=line_at(found.position.line))
            for found in sorted([*self.errors, *self.warnings], key=lambda found: found.position)
        )


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``did you mean 'x'?``, or nothing if no known name is close."""
    names = list(islice(known, LIMITS.max_names))
    close = difflib.get_close_matches(name[:60], names, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else ""


def suggestion(name: str, known: Iterable[str], otherwise: str = "") -> Callable[[], str]:
    """A hint for `Findings.add`: `did_you_mean`, or ``otherwise`` if no known name is close."""
    return lambda: did_you_mean(name, known) or otherwise
