"""Lines to tokens.

The lexer works line by line, because the language does: a line's indentation opens and closes blocks, a
comment ends it, and two kinds of text (the body of a prompt, a block scalar) are whole lines that are
copied, not read. Between brackets lines do not matter.

    statement lines   _INDENT* / _DEDENT*, tokens, _NEWLINE
    "prompt NAME:"    WORD WORD _COLON PROMPT_BODY, the body being the deeper lines below
    "... : |"         the last token of the line is a STRING, the deeper lines below
    ` ... `           a STRING over any number of lines

A token is a word until the parser says that it would take a keyword there; see `reader`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from gateway.workflow.language.source import LIMITS, Source, read_error
from gateway.workflow.model import SourcePos


@dataclass(frozen=True, slots=True)
class Token:
    """One token: its type in the grammar, its text as written, and for strings what the text stands for.

    ``content`` is where a string's text begins, inside its quotes.
    """

    type: str
    text: str
    position: SourcePos
    value: str = ""
    content: SourcePos | None = None


_TOKEN = re.compile(
    r"""
      (?P<blank>[ \t]+)
    | (?P<comment>\#.*)
    | (?P<arrow>->)
    | (?P<range>\d+(?:\.\d+)?[ ]*(?:\.\.|-)[ ]*\d+(?:\.\d+)?(?![\w.]))
    | (?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.]))
    | (?P<listtype>string\[\])
    | (?P<bare>[A-Za-z_][A-Za-z0-9_]*(?:-[A-Za-z0-9_]+)*(?:\.[A-Za-z0-9_]+(?:-[A-Za-z0-9_]+)*)*(?:\.\*)?)
    | (?P<string>"(?:[^"\\]|\\.)*")
    | (?P<backtick>`)
    | (?P<bar>\|)
    | (?P<mark>[][{}(),:=])
    """,
    re.VERBOSE,
)
_MARKS = {
    "[": "LBRACKET",
    "]": "_RBRACKET",
    "{": "LBRACE",
    "}": "_RBRACE",
    "(": "_LPAR",
    ")": "_RPAR",
    ",": "_COMMA",
    ":": "_COLON",
    "=": "_EQUALS",
}
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_PROMPT = re.compile(r"[ ]*(prompt)[ \t]+([A-Za-z_][A-Za-z0-9_]*)[ \t]*(:)[ \t]*(?:#.*)?\Z")
_INDENT = re.compile(r"[ ]*")
_NOT_BARE = re.compile(r"[^\s,\]}#]*")
_ESCAPE = re.compile(r"\\(.)")
_STRICT = {'"': '"', "\\": "\\", "n": "\n", "t": "\t", "r": "\r", "0": "\0"}


class Lexer:
    """Iterates over the tokens of a source; `brackets` holds the opening brackets that are still open."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.line = 0
        """Index of the line being read, from 0."""
        self.column = 0
        self.indents = [0]
        self.brackets: list[Token] = []
        self.after_colon = False

    def __iter__(self) -> Iterator[Token]:
        lines = self.source.lines
        while self.line < len(lines):
            text = lines[self.line]
            self.column = self._indentation(text)
            if self.column == len(text) or text[self.column] == "#":
                self.line += 1
                continue
            if not self.brackets:
                yield from self._indent(self.column)
            prompt = None if self.brackets else _PROMPT.match(text)
            if prompt is not None:
                yield from self._prompt(prompt)
                continue
            yield from self._line()
            if not self.brackets:
                yield self._token("_NEWLINE", "", len(lines[self.line]))
            self.line += 1
        yield from self._end()

    # -- Places ------------------------------------------------------------------------------------

    def _token(self, kind: str, text: str, column: int) -> Token:
        return Token(kind, text, self.source.position(self.line + 1, column + 1))

    def _error(self, column: int, message: str, hint: str = "") -> Exception:
        return read_error(self.source, self.line + 1, column + 1, message, hint)

    # -- Lines -------------------------------------------------------------------------------------

    def _indentation(self, text: str) -> int:
        """Columns of indentation; a line of blanks is as good as an empty one."""
        match = _INDENT.match(text)
        assert match is not None
        width = match.end()
        if width < len(text) and text[width] == "\t":
            if not text.strip():
                return len(text)
            raise self._error(width, "a tab in the indentation", "indent with spaces")
        return width

    def _indent(self, width: int) -> Iterator[Token]:
        if width > self.indents[-1]:
            if len(self.indents) > LIMITS.max_indents:
                raise self._error(width, f"more than {LIMITS.max_indents} levels of indentation")
            self.indents.append(width)
            yield self._token("_INDENT", "", width)
        if width not in self.indents:
            known = ", ".join(map(str, self.indents))
            raise self._error(width, f"an indentation of {width} matches no line above", f"indent by one of: {known}")
        while width < self.indents[-1]:
            self.indents.pop()
            yield self._token("_DEDENT", "", width)

    def _end(self) -> Iterator[Token]:
        self.line = len(self.source.lines) - 1
        column = len(self.source.lines[-1])
        if self.brackets:
            yield self._token("$END", "", column)
            return
        while self.indents.pop() > 0:
            yield self._token("_DEDENT", "", column)
        yield self._token("$END", "", column)

    def _line(self) -> Iterator[Token]:
        """The tokens from `column` to the end of the line, or of a text that began on it."""
        self.after_colon = False
        while self.column < len(text := self.source.lines[self.line]):
            match = _TOKEN.match(text, self.column)
            if match is None:
                raise self._unreadable(text)
            kind = match.lastgroup
            if kind == "comment":
                return
            start, self.column = self.column, match.end()
            if kind == "blank":
                continue
            if kind == "bar":
                yield self._block_scalar(start)
                return
            yield self._raw_string(start) if kind == "backtick" else self._word(kind, match.group(), start)

    def _word(self, kind: str | None, text: str, start: int) -> Token:
        self.after_colon = text == ":"
        match kind:
            case "string":
                return self._string(text, start)
            case "mark":
                return self._mark(text, start)
            case "bare":
                return self._token("WORD" if _IDENTIFIER.match(text) else "BARE", text, start)
            case "number":
                if len(text) > LIMITS.max_number_chars:
                    raise self._error(start, f"a number of more than {LIMITS.max_number_chars} digits")
                if math.isinf(float(text)):
                    raise self._error(start, "this number is too large")
                return self._token("NUMBER", text, start)
            case _:
                return self._token({"arrow": "_ARROW", "range": "RANGE"}.get(kind or "", "LIST_TYPE"), text, start)

    def _mark(self, text: str, start: int) -> Token:
        token = self._token(_MARKS[text], text, start)
        if text in "[{":
            if len(self.brackets) == LIMITS.max_brackets:
                raise self._error(start, f"more than {LIMITS.max_brackets} nested brackets")
            self.brackets.append(token)
        elif text in "]}" and self.brackets:
            self.brackets.pop()
        return token

    def _unreadable(self, text: str) -> Exception:
        char = text[self.column]
        if char == '"':
            return self._error(
                self.column,
                "this string has no closing quote on its line",
                'close it with ", or use `...` or a block after | for several lines',
            )
        if char == "'":
            return self._error(self.column, "strings are written in double quotes", 'write "..."')
        match = _NOT_BARE.match(text, self.column)
        assert match is not None
        word = match.group()[:40] or char
        return self._error(
            self.column,
            f"{word!r} is neither a name, a number nor a string",
            f'names have letters, digits and _; quote other values: "{word}"',
        )

    # -- Strings -----------------------------------------------------------------------------------

    def _string(self, text: str, start: int) -> Token:
        body = text[1:-1]
        if self.source.strict_escapes:
            body = _ESCAPE.sub(lambda match: self._escape(match, start), body)
        position = self.source.position(self.line + 1, start + 1)
        content = self.source.position(self.line + 1, start + 2)
        return Token("STRING", text, position, body, content)

    def _escape(self, match: re.Match[str], start: int) -> str:
        value = _STRICT.get(match[1])
        if value is None:
            raise self._error(
                start + 1 + match.start(),
                f"{match.group()} is not an escape",
                r"strict escapes are \" \\ \n \t \r \0; write \\ for a backslash",
            )
        return value

    def _raw_string(self, start: int) -> Token:
        lines = self.source.lines
        position = self.source.position(self.line + 1, start + 1)
        content = self.source.position(self.line + 1, start + 2)
        pieces: list[str] = []
        line, column = self.line, start + 1
        while (end := lines[line].find("`", column)) < 0:
            pieces.append(lines[line][column:])
            line, column = line + 1, 0
            if line == len(lines):
                raise self._error(start, "this raw string has no closing `", "close it with `")
        pieces.append(lines[line][column:end])
        self.line, self.column = line, end + 1
        value = "\n".join(pieces)
        return Token("STRING", f"`{value}`", position, value, content)

    def _block_scalar(self, start: int) -> Token:
        """``|`` after a colon: the deeper lines below, without the first one's indentation."""
        line = self.source.lines[self.line]
        rest = line[start + 1 :].strip()
        if not self.after_colon or (rest and not rest.startswith("#")):
            raise self._error(start, "a | stands after a colon, at the end of its line", 'quote it: "|"')
        position = self.source.position(self.line + 1, start + 1)
        parent = self._indentation(line)
        value, content = self._lines_below(parent)
        if value:
            value += "\n"
        return Token("STRING", "|", position, value, content or position)

    def _lines_below(self, parent: int) -> tuple[str, SourcePos | None]:
        """The lines below that are indented more than ``parent``, as text, and where the text begins.

        They end at the first line that is indented less than their first; blank lines in between stay, blank
        lines after the last are dropped. Leaves `line` at the last line it took.
        """
        lines = self.source.lines
        first, taken, width = self.line + 1, self.line, 0
        while first < len(lines) and not lines[first].strip():
            first += 1
        for number in range(first, len(lines)):
            text = lines[number]
            if not text.strip():
                continue
            indent = len(text) - len(text.lstrip(" "))
            if number == first:
                width = indent
            if indent < width or width <= parent:
                self._refuse(number, text, indent, parent, width)
                break
            taken = number
        if taken < first:
            return "", None
        begin = self.line + 1
        self.line = taken
        self.column = len(lines[taken])
        body = "\n".join(text[width:] if text.strip() else "" for text in lines[begin : taken + 1])
        return body, self.source.position(begin + 1, width + 1, width)

    def _refuse(self, number: int, text: str, indent: int, parent: int, width: int) -> None:
        """The line that ends a text must not look like a part of it."""
        problem = None
        if text[indent] == "\t":
            problem = "a tab in the indentation", "indent with spaces"
        elif parent < indent < width and text[indent] != "#":
            problem = "this line is indented less than the text above it", f"indent the text by {width}"
        if problem is not None:
            self.line = number
            raise self._error(indent, *problem)

    def _prompt(self, match: re.Match[str]) -> Iterator[Token]:
        yield self._token("WORD", match[1], match.start(1))
        yield self._token("WORD", match[2], match.start(2))
        yield self._token("_COLON", ":", match.start(3))
        header = self.source.position(self.line + 1, match.start(2) + 1)
        while self.line + 1 < len(self.source.lines) and not self.source.lines[self.line + 1].strip():
            self.line += 1  # blank lines before the text are not part of it
        value, content = self._lines_below(self.indents[-1])
        yield Token("PROMPT_BODY", "", header, value, content or header)
        self.line += 1
