"""The front door: from the content of a file to a checked `Flow`, or a `FlowError` that says what to write.

The grammar is Lark's, LALR(1). The parser is driven token by token, because the lexer needs to know what
the parser would take: a word is a keyword only where the grammar accepts that keyword, and a name
everywhere else.

Lark is imported on first use: it costs more than everything else that the command line loads.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from gateway.workflow.check import check
from gateway.workflow.diagnostics import Findings, FlowError, TooManyFindingsError
from gateway.workflow.language.build import build_flow
from gateway.workflow.language.lexer import Lexer, Token
from gateway.workflow.language.source import Source, read_error, read_source
from gateway.workflow.language.syntax import (
    EdgeSyntax,
    Entry,
    ListSyntax,
    LoopSyntax,
    MappingSyntax,
    ObjectSyntax,
    PromptSyntax,
    Scalar,
    Statement,
    TypedSyntax,
    WhenSyntax,
)
from gateway.workflow.model import Diagnostic, Flow, Severity

if TYPE_CHECKING:
    from lark import Lark

_KEYWORDS = {"when": "WHEN", "not": "NOT", "as": "AS", "with": "WITH", "enum": "_ENUM"}

# Plain words for what the grammar accepts, in the order in which a message lists them.
_WORDS = {
    "WORD": "a name",
    "STRING": "a string",
    "NUMBER": "a number",
    "LBRACKET": "'['",
    "LBRACE": "'{'",
    "_COLON": "':'",
    "_EQUALS": "'='",
    "_ARROW": "'->'",
    "NOT": "'not'",
    "WHEN": "'when'",
    "AS": "'as'",
    "WITH": "'with'",
    "_ENUM": "'enum'",
    "_COMMA": "','",
    "_RBRACKET": "']'",
    "_RBRACE": "'}'",
    "_LPAR": "'('",
    "_RPAR": "')'",
    "_INDENT": "indented lines",
    "_NEWLINE": "the end of the line",
}


def parse_flow(content: bytes | str, *, file: str) -> Flow:
    """Parse and check a workflow file.

    ``content`` is the file's bytes (UTF-8) or text, ``file`` its name for positions and messages. Returns a
    flow without errors; its ``warnings`` are to be shown. Raises `FlowError` for everything else.
    """
    flow, diagnostics = read_flow(content, file=file)
    if flow is None or any(found.severity is Severity.ERROR for found in diagnostics):
        raise FlowError(diagnostics)
    return replace(flow, warnings=diagnostics)


def read_flow(content: bytes | str, *, file: str) -> tuple[Flow | None, tuple[Diagnostic, ...]]:
    """Parse and check a workflow file, and tell everything that was found.

    Returns the flow as far as it could be read (None without a workflow) and the diagnostics, in file order;
    after a hundred errors it looks no further. Raises `FlowError` only where the text itself cannot be read, and
    nothing behind that place is known.
    """
    source = read_source(content, file)
    statements = _parse(source)
    findings = Findings()
    flow = None
    with suppress(TooManyFindingsError):
        flow = build_flow(source, statements, findings)
        if flow is not None:
            check(flow, findings)
    return flow, findings.with_lines(source.line_at)


def _parse(source: Source) -> tuple[Statement, ...]:
    from lark.exceptions import UnexpectedToken

    lexer = Lexer(source)
    driver: Any = _parser().parse_interactive()
    state = driver.parser_state
    table = state.parse_conf.parse_table.states
    tokens = iter(lexer)
    while True:
        token = next(tokens)
        if token.type == "WORD" and token.text in _KEYWORDS and _KEYWORDS[token.text] in table[state.position]:
            token = replace(token, type=_KEYWORDS[token.text])
        try:
            result = state.feed_token(token, token.type == "$END")
        except UnexpectedToken:
            raise _unexpected(source, token, driver.accepts(), lexer) from None
        if token.type == "$END":
            statements: tuple[Statement, ...] = result
            return statements


def _unexpected(source: Source, token: Token, accepted: set[str], lexer: Lexer) -> FlowError:
    wanted = [words for name, words in _WORDS.items() if name in accepted]
    if "RANGE" in accepted and not lexer.brackets:  # the start of a line
        wanted = ["a declaration" if "$END" in accepted else "a name or an edge"]
    if "_NEWLINE" in accepted and "_EQUALS" in accepted:  # behind a value: only a type may go on
        wanted = ["the end of the line"]
    expected = " or ".join(filter(None, [", ".join(wanted[:-1]), wanted[-1]])) if wanted else "nothing more"
    hint = ""
    match token.type:
        case "_INDENT":
            found, hint = "a deeper line", "only the lines of a block are indented: is a ':' missing above?"
        case "$END":
            found = "the end of the file"
        case "_NEWLINE":
            found = "the end of the line"
        case _:
            found = repr(token.text if len(token.text) <= 40 else token.text[:40] + "...")
    if lexer.brackets:
        opened = lexer.brackets[-1]
        hint = f"the {opened.text!r} of line {opened.position.line} is still open"
    elif token.type == "BARE" and "WORD" in accepted:
        hint = "a name has letters, digits and _"
    message = f"expected {expected}, found {found}"
    return read_error(source, token.position.line, token.position.column, message, hint)


@cache
def _parser() -> Lark:
    from lark import Lark

    grammar = files("gateway.workflow.language").joinpath("grammar.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", lexer="basic", transformer=_Tree(), maybe_placeholders=False)


class _Tree:
    """What each rule of the grammar becomes; called by the parser whenever a rule is complete."""

    def start(self, children: list[Any]) -> tuple[Statement, ...]:
        return tuple(children)

    body = start

    def entry(self, children: list[Any]) -> Entry:
        key, value, *body = children
        return Entry(key, None, value, *body)

    def block(self, children: list[Any]) -> Entry:
        key, *body = children
        return Entry(key, None, None, *body)

    def header(self, children: list[Any]) -> Entry:
        key, name, *body = children
        return Entry(key, name, None, *body)

    def prompt(self, children: list[Any]) -> PromptSyntax:
        return PromptSyntax(*children)

    def value(self, children: list[Any]) -> Any:
        return children[0]

    def scalar(self, children: list[Any]) -> Scalar:
        return Scalar(children[0])

    def with_default(self, children: list[Any]) -> TypedSyntax:
        kind, default = children
        return TypedSyntax(kind, (), default, kind.position)

    def with_enum(self, children: list[Any]) -> TypedSyntax:
        kind, enum = children
        return TypedSyntax(kind, enum, None, kind.position)

    def with_enum_and_default(self, children: list[Any]) -> TypedSyntax:
        kind, enum, default = children
        return TypedSyntax(kind, enum, default, kind.position)

    def enum(self, children: list[Any]) -> tuple[Token, ...]:
        return tuple(children[1:])

    def sequence(self, children: list[Any]) -> ListSyntax:
        opening, *items = children
        return ListSyntax(tuple(items), opening.position)

    def record(self, children: list[Any]) -> ObjectSyntax:
        opening, *pairs = children
        return ObjectSyntax(tuple(pairs), opening.position)

    def pair(self, children: list[Any]) -> tuple[Any, ...]:
        return tuple(children)

    def when_field(self, children: list[Any]) -> WhenSyntax:
        return WhenSyntax(children[0], len(children) == 3, children[-1])

    def when_expression(self, children: list[Any]) -> WhenSyntax:
        return WhenSyntax(children[0], False, children[1])

    def loop(self, children: list[Any]) -> LoopSyntax:
        return LoopSyntax(*children)

    def mapping(self, children: list[Any]) -> MappingSyntax:
        keyword, _, *pairs = children
        return MappingSyntax(keyword, tuple(pairs))

    def edge(self, children: list[Any]) -> EdgeSyntax:
        source, target, *clauses = children
        return EdgeSyntax(source, target, tuple(clauses))
