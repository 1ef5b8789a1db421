"""Properties: what each takes, and what may not stand in a block."""

import pytest

from tests.gateway.workflow.helpers import found, only

END = "workflow w:\n  entry: a\n  a -> done\n"


def findings_of(line: str) -> list[str]:
    return found(f'workflow w:\n  entry: a\n  {line}\n  a -> done\ntool a:\n  command: "x"\n')


@pytest.mark.parametrize(
    ("line", "findings"),
    [
        ("worktree: on", ["E003 3:13"]),
        ('budget:\n    max_duration: "soon"', ["E003 4:19"]),
        ("budget:\n    max_duration: [x]", ["E003 4:19", "E003 4:19"]),
        ("budget:\n    max_tokens: 5", []),
        ('budget:\n    max_duration: "5s"', []),
        ("vars:\n    b: int\n  attachments:\n    c: file", []),
        ("vars: x", ["E003 3:9"]),
    ],
)
def test_properties_of_a_workflow(line: str, findings: list[str]) -> None:
    assert findings_of(line) == findings


@pytest.mark.parametrize(
    ("line", "findings"),
    [
        ("model: gpt-4", []),
        ("model: claude", []),
        ("model: 3", ["E003 2:10"]),
        ("input: a.b", ["E003 2:10"]),
        ("session: freh", ["E003 2:12"]),
        ("session: [fresh]", ["E003 2:12"]),
        ('session: "fresh"', []),
        ("readonly: yes", ["E003 2:13"]),
        ("max_tokens: 1.5", ["E003 2:15"]),
        ("max_tokens: -1", ["E003 2:15"]),
        ("max_tokens: x", ["E003 2:15"]),
        ("tools: a", ["E003 2:10"]),
        ("tools: [a, [b]]", ["E003 2:14"]),
        ("tools: [a, 1]", ["E003 2:14"]),
        ("tools: []", []),
        ("reasoning_effort: most", ["E003 2:21"]),
        ('reasoning_effort: "${X}"', []),
        ("interaction: robot", ["E003 2:16"]),
        ("await: never", ["E003 2:10"]),
        ("mcp: x", ["E003 2:8"]),
        ("mcp:\n    inherit: x", ["E003 3:14"]),
        ("compaction:\n    threshold: x", ["E003 3:16"]),
        ("memory:\n    read: [x]", []),
        ("memory:\n    read: x", ["E003 3:11"]),
        ("cursors: {a: 1, b: c}", []),
        ("cursors: {a: 1, a: c}", ["E004 2:19"]),
        ('cursors:\n    a: string [enum: "a"]', ["E003 3:8"]),
        ("sandbox: auto\n    x: y", ["E003 2:12"]),
    ],
)
def test_properties_of_an_agent(line: str, findings: list[str]) -> None:
    assert found(f"agent a:\n  {line}\n{END}") == findings


def test_what_is_meant() -> None:
    assert only(f"agent a:\n  session: freh\n{END}").hint == "did you mean 'fresh'?"
