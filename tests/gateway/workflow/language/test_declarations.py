"""Variables, presets, attachments, schemas, cursors: mistakes and the values they take."""

from typing import Any

import pytest

from gateway.workflow.language import parse_flow
from tests.gateway.workflow.helpers import found, only

REST = 'tool a:\n  command: "x"\nworkflow w:\n  entry: a\n  a -> done\n'


def default(kind: str, literal: str) -> Any:
    return parse_flow(f"vars:\n  v: {kind} = {literal}\n{REST}", file="f.bot").vars["v"].default


@pytest.mark.parametrize(
    ("kind", "literal", "value"),
    [
        ("string", '"a\\nb"', "a\\nb"),
        ("bool", "false", False),
        ("int", "-3", -3),
        ("float", "2", 2),
        ("float", "1e3", 1000.0),
        ("json", "null", None),
        ("json", "true", True),
        ("json", '"text"', "text"),
        ("json", '"a\\u00e9"', "aé"),
        ("json", '"\\d"', "\\d"),
        ("json", '"\\ud800"', "\\ud800"),
        ("json", '`{"a": [1]}`', {"a": [1]}),
        ("json", '"{\\"a\\": 1}"', {"a": 1}),
        ("json", '"5"', 5),
        ("json", "{a: {b: []}}", {"a": {"b": []}}),
        ("json", '{"\\"": `x`}', {'"': "x"}),
        ("json", "[]", []),
        ("string[]", "[]", []),
        ("string[]", '["a", `b`]', ["a", "b"]),
        ("string[]", '`["a"]`', ["a"]),
    ],
)
def test_defaults(kind: str, literal: str, value: Any) -> None:
    found = default(kind, literal)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("line", "findings"),
    [
        ("v: strng", ["E003 2:6"]),
        ('v: "string"', ["E003 2:6"]),
        ("v:", ["E003 2:3"]),
        ("v: [a]", ["E003 2:6"]),
        ('"a b": int', ["E003 2:3"]),
        ("v: int\n  v: int", ["E004 3:3"]),
        ("v: int\n    x: y", ["E003 3:5"]),
        ('v: string [enum: "a"]', ["E003 2:20"]),
        ("v: string = a", ["E003 2:15"]),
        ("v: string = 1", ["E003 2:15"]),
        ("v: bool = 1", ["E003 2:13"]),
        ('v: bool = "true"', ["E003 2:13"]),
        ("v: int = 1.5", ["E003 2:12"]),
        ('v: int = "1"', ["E003 2:12"]),
        ('v: float = "1"', ["E003 2:14"]),
        ("v: json = word", ["E003 2:13"]),
        ("v: json = [a-b]", ["E003 2:14"]),
        ('v: json = {a: 1, "a": 2}', ["E004 2:20"]),
        ("v: string[] = [1]", ["E003 2:17"]),
        ('v: string[] = "a"', ["E003 2:17"]),
        ("a -> b", ["E002 2:3"]),
        ("x y: z", ["E001 2:8"]),
    ],
)
def test_variables_with_mistakes(line: str, findings: list[str]) -> None:
    assert found(f"vars:\n  {line}\n{REST}") == findings


def test_a_type_that_is_meant() -> None:
    assert only(f"vars:\n  v: strng\n{REST}").hint == "did you mean 'string'?"
    assert only(f"vars:\n  v: x\n{REST}").message == (
        "variable 'v' needs a type: string, bool, int, float, json, string[]"
    )


@pytest.mark.parametrize(
    ("text", "findings"),
    [
        ("vars:\n", ["E003 1:1"]),
        ("vars: x\n", ["E003 1:7"]),
        ("vars:\n  x y:\n", ["E002 2:3"]),
        ("presets:\n  p:\n    v: x\n    v: 1\n", ["E003 3:8", "E004 4:5"]),
        ("presets:\n  p:\n    v:\n", ["E003 3:5"]),
        ("presets:\n  p: x\n", ["E003 2:6"]),
        ('presets:\n  "a b": {v: 1}\n', ["E003 2:3"]),
        ("presets:\n  p: {v: 1}\n  p: {v: 2}\n", ["E004 3:3"]),
        ("presets:\n  p: {v: 1}\n", []),
        ("attachments:\n  a: fil\n", ["E003 2:6"]),
        ("attachments:\n  a:\n", ["E003 2:3"]),
        ("attachments:\n  a: file\n    size: 3\n", ["E002 3:5"]),
        ("attachments:\n  a: file\n    required: 3\n", ["E003 3:15"]),
        ("attachments:\n  a: file\n  a: file\n", ["E004 3:3"]),
        ('attachments:\n  "a b": file\n', ["E003 2:3"]),
        ("schema s:\n", []),
        ("schema s: x\n", ["E001 1:11"]),
        ("schema s:\n  a: x\n", ["E003 2:6"]),
        ("schema s:\n  a: int\n  a: int\n", ["E004 3:3"]),
        ("schema s:\n  a: int = 3\n", ["E003 2:12"]),
        ('schema s:\n  a: int [enum: "1"]\n', ["E003 2:17"]),
        ('schema s:\n  a: string [enum: "1"] = "1"\n', ["E003 2:27"]),
        ("schema s:\n  a: int\n    b: int\n", ["E003 3:5"]),
        ('schema s:\n  "a b": int\n', ["E003 2:3"]),
        ("cursor c:\n", []),
        ("cursor c:\n  description: [x]\n", ["E003 2:16"]),
        ("cursor c:\n  values:\n    a: [x]\n  bands:\n    0..1: x\n", ["E003 3:8", "E003 4:3"]),
        ("cursor c:\n  bands:\n    0.5-0.2: x\n    0..2: x\n    x: y\n    0..1: [z]\n", None),
        ("mcp_server m:\n  transport: tcp\n", ["E003 2:14"]),
        ("mcp_server m:\n  auth: x\n", ["E003 2:9"]),
        ("mcp_server m:\n  auth:\n    type: x\n    type: y\n    no: z\n", ["E004 4:5", "E002 5:5"]),
        ("mcp_server m:\n", []),
    ],
)
def test_declarations_with_mistakes(text: str, findings: list[str] | None) -> None:
    if findings is None:
        findings = ["E003 3:5", "E003 4:5", "E003 5:5", "E003 6:11"]
    variables = "" if text.startswith("vars") else "vars:\n  v: int\n"
    assert sorted(found(text + variables + REST)) == sorted(findings)
