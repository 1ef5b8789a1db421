"""Commands and scripts: values enter another language without becoming code.

A value never becomes part of the text that an interpreter parses. It travels in an environment variable
(``ITERION_VALUE_1``, ...), and the text gets an expression that reads it: a parameter expansion in a shell, a
decoded JSON value in Python and JavaScript. A shell does not parse what an expansion yields, so a value that
holds ``'; rm -rf ~ #`` is an argument that looks like that, whatever quotes the author wrote around it.

For the right *text* the expansion must fit the quotes around it, so a small scanner follows the shell's
quoting:

    bare word       "${V}"        one argument, no splitting, no globbing
    "..."           ${V}
    '...'           '"${V}"'      leaves the quotes and comes back
    $'...'          '"${V}"$'
    <<EOF           ${V}          a here-document; <<'EOF' is literal text and takes no value: an error
    $(( ... ))      ${V}          numbers only: bash evaluates the *content* of variables in arithmetic

The scanner is for convenience, not for safety: if it misjudges a construct, the text comes out wrong and
still no value is run. What remains the author's own business is code that is parsed a second time
(``eval``, ``sh -c "..."``, ``python -c "..."``): hand values to such code as arguments.

``{{!reference}}`` is the explicit way out: the value is pasted as it is, and is code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from types import MappingProxyType
from typing import Any

from gateway.workflow.evaluation import text_of
from gateway.workflow.templates import Reference, Template, lookup

VARIABLE_PREFIX = "ITERION_VALUE_"

LANGUAGES = ("sh", "bash", "py", "js")
"""What ``language:`` may say; a ``command`` is ``sh``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLimits:
    """What the kernel takes."""

    max_value_bytes: int = 131_072 - 64
    """One environment string (Linux: MAX_ARG_STRLEN, 32 pages), less its name."""


LIMITS = CommandLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedCommand:
    """A text to run, and the environment variables that it reads."""

    text: str
    environment: Mapping[str, str]


def render_command(template: Template, context: Mapping[str, Any]) -> RenderedCommand:
    """A ``command`` for ``sh -c``, with the environment that carries its values.

    ``${NAME}`` is left to the shell. Raises `TemplateError` for a value that is missing, too large for an
    environment variable, or used where a shell would treat it as code or not at all.
    """
    return render_script(template, context, language="sh")


def render_script(template: Template, context: Mapping[str, Any], *, language: str) -> RenderedCommand:
    """A ``script`` in one of `LANGUAGES`, with the environment that carries its values.

    In ``py`` and ``js`` a reference is an expression: ``value = {{input.items}}``, without quotes. Raises
    `TemplateError` as `render_command` does.
    """
    values = _Values(template, context)
    shell = _ShellScanner() if language in ("sh", "bash") else None
    pieces: list[str] = []
    for part in template.parts:
        match part:
            case Reference() if part.raw:
                piece = values.raw(part)
            case Reference() if shell is not None:
                pieces.append(_shell_expansion(template, shell, values, part))
                continue
            case Reference():
                piece = _EXPRESSIONS[language].format(name=values.as_json(part))
            case _:
                piece = str(part)
        pieces.append(piece)
        if shell is not None:
            shell.feed(piece)
    return RenderedCommand(text="".join(pieces), environment=MappingProxyType(values.environment))


_EXPRESSIONS = {
    "py": '__import__("json").loads(__import__("os").environ["{name}"])',
    "js": "JSON.parse(process.env.{name})",
}


class _Values:
    """Hands out one environment variable per distinct reference."""

    def __init__(self, template: Template, context: Mapping[str, Any]) -> None:
        self.template = template
        self.context = context
        self.environment: dict[str, str] = {}
        self.names: dict[str, str] = {}

    def value(self, reference: Reference) -> Any:
        return lookup(self.template, reference, self.context)

    def raw(self, reference: Reference) -> str:
        text = text_of(self.value(reference))
        self._check(reference, text)
        return text

    def as_text(self, reference: Reference) -> str:
        return self._keep(reference, text_of(self.value(reference)))

    def as_json(self, reference: Reference) -> str:
        return self._keep(reference, json.dumps(self.value(reference), default=dict))

    def _keep(self, reference: Reference, text: str) -> str:
        name = self.names.get(reference.path)
        if name is None:
            self._check(reference, text)
            name = f"{VARIABLE_PREFIX}{len(self.names) + 1}"
            self.names[reference.path] = name
            self.environment[name] = text
        return name

    def _check(self, reference: Reference, text: str) -> None:
        """A process takes neither NUL nor lone surrogates, nor a string beyond the kernel's limit."""
        problem = None
        if "\0" in text:
            problem = "a NUL character, which no process takes"
        elif _SURROGATE.search(text):
            problem = "half of a character (a lone surrogate)"
        elif len(text.encode()) > LIMITS.max_value_bytes:
            problem = f"more than {LIMITS.max_value_bytes} bytes; pass a file instead"
        if problem is not None:
            raise self.template.error(f"{reference}: the value holds {problem}", reference.offset)


_SURROGATE = re.compile("[\ud800-\udfff]")


def _shell_expansion(template: Template, shell: _ShellScanner, values: _Values, part: Reference) -> str:
    if shell.quoting is _Quoting.LITERAL_DOCUMENT:
        raise template.error(
            f"{part}: a here-document whose end word is quoted is literal text; write its end word bare",
            part.offset,
        )
    if shell.quoting is _Quoting.ARITHMETIC:
        value = values.value(part)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise template.error(f"{part}: only a number may stand in $((...))", part.offset)
    expansion = "${" + values.as_text(part) + "}"
    before, after = _AROUND[shell.quoting]
    shell.value()
    return before + expansion + after


class _Quoting(Enum):
    """What surrounds the place where the scanner stands."""

    CODE = auto()
    SUBSTITUTION = auto()
    """``( ... )`` and ``$( ... )``: code, ended by a parenthesis."""
    BACKTICK = auto()
    SINGLE = auto()
    DOUBLE = auto()
    DOLLAR_SINGLE = auto()
    ARITHMETIC = auto()
    COMMENT = auto()
    DOCUMENT = auto()
    LITERAL_DOCUMENT = auto()


_AROUND = {
    _Quoting.CODE: ('"', '"'),
    _Quoting.SUBSTITUTION: ('"', '"'),
    _Quoting.BACKTICK: ('"', '"'),
    _Quoting.SINGLE: ("'\"", "\"'"),
    _Quoting.DOUBLE: ("", ""),
    _Quoting.DOLLAR_SINGLE: ("'\"", "\"$'"),
    _Quoting.ARITHMETIC: ("", ""),
    _Quoting.COMMENT: ("", ""),
    _Quoting.DOCUMENT: ("", ""),
}
_CODE = frozenset({_Quoting.CODE, _Quoting.SUBSTITUTION, _Quoting.BACKTICK})

# POSIX.1-2024 Shell & Utilities, 2.2 (quoting), 2.3 (tokens, comments), 2.7.4 (here-documents).
_DOCUMENT_START = re.compile(r"<<(-?)[ \t]*((?:'[^'\n]*'|\"[^\"\n]*\"|\\.|[A-Za-z0-9_.!%+,/:@^~-])+)")
_LEXEMES = {
    True: re.compile(r"\\.|\$\(\(|\$\(|\$'|['\"`()\n]|<<<|<<-?|#|[^\\$'\"`()\n<#]+|.", re.DOTALL),
    False: re.compile(r"\\.|\$\(\(|\$\(|['\"`()\n]|[^\\$'\"`()\n]+|.", re.DOTALL),
}


class _ShellScanner:
    """Follows a shell text piece by piece and knows the quoting at the point it has reached."""

    def __init__(self) -> None:
        self.stack = [_Quoting.CODE]
        self.pending: list[tuple[str, bool, bool]] = []
        """Here-documents announced on this line: end word, quoted, tabs stripped."""
        self.line = ""
        """The line of the here-document that is being read, as far as it is known."""
        self.word_start = True

    @property
    def quoting(self) -> _Quoting:
        return self.stack[-1]

    def value(self) -> None:
        """A value was put in here: it ends no quote and no here-document."""
        self.word_start = False
        self.line += "$"

    def feed(self, text: str) -> None:
        offset = 0
        while offset < len(text):
            if self.quoting in (_Quoting.DOCUMENT, _Quoting.LITERAL_DOCUMENT):
                offset = self._document(text, offset)
            elif self.quoting is _Quoting.SINGLE:
                offset = self._until(text, offset, "'")
            elif self.quoting is _Quoting.COMMENT:
                offset = self._comment(text, offset)
            else:
                offset = self._lexeme(text, offset)

    def _until(self, text: str, offset: int, end: str) -> int:
        found = text.find(end, offset)
        if found < 0:
            return len(text)
        self.stack.pop()
        return found + 1

    def _comment(self, text: str, offset: int) -> int:
        found = text.find("\n", offset)
        if found < 0:
            return len(text)
        self.stack.pop()
        return found  # the newline belongs to the code: it starts a here-document

    def _document(self, text: str, offset: int) -> int:
        newline = text.find("\n", offset)
        if newline < 0:
            self.line += text[offset:]
            return len(text)
        line = self.line + text[offset:newline]
        self.line = ""
        word, _, tabs = self.pending[0]
        if (line.lstrip("\t") if tabs else line) == word:
            self.stack.pop()
            self.pending.pop(0)
            self._start_document()
        return newline + 1

    def _start_document(self) -> None:
        if self.pending:
            quoted = self.pending[0][1]
            self.stack.append(_Quoting.LITERAL_DOCUMENT if quoted else _Quoting.DOCUMENT)

    def _lexeme(self, text: str, offset: int) -> int:
        code = self.quoting in _CODE
        match = _LEXEMES[code].match(text, offset)
        assert match is not None
        lexeme = match.group()
        if code and lexeme in ("<<", "<<-"):
            return self._announce(text, offset, match.end())
        if code:
            self._in_code(lexeme)
            self.word_start = lexeme[-1] in " \t\n;&|()"
        else:
            self._in_quotes(lexeme)
        return match.end()

    def _announce(self, text: str, offset: int, after: int) -> int:
        match = _DOCUMENT_START.match(text, offset)
        if match is None:
            return after
        word = match[2]
        bare = re.sub(r"['\"\\]", "", word)
        self.pending.append((bare, bare != word, bool(match[1])))
        return match.end()

    def _in_code(self, lexeme: str) -> None:
        match lexeme:
            case "'":
                self.stack.append(_Quoting.SINGLE)
            case '"':
                self.stack.append(_Quoting.DOUBLE)
            case "$'":
                self.stack.append(_Quoting.DOLLAR_SINGLE)
            case "#" if self.word_start:
                self.stack.append(_Quoting.COMMENT)
            case "\n":
                self._start_document()
            case _:
                self._parentheses(lexeme)

    def _parentheses(self, lexeme: str) -> None:
        match lexeme:
            case "$((":
                self.stack += [_Quoting.ARITHMETIC, _Quoting.ARITHMETIC]
            case "$(" | "(":
                inside = self.quoting is _Quoting.ARITHMETIC and lexeme == "("
                self.stack.append(_Quoting.ARITHMETIC if inside else _Quoting.SUBSTITUTION)
            case ")" if self.quoting in (_Quoting.SUBSTITUTION, _Quoting.ARITHMETIC):
                self.stack.pop()
            case "`" if self.quoting is _Quoting.BACKTICK:
                self.stack.pop()
            case "`":
                self.stack.append(_Quoting.BACKTICK)
            case _:
                pass

    def _in_quotes(self, lexeme: str) -> None:
        ends = {_Quoting.DOUBLE: '"', _Quoting.DOLLAR_SINGLE: "'"}
        if lexeme == ends.get(self.quoting):
            self.stack.pop()
        elif self.quoting is _Quoting.ARITHMETIC or (self.quoting is _Quoting.DOUBLE and lexeme in ("$((", "$(", "`")):
            self._parentheses(lexeme)
