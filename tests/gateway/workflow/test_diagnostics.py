"""Findings and errors: order, limits, words."""

import pytest

from gateway.workflow.diagnostics import (
    CODES,
    LIMITS,
    Findings,
    FlowError,
    TooManyFindingsError,
    did_you_mean,
    suggestion,
)
from gateway.workflow.model import Severity, SourcePos


def at(line: int, column: int = 1) -> SourcePos:
    return SourcePos(file="a.bot", line=line, column=column)


def test_findings_come_in_the_order_of_the_file_with_their_lines() -> None:
    findings = Findings()
    findings.add("C001", at(3), "third")
    findings.add("C128", at(1), "first", "hint")
    findings.add("C002", at(2, 5), "second", lambda: "made")
    found = findings.with_lines(lambda line: f"line {line}")
    assert [(item.message, item.hint, item.source_line) for item in found] == [
        ("first", "hint", "line 1"),
        ("second", "made", "line 2"),
        ("third", "", "line 3"),
    ]
    assert [item.severity for item in found] == [Severity.WARNING, Severity.ERROR, Severity.ERROR]


def test_one_finding_is_told_once() -> None:
    findings = Findings()
    findings.add("C001", at(1), "x")
    findings.add("C001", at(1), "x")
    findings.add("C001", at(1), "y")
    assert len(findings.errors) == 2


def test_errors_are_bounded_and_hints_made_only_if_shown() -> None:
    findings = Findings()
    for line in range(1, LIMITS.max_errors + 1):
        findings.add("C001", at(line), "x")
    with pytest.raises(TooManyFindingsError):
        findings.add("C001", at(999), "x", lambda: pytest.fail("not needed"))


def test_warnings_beyond_the_limit_are_dropped() -> None:
    findings = Findings()
    for line in range(1, LIMITS.max_warnings + 50):
        findings.add("C128", at(line), "x")
    assert len(findings.warnings) == LIMITS.max_warnings


def test_an_error_shows_errors_only_and_holds_all() -> None:
    findings = Findings()
    findings.add("C128", at(1), "a warning")
    findings.add("C001", at(2), "an error", "do it")
    error = FlowError(findings.with_lines(lambda _: "source"))
    assert [found.code for found in error.diagnostics] == ["C001", "C128"]
    assert [found.code for found in error.errors] == ["C001"]
    assert str(error) == "a.bot:2:1: error C001: an error\n    source\n    ^\n    do it"


def test_suggestions() -> None:
    assert did_you_mean("modle", ["model", "user"]) == "did you mean 'model'?"
    assert did_you_mean("zzz", ["model"]) == ""
    assert suggestion("modle", ["model"], "other")() == "did you mean 'model'?"
    assert suggestion("zzz", ["model"], "other")() == "other"


def test_the_published_codes_are_all_there() -> None:
    published = (
        "C001 C002 C003 C004 C005 C006 C007 C008 C010 C012 C016 C019 C026 C029 C030 C033 C040 C041 C042 C044 "
        "C080 C081 C128"
    )
    assert set(published.split()) <= set(CODES)
    warnings = {code for code, (severity, _) in CODES.items() if severity is Severity.WARNING}
    assert warnings == {"C030", "C080", "C128"}
