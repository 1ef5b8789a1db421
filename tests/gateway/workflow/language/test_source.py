"""The text of a file: encodings, line ends, control characters, the pragma."""

import pytest

from gateway.workflow.diagnostics import FlowError
from gateway.workflow.language.source import LIMITS, read_source


def refused(content: bytes | str) -> tuple[str, str]:
    with pytest.raises(FlowError) as caught:
        read_source(content, "f.bot")
    (found,) = caught.value.diagnostics
    assert found.code == "E001"
    return found.message, str(found.position)


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", ("",)),
        ("", ("",)),
        (b"a\nb", ("a", "b")),
        (b"a\r\nb\r\n", ("a", "b", "")),
        (b"\xef\xbb\xbfa", ("a",)),
        ("\ufeffa", ("a",)),
        ("é\u2028b\u0085c", ("é\u2028b\u0085c",)),
        ("a\tb", ("a\tb",)),
    ],
)
def test_lines(content: bytes | str, lines: tuple[str, ...]) -> None:
    assert read_source(content, "f.bot").lines == lines


@pytest.mark.parametrize(
    ("content", "message", "place"),
    [
        (b"a\nb\xffc", "this is not UTF-8", "f.bot:2:2"),
        ("\ud800", "this is not UTF-8", "f.bot:1:1"),
        ("a\n\x00", "a control character (U+0000)", "f.bot:2:1"),
        ("a\rb", "a control character (U+000D)", "f.bot:1:2"),
        ("\x1b[0m", "a control character (U+001B)", "f.bot:1:1"),
        ("x" * (LIMITS.max_file_bytes + 1), f"the file is longer than {LIMITS.max_file_bytes} bytes", "f.bot:1:1"),
    ],
)
def test_refused(content: bytes | str, message: str, place: str) -> None:
    assert refused(content) == (message, place)


@pytest.mark.parametrize(
    ("text", "strict"),
    [
        ("## strict-escape: on\n", True),
        ("# other\n\n  #strict-escape:on  \nvars:\n", True),
        ("", False),
        ("## strict-escape: off\n", False),
        ("vars:\n## strict-escape: on\n", False),
        ("### strict-escape: on\n", False),
    ],
)
def test_the_pragma_stands_among_the_leading_comments(text: str, strict: bool) -> None:
    assert read_source(text, "f.bot").strict_escapes is strict


def test_lines_by_number() -> None:
    source = read_source("a\nb", "f.bot")
    assert (source.line_at(1), source.line_at(2), source.line_at(3)) == ("a", "b", "")
    assert str(source.position(2, 1)) == "f.bot:2:1"
