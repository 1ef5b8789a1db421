"""The text of a file, made uniform: UTF-8 without a byte-order mark, lines that end in a bare newline."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gateway.workflow.diagnostics import Findings, FlowError
from gateway.workflow.model import SourcePos


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageLimits:
    """What a workflow file may hold."""

    max_file_bytes: int = 8 * 1024 * 1024
    max_indents: int = 40
    """Levels of indentation."""
    max_brackets: int = 60
    """Nested brackets of lists and objects."""
    max_number_chars: int = 40


LIMITS = LanguageLimits()

# Besides the tab and the newline no control character has a use in a workflow file, and most hide something.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_STRICT_ESCAPES = re.compile(r"#{1,2}[ \t]*strict-escape:[ \t]*on[ \t]*\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The lines of one file; ``strict_escapes`` if its leading comments ask for them."""

    file: str
    lines: tuple[str, ...]
    strict_escapes: bool

    def position(self, line: int, column: int, indent: int = 0) -> SourcePos:
        """A place in this file."""
        return SourcePos(file=self.file, line=line, column=column, indent=indent)

    def line_at(self, line: int) -> str:
        """Line ``line``, counted from 1; empty beyond the end."""
        return self.lines[line - 1] if line <= len(self.lines) else ""


def read_error(source: Source, line: int, column: int, message: str, hint: str = "") -> FlowError:
    """The text cannot be read beyond this place: a `FlowError` with one E001."""
    findings = Findings()
    findings.add("E001", source.position(line, column), message, hint)
    return FlowError(findings.with_lines(source.line_at))


def read_source(content: bytes | str, file: str) -> Source:
    """The lines of ``content``, the bytes (UTF-8) or the text of ``file``.

    Raises `FlowError` for bytes that are not UTF-8, control characters, and a file beyond `LIMITS`.
    """
    if len(content) > LIMITS.max_file_bytes:
        empty = Source(file=file, lines=(), strict_escapes=False)
        raise read_error(empty, 1, 1, f"the file is longer than {LIMITS.max_file_bytes} bytes")
    text = content if isinstance(content, str) else content.decode("utf-8", errors="surrogateescape")
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    lines = tuple(text.split("\n"))
    source = Source(file=file, lines=lines, strict_escapes=_wants_strict_escapes(lines))
    _refuse_characters(source)
    return source


def _refuse_characters(source: Source) -> None:
    for number, line in enumerate(source.lines, 1):
        if line.isprintable():
            continue
        control = _CONTROL.search(line)
        if control is not None:
            message = f"a control character (U+{ord(control.group()):04X})"
            raise read_error(source, number, control.start() + 1, message, "remove it")
        for column, char in enumerate(line, 1):
            if "\ud800" <= char <= "\udfff":
                raise read_error(source, number, column, "this is not UTF-8", "save the file as UTF-8")


def _wants_strict_escapes(lines: tuple[str, ...]) -> bool:
    for line in lines:
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            return False
        if _STRICT_ESCAPES.match(stripped):
            return True
    return False
