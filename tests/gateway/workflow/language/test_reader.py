"""The front door: what is accepted, what is refused and in which words, and that nothing else happens."""

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.workflow.diagnostics import FlowError
from gateway.workflow.language import parse_flow, read_flow
from gateway.workflow.model import Severity
from tests.gateway.workflow.helpers import findings, only
from tests.gateway.workflow.properties import JSON_VALUES, check_flow
from tests.gateway.workflow.samples import EVERYTHING

MINIMAL = 'tool a:\n  command: "x"\nworkflow w:\n  entry: a\n  a -> done\n'
WORDS = ["when", "not", "as", "with", "enum", "prompt", "agent", "mode", "file", "tool", "true", "workflow", "entry"]


@pytest.mark.parametrize("word", WORDS)
def test_words_are_not_reserved(word: str) -> None:
    flow = parse_flow(
        f"vars:\n  {word}: string\nschema {word}:\n  {word}: bool\nprompt {word}:\n  x\n"
        f'tool {word}:\n  command: "x"\n  output: {word}\n'
        f"workflow {word}:\n  entry: {word}\n"
        f'  {word} -> done when {"not " if word == "not" else ""}{word} as {word}(2) with {{ {word}: "x" }}\n'
        f"  {word} -> fail\n",
        file="f.bot",
    )
    assert set(flow.nodes) == set(flow.vars) == set(flow.schemas) == set(flow.prompts) == {word}
    edge = flow.workflow.edges[0]
    assert edge.loop is not None
    assert (edge.source, edge.loop.name, edge.with_[0].key) == (word, word, word)


def test_a_flow_holds_its_warnings() -> None:
    flow = parse_flow(MINIMAL + "  sandbox: none\n", file="f.bot")
    assert [warning.code for warning in flow.warnings] == ["C128"]
    assert flow.warnings[0].severity is Severity.WARNING
    assert flow.warnings[0].source_line == "  sandbox: none"


def test_bytes_a_mark_and_windows_line_ends() -> None:
    flow = parse_flow(b"\xef\xbb\xbf" + MINIMAL.replace("\n", "\r\n").encode(), file="f.iter")
    assert flow.file == "f.iter"
    tool: Any = flow.nodes["a"]
    assert tool.command == "x"


def test_all_errors_of_a_file_are_told_the_first_one_first() -> None:
    with pytest.raises(FlowError) as caught:
        parse_flow('tool a:\n  comand: "x"\nworkflow w:\n  entry: b\n  sandbox: none\n  a -> c\n', file="f.bot")
    assert [f"{item.code} {item.position.line}" for item in caught.value.diagnostics] == [
        "E003 1",
        "E002 2",
        "C008 4",
        "C001 6",
        "C128 5",
    ]


def test_a_file_of_nonsense_is_given_up_after_a_hundred_errors() -> None:
    flow, diagnostics = read_flow("tool a:\n" + "".join(f"  p{n}: 1\n" for n in range(5_000)), file="f.bot")
    assert flow is None
    assert len(diagnostics) == 100


def test_no_workflow_no_flow() -> None:
    flow, diagnostics = read_flow('tool a:\n  command: "x"\n', file="f.bot")
    assert flow is None
    assert [item.code for item in diagnostics] == ["C006"]
    with pytest.raises(FlowError, match="C006: there is no workflow"):
        parse_flow("", file="f.bot")


@pytest.mark.parametrize(
    ("text", "place", "message", "hint"),
    [
        ("agent a", "1:8", "expected ':', found the end of the line", ""),
        ("a: b c", "1:6", "expected the end of the line, found 'c'", ""),
        (": x", "1:1", "expected a declaration, found ':'", ""),
        ("a:\n  ]", "2:3", "expected a name or an edge, found ']'", ""),
        ("a: x\n    b: c\n   ", None, "", ""),
        ("a -> ", "1:6", "expected a name, found the end of the line", ""),
        ("a -> b wen x", "1:8", "expected 'when', 'as', 'with' or the end of the line, found 'wen'", ""),
        ("a -> b when not", "1:16", "expected a name, found the end of the line", ""),
        ("a -> b when", "1:12", "expected a name, a string or 'not', found the end of the line", ""),
        ("a -> b as x", "1:12", "expected '(', found the end of the line", ""),
        ("a -> b as x(y)", "1:13", "expected a number, found 'y'", ""),
        ("a -> b as x(3", "1:14", "expected ')', found the end of the line", ""),
        ("a -> b-c", "1:6", "expected a name, found 'b-c'", "a name has letters, digits and _"),
        ("a: [b\nc: d", "2:1", "expected ',' or ']', found 'c'", "the '[' of line 1 is still open"),
        ("a: [b", "1:6", "expected ',' or ']', found the end of the file", "the '[' of line 1 is still open"),
        ("a: {b: c", "1:9", "expected ',' or '}', found the end of the file", "the '{' of line 1 is still open"),
        ("a: {b c}", "1:7", "expected ':', found 'c'", "the '{' of line 1 is still open"),
        ("a: s [x]", "1:7", "expected 'enum', found 'x'", "the '[' of line 1 is still open"),
        ("a: s [enum: x]", "1:13", "expected a string, found 'x'", "the '[' of line 1 is still open"),
        ("a: b =", "1:7", "expected a name, a string, a number, '[' or '{', found the end of the line", ""),
        (
            "  a: b",
            "1:3",
            "expected a declaration, found a deeper line",
            "only the lines of a block are indented: is a ':' missing above?",
        ),
        ("a: " + "b" * 50 + " " + "c" * 50, "1:55", f"expected the end of the line, found '{'c' * 40}...'", ""),
        ('a: x [enum: "b"] c', "1:18", "expected the end of the line, found 'c'", ""),
        ("a:\n  b\nc", "2:4", "expected a name, ':' or '->', found the end of the line", ""),
    ],
)
def test_the_words_of_an_error(text: str, place: str | None, message: str, hint: str) -> None:
    if place is None:
        assert [item.code for item in findings(text)] != ["E001"]
        return
    item = only(text)
    assert (item.code, f"{item.position.line}:{item.position.column}") == ("E001", place)
    assert (item.message, item.hint) == (message, hint)


def test_a_caret_stands_under_the_place() -> None:
    with pytest.raises(FlowError) as caught:
        parse_flow('agent a:\n  modle: "x"\n', file="f.bot")
    assert str(caught.value).splitlines() == [
        "f.bot:2:3: error E002: agent 'a' has no property 'modle'",
        '      modle: "x"',
        "      ^",
        "    did you mean 'model'?",
        "f.bot:2:13: error C006: there is no workflow",
        '      modle: "x"',
        "                ^",
        "    write 'workflow NAME:'",
    ]


def test_commas_between_mappings_are_optional_and_lists_may_end_in_one() -> None:
    flow = parse_flow(
        'vars:\n  l: string[] = ["a", "b",]\n'
        + MINIMAL.replace("done\n", 'done with {\n  a: "1"\n  b: "2", c: "3",\n}\n'),
        file="f.bot",
    )
    assert [entry.key for entry in flow.workflow.edges[0].with_] == ["a", "b", "c"]
    assert flow.vars["l"].default == ["a", "b"]


@pytest.mark.parametrize(
    "clauses",
    [
        'when ok as again(2) with { k: "v" }',
        'with { k: "v" } as again(2) when ok',
        'as again(2) when ok with { k: "v" }',
    ],
)
def test_the_clauses_of_an_edge_in_any_order(clauses: str) -> None:
    flow = parse_flow(MINIMAL + f"  a -> a {clauses}\n", file="f.bot")
    edge = flow.workflow.edges[1]
    assert edge.condition is not None
    assert edge.loop is not None
    assert edge.loop.limit == 2
    assert edge.with_[0].value == "v"


def test_importing_the_language_does_not_import_lark() -> None:
    code = "import sys, gateway.workflow.language; sys.exit('lark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# -- Properties -------------------------------------------------------------------------------------

_LINE = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=20)


@given(st.lists(_LINE, max_size=8), st.integers(1, 8))
def test_a_prompt_gives_back_its_lines(lines: list[str], indent: int) -> None:
    lines = [line.rstrip() for line in lines]
    text = "\n".join(lines).strip("\n")
    # A first line with blanks in front would set the indentation, and a { is the beginning of a template.
    text = text.lstrip().replace("{", "(")
    source = "prompt p:\n" + "".join(f"{' ' * indent}{line}\n" if line else "\n" for line in text.split("\n"))
    flow = parse_flow(source + MINIMAL, file="f.bot")
    expected = "\n".join("" if not line.strip() else line for line in text.split("\n"))
    assert flow.prompts["p"].text == expected.rstrip("\n")


@given(_LINE)
def test_a_strict_string_gives_back_its_text(text: str) -> None:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    flow = parse_flow(f'## strict-escape: on\nvars:\n  v: string = "{escaped}"\n{MINIMAL}', file="f.bot")
    assert flow.vars["v"].default == text


@given(_LINE, _LINE)
def test_a_raw_string_gives_back_its_text(first: str, second: str) -> None:
    text = f"{first}\n{second}".replace("`", "'")
    flow = parse_flow(f"vars:\n  v: string = `{text}`\n{MINIMAL}", file="f.bot")
    assert flow.vars["v"].default == text


@given(JSON_VALUES)
def test_a_json_literal_gives_back_its_value(value: Any) -> None:
    literal = json.dumps(value)
    if isinstance(value, str):
        literal = json.dumps(json.dumps(value))
    flow = parse_flow(f"vars:\n  v: json = {literal}\n{MINIMAL}", file="f.bot")
    assert flow.vars["v"].default == value


_PIECES = st.sampled_from(
    [
        *WORDS,
        "a",
        "vars",
        "schema",
        "sandbox",
        "network",
        "command",
        "expr",
        "->",
        ":",
        ":\n",
        ":\n  ",
        "\n",
        "\n  ",
        "\n    ",
        " ",
        "[",
        "]",
        "{",
        "}",
        "(",
        ")",
        ",",
        "=",
        "|",
        "`",
        '"x"',
        '"',
        "1",
        "0.5",
        "-",
        ".",
        "*",
        "##",
        "{{vars.a}}",
        "{{",
        "string",
        "json",
        "\t",
        "\\",
        "workflow w:\n  entry: a\n",
        'tool a:\n  command: "x"\n',
    ]
)


@given(st.lists(_PIECES | st.text(max_size=3), max_size=30))
def test_any_text_is_a_flow_or_a_flow_error(pieces: list[str]) -> None:
    check_flow("".join(pieces))


@given(st.binary(max_size=60))
def test_any_bytes_are_a_flow_or_a_flow_error(content: bytes) -> None:
    check_flow(content)


@given(st.data())
def test_a_damaged_file_is_a_flow_or_a_flow_error(data: st.DataObject) -> None:
    text = EVERYTHING
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 12)))
        text = text[:start] + data.draw(_PIECES | st.just("")) + text[end:]
    check_flow(text)


@pytest.mark.parametrize(
    "text",
    [
        "vars:\n  a: json = " + "[" * 100_000,
        "vars:\n  a: json = [" + "1," * 50_000 + "]\n",
        "".join(" " * depth + "a:\n" for depth in range(500)),
        "prompt a:\n" * 20_000,
        "prompt a:\n  " + "{{" * 100_000,
        'a: "' * 50_000,
        "a: " + "a-" * 100_000,
        MINIMAL + "  a -> a\n" * 20_000,
    ],
    ids=["brackets", "list", "indents", "prompts", "braces", "quotes", "hyphens", "edges"],
)
def test_large_nonsense_neither_hangs_nor_recurses(text: str) -> None:
    check_flow(text)
