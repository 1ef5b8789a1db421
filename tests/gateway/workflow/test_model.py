"""Places in a file, how findings look on a terminal, and the small conveniences of the model."""

from gateway.workflow.language import parse_flow
from gateway.workflow.model import Diagnostic, SandboxBlock, Severity, SourcePos

START = SourcePos(file="a.bot", line=3, column=5, indent=4)


def test_a_place_inside_a_text_of_one_line() -> None:
    assert START.inside("hello", 2) == SourcePos(file="a.bot", line=3, column=7, indent=4)


def test_a_place_in_a_later_line_counts_the_stripped_indentation() -> None:
    assert str(START.inside("one\n\nthree", 7)) == "a.bot:5:7"


def test_a_place_at_a_line_start() -> None:
    assert str(START.inside("one\ntwo", 4)) == "a.bot:4:5"


def diagnostic(column: int = 5, hint: str = "", line: str = "") -> Diagnostic:
    position = SourcePos(file="a.bot", line=3, column=column)
    return Diagnostic(
        code="C001", severity=Severity.ERROR, message="no", position=position, hint=hint, source_line=line
    )


def test_a_finding_in_one_line() -> None:
    assert str(diagnostic()) == "a.bot:3:5: error C001: no"
    assert str(diagnostic(hint="do it")) == "a.bot:3:5: error C001: no (do it)"


def test_a_finding_with_its_line_a_caret_and_a_hint() -> None:
    assert diagnostic(hint="do it", line="\tx: y").render().splitlines() == [
        "a.bot:3:5: error C001: no",
        "     x: y",
        "        ^",
        "    do it",
    ]


def test_a_finding_without_a_line() -> None:
    assert diagnostic().render() == "a.bot:3:5: error C001: no"


def test_a_long_line_is_cut_around_the_caret() -> None:
    shown = diagnostic(column=5001, line="a" * 5000 + "!" + "b" * 5000).render().splitlines()
    assert len(shown[1]) == 104
    assert shown[1][shown[2].index("^")] == "!"


def test_the_mode_of_a_sandbox_block() -> None:
    assert SandboxBlock(word=False, position=START).effective_mode == "inline"
    assert SandboxBlock(word=True, mode="auto", position=START).effective_mode == "auto"


def test_where_a_property_stands_or_its_owner() -> None:
    flow = parse_flow(
        'vars:\n  a: int = 1\n  b: int = 1\nattachments:\n  f: file\nagent x:\n  model: "m"\n'
        "workflow w:\n  vars:\n    b: int = 2\n  attachments:\n    g: image\n  entry: x\n"
        '  sandbox:\n    image: "i"\n  x -> done\n',
        file="a.bot",
    )
    node = flow.nodes["x"]
    assert str(node.where("model")) == "a.bot:7:11"
    assert node.where("user") == node.position
    assert str(flow.workflow.where("entry")) == "a.bot:13:10"
    assert flow.workflow.where("budget") == flow.workflow.position
    sandbox = flow.workflow.sandbox
    assert sandbox is not None
    assert str(sandbox.where("image")) == "a.bot:15:13"
    assert sandbox.where("user") == sandbox.position
    assert {name: variable.default for name, variable in flow.variables.items()} == {"a": 1, "b": 2}
    assert set(flow.all_attachments) == {"f", "g"}
