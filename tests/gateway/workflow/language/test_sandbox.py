"""The sandbox property: its two forms and its mistakes."""

import pytest

from gateway.workflow.language import read_flow
from tests.gateway.workflow.helpers import found


def findings_of(line: str) -> list[str]:
    return found(f'workflow w:\n  entry: a\n  {line}\n  a -> done\ntool a:\n  command: "x"\n')


@pytest.mark.parametrize(
    ("line", "findings"),
    [
        ("sandbox: atuo", ["C044 3:12"]),
        ("sandbox: [auto]", ["C044 3:12"]),
        ("sandbox:\n    mode: auto\n    env: {A: 1, B: x, C: [y]}", ["E003 5:26"]),
        ("sandbox:\n    mode: auto\n    env:\n      A:\n      B: x\n        C: y", ["E003 6:7", "E003 7:7"]),
        ("sandbox:\n    mode: auto\n    env:\n      A: 1\n      A: 2", ["E004 7:7"]),
        ("sandbox:\n    mode: auto\n    secrets: {a: 1}", []),
        ("sandbox:\n    mode: auto\n    secrets:\n      a:\n        b: 1\n        b: 2", ["E004 8:9"]),
        (
            'sandbox:\n    mode: auto\n    network:\n      hosts:\n        h: x\n        h: ["1.2.3.4"]',
            ["E003 7:12", "E004 8:9"],
        ),
        ("sandbox:\n", ["E003 3:3", "C044 3:3"]),
    ],
)
def test_sandboxes_with_mistakes(line: str, findings: list[str]) -> None:
    assert findings_of(line) == findings


@pytest.mark.parametrize("mode", ["auto", "none", "inline"])
def test_the_word_form(mode: str) -> None:
    text = f'workflow w:\n  entry: a\n  sandbox: {mode}\n  a -> done\ntool a:\n  command: "x"\n'
    flow, _ = read_flow(text, file="f.bot")
    assert flow is not None
    sandbox = flow.workflow.sandbox
    assert sandbox is not None
    assert (sandbox.word, sandbox.mode, sandbox.effective_mode) == (True, mode, mode)
