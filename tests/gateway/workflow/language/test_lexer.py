"""Lines to tokens."""

from typing import Any

import pytest

from gateway.workflow.diagnostics import FlowError
from gateway.workflow.language.lexer import Lexer, Token
from gateway.workflow.language.source import LIMITS, read_source


def tokens(text: str) -> list[Token]:
    return list(Lexer(read_source(text, "f.bot")))


def kinds(text: str) -> str:
    return " ".join(token.type.lstrip("_") for token in tokens(text))


def strings(text: str) -> list[str]:
    return [token.value for token in tokens(text) if token.type in ("STRING", "PROMPT_BODY")]


def refused(text: str) -> tuple[str, str]:
    with pytest.raises(FlowError) as caught:
        tokens(text)
    (found,) = caught.value.diagnostics
    return found.message, f"{found.position.line}:{found.position.column}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "$END"),
        ("\n  \n\t\n## c\n    ## d\n", "$END"),
        ("a", "WORD NEWLINE $END"),
        ("a: 1 ## c", "WORD COLON NUMBER NEWLINE $END"),
        ("a: 1 # c", "WORD COLON NUMBER NEWLINE $END"),
        ("a->b", "WORD ARROW WORD NEWLINE $END"),
        ("a:\n  b: c\nd: e", "WORD COLON NEWLINE INDENT WORD COLON WORD NEWLINE DEDENT WORD COLON WORD NEWLINE $END"),
        ("a:\n  b:\n      c", "WORD COLON NEWLINE INDENT WORD COLON NEWLINE INDENT WORD NEWLINE DEDENT DEDENT $END"),
        ("a: [1,\n\n  2 ## c\n]\nb", "WORD COLON LBRACKET NUMBER COMMA NUMBER RBRACKET NEWLINE WORD NEWLINE $END"),
        ("a: {b: c}", "WORD COLON LBRACE WORD COLON WORD RBRACE NEWLINE $END"),
        ("a: [1", "WORD COLON LBRACKET NUMBER $END"),
        ("as x(3) =", "WORD WORD LPAR NUMBER RPAR EQUALS NEWLINE $END"),
        ("a-b c.d e.* f.g-h.* string[]", "BARE BARE BARE BARE LIST_TYPE NEWLINE $END"),
        ("0.0-0.5 0..1 1 - 2 -2 1.5e3 -1", "RANGE RANGE RANGE NUMBER NUMBER NUMBER NEWLINE $END"),
        ("]", "RBRACKET NEWLINE $END"),
        ("prompt p:", "WORD WORD COLON PROMPT_BODY $END"),
        ("prompt: x", "WORD COLON WORD NEWLINE $END"),
        (
            "x:\n  prompt p:\n    a\n  b",
            "WORD COLON NEWLINE INDENT WORD WORD COLON PROMPT_BODY WORD NEWLINE DEDENT $END",
        ),
    ],
)
def test_kinds(text: str, expected: str) -> None:
    assert kinds(text) == expected


def test_places() -> None:
    found = tokens('a:\n  b: "x"\n')
    assert [(token.position.line, token.position.column) for token in found] == [
        (1, 1),
        (1, 2),
        (1, 3),
        (2, 3),
        (2, 3),
        (2, 4),
        (2, 6),
        (2, 9),
        (3, 1),
        (3, 1),
    ]
    (string,) = [token for token in found if token.type == "STRING"]
    assert string.content is not None
    assert string.content.column == 7


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('a: ""', ""),
        ('a: "x y"', "x y"),
        (r'a: "a\"b\n\\"', r"a\"b\n\\"),
        ("## strict-escape: on\na: " + r'"a\"b\n\t\r\0\\"', 'a"b\n\t\r\0\\'),
        ("a: ``", ""),
        ('a: `x\\n"y"`', 'x\\n"y"'),
        ("a: `one\n  two\n\n##three`", "one\n  two\n\n##three"),
        ('a: "## no comment"', "## no comment"),
    ],
)
def test_strings(text: str, value: str) -> None:
    assert strings(text) == [value]


def test_what_follows_a_raw_string_of_several_lines() -> None:
    assert kinds("a: [`x\ny`, b]\nc") == "WORD COLON LBRACKET STRING COMMA WORD RBRACKET NEWLINE WORD NEWLINE $END"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: |\n  x\n", "x\n"),
        ("a: | ## c\n  x", "x\n"),
        ("a: |\n  x\n    y\n\n  z\n\n\n", "x\n  y\n\nz\n"),
        ("a: |\n\n  x\n", "\nx\n"),
        ("a: |\n  ## x\n   \n", "## x\n"),
        ("a: |\n", ""),
        ("a: |\n\n", ""),
        ("a: |\nb: c", ""),
        ("  a: |\n    x\n  b: c", "x\n"),
        ("a: [|\n]", None),
        ("a: {b: |\n  x\n}", "x\n"),
        ("a: |\n    x\n ## less\nb: c", "x\n"),
    ],
)
def test_block_scalars(text: str, value: str | None) -> None:
    if value is None:
        assert refused(text)[0] == "a | stands after a colon, at the end of its line"
    else:
        assert strings(text) == [value]


def test_where_the_text_of_a_block_scalar_begins() -> None:
    (token,) = [token for token in tokens("a: |\n\n    x\n      y") if token.type == "STRING"]
    assert token.content is not None
    assert str(token.content.inside(token.value, token.value.index("x"))) == "f.bot:3:5"
    assert str(token.content.inside(token.value, token.value.index("y"))) == "f.bot:4:7"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("prompt p:\n  x", "x"),
        ("prompt p: ## c\n  x", "x"),
        ("prompt p:\n\n\n  x\n    y\n\n  z ## text\n\n\nvars:", "x\n  y\n\nz ## text"),
        ("prompt p:\n   {{vars.x}}\n   a: b -> c\n", "{{vars.x}}\na: b -> c"),
        ("prompt p:\n  a\tb\n  \n  \tc", "a\tb\n\n\tc"),
        ("prompt p:\nvars:", ""),
        ("prompt p:\n\n", ""),
        ("prompt p:\n  x\n## comment\n", "x"),
    ],
)
def test_prompts(text: str, value: str) -> None:
    assert strings(text) == [value]


def test_where_a_prompt_begins() -> None:
    body = next(token for token in tokens("prompt p:\n\n   x") if token.type == "PROMPT_BODY")
    assert str(body.content) == "f.bot:3:4"
    empty = next(token for token in tokens("prompt p:\n") if token.type == "PROMPT_BODY")
    assert str(empty.content) == "f.bot:1:8"


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("a:\n\tb: c", "a tab in the indentation", "2:1"),
        ("a:\n  \tb: c", "a tab in the indentation", "2:3"),
        ("prompt p:\n  x\n\ty", "a tab in the indentation", "3:1"),
        ("a: |\n  x\n \ty", "a tab in the indentation", "3:2"),
        ("a:\n    b: c\n  d: e", "an indentation of 2 matches no line above", "3:3"),
        ("a:\n  b\n c", "an indentation of 1 matches no line above", "3:2"),
        ("prompt p:\n    x\n  y", "this line is indented less than the text above it", "3:3"),
        ("a: |\n    x\n  y", "this line is indented less than the text above it", "3:3"),
        ('a: "x', "this string has no closing quote on its line", "1:4"),
        ('a: "x\\"', "this string has no closing quote on its line", "1:4"),
        ("a: 'x'", "strings are written in double quotes", "1:4"),
        ("a: `x\ny", "this raw string has no closing `", "1:4"),
        ("## strict-escape: on\n" + r'a: "x\q"', r"\q is not an escape", "2:6"),
        ("a: 30m", "'30m' is neither a name, a number nor a string", "1:4"),
        ("a: é", "'é' is neither a name, a number nor a string", "1:4"),
        ("a: x,é", "'é' is neither a name, a number nor a string", "1:6"),
        ("a: *.example.com", "'*.example.com' is neither a name, a number nor a string", "1:4"),
        ("a: \u00a0", "'\\xa0' is neither a name, a number nor a string", "1:4"),
        ("a: x | y", "a | stands after a colon, at the end of its line", "1:6"),
        ("a: |-\n  x", "a | stands after a colon, at the end of its line", "1:4"),
        ("a: " + "1" * 41, "a number of more than 40 digits", "1:4"),
        ("a: -1e999", "this number is too large", "1:4"),
        ("a: " + "[" * 61, "more than 60 nested brackets", "1:64"),
    ],
)
def test_refused(text: str, message: str, place: str) -> None:
    assert refused(text) == (message, place)


def test_indentation_is_bounded() -> None:
    lines: list[str] = [" " * depth + "a:" for depth in range(LIMITS.max_indents + 2)]
    message, _ = refused("\n".join(lines))
    assert message == f"more than {LIMITS.max_indents} levels of indentation"
    assert tokens("\n".join(lines[:-1]))


def test_the_indentations_that_would_fit_are_named() -> None:
    with pytest.raises(FlowError) as caught:
        tokens("a:\n    b:\n        c\n  d")
    assert caught.value.diagnostics[0].hint == "indent by one of: 0, 4, 8"


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\n\n  \n"])
def test_any_end_of_file_will_do(end: str) -> None:
    def shape(text: str) -> list[Any]:
        return [(token.type, token.text, token.value) for token in tokens(text)]

    for text in ("a: b", "prompt p:\n  x", "a: |\n  x", 'a:\n  b: "c"'):
        assert shape(text + end) == shape(text)
