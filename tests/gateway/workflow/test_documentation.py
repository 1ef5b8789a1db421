"""The language reference and the examples say what the language does."""

import re
from pathlib import Path

import pytest

from gateway.workflow.commands import LANGUAGES, LIMITS, render_command
from gateway.workflow.diagnostics import CODES
from gateway.workflow.expressions import FUNCTIONS
from gateway.workflow.expressions import LIMITS as EXPRESSION_LIMITS
from gateway.workflow.language import parse_flow
from gateway.workflow.language.properties import node_tables
from gateway.workflow.language.sandbox import NETWORK, SANDBOX, sandbox_kind
from gateway.workflow.language.source import LIMITS as LANGUAGE_LIMITS
from gateway.workflow.model import Severity
from gateway.workflow.templates import NAMESPACES, parse_template

ROOT = Path(__file__).resolve().parents[3]
REFERENCE = (ROOT / "docs/workflows.md").read_text()
BLOCKS = re.findall(r"^```bot\n(.*?)^```$", REFERENCE, re.MULTILINE | re.DOTALL)
EXAMPLES = sorted((ROOT / "examples").rglob("*.bot"))


@pytest.mark.parametrize("text", BLOCKS, ids=lambda text: text.splitlines()[0])
def test_every_workflow_of_the_reference_is_one(text: str) -> None:
    assert parse_flow(text, file="workflows.md").warnings == ()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_is_one(path: Path) -> None:
    assert parse_flow(path.read_bytes(), file=path.name).warnings == ()


def test_every_code_is_explained() -> None:
    rows = dict(re.findall(r"^\| ([EC]\d{3}) \| (.*) \|$", REFERENCE, re.MULTILINE))
    assert set(rows) == set(CODES)
    warnings = {code for code, (severity, _) in CODES.items() if severity is Severity.WARNING}
    assert {code for code, text in rows.items() if text.startswith("warning")} == warnings


def test_every_property_is_named() -> None:
    tables = [*node_tables(sandbox_kind).values(), SANDBOX, NETWORK]
    named = set(re.findall(r"\w+", REFERENCE))
    assert {key for table in tables for key in table} <= named
    assert {*FUNCTIONS, *NAMESPACES, *LANGUAGES} <= named


def test_the_commands_of_the_reference() -> None:
    rows = re.findall(r"^\| `(echo .*?)` \| `(echo .*?)`", REFERENCE, re.MULTILINE)
    assert len(rows) == 3
    for written, seen in rows:
        assert render_command(parse_template(written), {"vars": {"x": "v"}}).text == seen


def test_the_limits_of_the_reference() -> None:
    assert f"{LANGUAGE_LIMITS.max_file_bytes // 2**20} MiB" in REFERENCE
    assert f"{LANGUAGE_LIMITS.max_indents} levels of indentation" in REFERENCE
    assert f"{LANGUAGE_LIMITS.max_brackets} nested brackets" in REFERENCE
    assert f"{EXPRESSION_LIMITS.max_text_chars:,} characters, {EXPRESSION_LIMITS.max_depth} levels" in REFERENCE
    assert f"{EXPRESSION_LIMITS.max_value_items:,} elements" in REFERENCE
    assert LIMITS.max_value_bytes // 1024 == 127
