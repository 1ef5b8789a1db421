"""What must hold after the tests: full coverage where logic is pure, and no real-engine test skipped.

python .ci/coverage_gate.py COVERAGE_JSON JUNIT_XML

Pure logic has no excuse: no clock, socket or process stands between a test and any branch of it.
"""

import fnmatch
import json
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

FULLY_COVERED = (
    "policy/*.py",
    "drivers/spec.py",
    "drivers/spec_text.py",
    "gateway/egress/http1/*.py",
    "gateway/egress/client_hello.py",
    "gateway/egress/environment.py",
    "gateway/egress/limits.py",
    "gateway/egress/server_name.py",
    "gateway/errors.py",
    "gateway/events.py",
    "gateway/workflow/check.py",
    "gateway/workflow/diagnostics.py",
    "gateway/workflow/evaluation.py",
    "gateway/workflow/expressions.py",
    "gateway/workflow/graph.py",
    "gateway/workflow/language/*.py",
    "gateway/workflow/model.py",
    "gateway/workflow/resolution.py",
    "gateway/workflow/sandbox_blocks.py",
    "gateway/workflow/templates.py",
)
"Globs over paths; one that matches no measured file is an error, so that a renamed file is not forgotten."
LEAST_TOTAL_PERCENT = 85.0


def coverage_problems(report: dict[str, Any]) -> list[str]:
    """Return one line for each file that is not covered as it must be."""
    problems = []
    for pattern in FULLY_COVERED:
        files = {path: entry for path, entry in report["files"].items() if fnmatch.fnmatch(path, pattern)}
        if not files:
            problems.append(f"{pattern}: no measured file has such a path")
        for path, entry in sorted(files.items()):
            if lines := entry["missing_lines"]:
                problems.append(f"{path}: lines {', '.join(map(str, lines))} are not covered")
            if branches := entry.get("missing_branches", []):
                jumps = ", ".join(f"{start}->{end}" for start, end in branches)
                problems.append(f"{path}: branches {jumps} are not covered")
    total = report["totals"]["percent_covered"]
    print(f"coverage: {total:.1f} % of lines and branches")
    if total < LEAST_TOTAL_PERCENT:
        problems.append(f"{total:.1f} % in all; at least {LEAST_TOTAL_PERCENT:g} % is wanted")
    return problems


def test_problems(suite: ElementTree.Element) -> list[str]:
    """Return one line for each real-engine test that was skipped; print the count of all tests."""
    problems = []
    count = {"passed": 0, "failed": 0, "skipped": 0, "real": 0}
    for case in suite.iter("testcase"):
        real = any(item.get("name") == "real" for item in case.iter("property"))
        skipped = case.find("skipped")
        failed = case.find("failure") is not None or case.find("error") is not None
        count["failed" if failed else "skipped" if skipped is not None else "passed"] += 1
        count["real"] += real
        if real and skipped is not None:
            name = f"{case.get('classname')}.{case.get('name')}"
            problems.append(f"{name}: a real-engine test was skipped: {skipped.get('message')}")
    print(f"{count['real']} tests used real engines, kernel features or client programs")
    print(f"{count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped")
    if count["real"] == 0:
        problems.append("no real-engine test ran at all")
    if count["failed"] or not count["passed"]:
        problems.append("the tests did not pass")
    return problems


def main(coverage_json: str, junit_xml: str) -> int:
    """Print what is wrong and return how the process should exit."""
    problems = coverage_problems(json.loads(Path(coverage_json).read_text()))
    problems += test_problems(ElementTree.parse(junit_xml).getroot())
    for problem in problems:
        print(f"gate: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
