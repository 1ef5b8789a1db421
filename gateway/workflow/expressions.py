"""Expressions of ``when "..."`` and ``compute``, from text to a tree (`evaluation` gives it a value).

A small total language: no names but the namespaces, no way to loop, no side effect. Whatever the text, the
outcome is an `Expression` or an `ExpressionError` that knows the character it is about.

    or      := and ("||" and)*                     short circuit, booleans only
    and     := compare ("&&" compare)*
    compare := sum [("==" | "!=" | "<" | "<=" | ">" | ">=") sum]      does not chain: a < b < c is an error
    sum     := product (("+" | "-") product)*      numbers; "+" also joins two strings
    product := unary (("*" | "/") unary)*
    unary   := ("!" | "-") unary | primary
    primary := number | string | true | false | null | path | name "(" [or ("," or)*] ")" | "(" or ")"
    path    := namespace ("." name)*

Repetition becomes one flat node, not a tower of pairs, so the depth of the tree is the depth of the nesting
that the author wrote, which is bounded. That bound is what makes the two recursive walks (parse, evaluate)
safe.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TypeAlias

NAMESPACES = ("vars", "input", "outputs", "artifacts", "loop", "run")
"""The names a path may begin with."""

FUNCTIONS: dict[str, tuple[int, int | None, str]] = {
    "length": (1, 1, "length(value)"),
    "concat": (1, None, "concat(a, b, ...)"),
    "unique": (1, 1, "unique(list)"),
    "contains": (2, 2, "contains(whole, part)"),
    "join": (2, 2, "join(list, separator)"),
    "if": (3, 3, "if(condition, then, otherwise)"),
}
"""Each function: the least and the most arguments, and how it is written."""

CONSTANTS: dict[str, bool | None] = {"true": True, "false": False, "null": None}
COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">="})


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpressionLimits:
    """What an expression may cost."""

    max_text_chars: int = 16_384
    max_depth: int = 48
    """Nested parentheses, calls and unary operators."""
    max_value_items: int = 1_000_000
    """Elements of a list, or characters of a string, that an operation may build."""
    max_integer_bits: int = 4_096


LIMITS = ExpressionLimits()


class ExpressionError(ValueError):
    """An expression that cannot be parsed or evaluated; ``offset`` is the character it is about, from 0."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset


# -- The tree --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Literal:
    """A number, a string, ``true``, ``false`` or ``null``."""

    value: bool | int | float | str | None
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """``namespace.name.name``."""

    namespace: str
    names: tuple[str, ...]
    offset: int

    def __str__(self) -> str:
        return ".".join((self.namespace, *self.names))


@dataclass(frozen=True, slots=True, kw_only=True)
class Unary:
    """``!operand`` or ``-operand``."""

    operator: str
    operand: Term
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Operands of one level of precedence, with the operators between them (one fewer), left to right."""

    operands: tuple[Term, ...]
    operators: tuple[tuple[str, int], ...]
    """Each operator with its offset."""
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """``name(arguments)``."""

    name: str
    arguments: tuple[Term, ...]
    offset: int


Term: TypeAlias = Literal | Path | Unary | Chain | Call


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """A parsed expression: its text, its tree, and every path in it (for checks before the run)."""

    text: str
    root: Term
    paths: tuple[Path, ...]


# -- Text to tokens --------------------------------------------------------------------------------

# A string may be delimited by \" as well: inside a "..." of a workflow file without strict escapes, a
# backslash keeps itself and the next character as written, so that is how a quoted string arrives here.
_TOKEN = re.compile(
    r"""
      (?P<space>[ \t\r\n]+)
    | (?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<string>"(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' | \\"(?:[^"\\]|\\[^"])*\\")
    | (?P<operator>\|\||&&|==|!=|<=|>=|[-<>!+*/(),.])
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}
_WRONG_OPERATORS = {
    "=": "==",
    "&": "&&",
    "|": "||",
    "and": "&&",
    "or": "||",
    "not": "!",
}


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    offset: int


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    offset = 0
    while offset < len(text):
        match = _TOKEN.match(text, offset)
        if match is None:
            raise ExpressionError(_unreadable(text, offset), offset)
        kind = match.lastgroup
        assert kind is not None
        if kind != "space":
            found.append(_Token(kind, match.group(), offset))
        offset = match.end()
    found.append(_Token("end", "", len(text)))
    return found


def _unreadable(text: str, offset: int) -> str:
    char = text[offset]
    if char in "\"'\\":
        return "this string has no end"
    right = _WRONG_OPERATORS.get(char)
    if right is not None:
        return f"{char!r} is not an operator; write {right!r}"
    return f"{char!r} has no meaning in an expression"


def _string_value(text: str) -> str:
    body = text[2:-2] if text.startswith("\\") else text[1:-1]
    return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), body, flags=re.DOTALL)


# -- Tokens to a tree ------------------------------------------------------------------------------

_LEVELS: tuple[frozenset[str], ...] = (
    frozenset({"||"}),
    frozenset({"&&"}),
    COMPARISONS,
    frozenset({"+", "-"}),
    frozenset({"*", "/"}),
)


class _Parser:
    def __init__(self, text: str) -> None:
        self.tokens = _tokens(text)
        self.index = 0
        self.depth = 0
        self.paths: list[Path] = []

    @property
    def current(self) -> _Token:
        return self.tokens[self.index]

    def take(self) -> _Token:
        token = self.tokens[self.index]
        self.index += 1
        return token

    def at(self, *operators: str) -> bool:
        return self.current.kind == "operator" and self.current.text in operators

    def expect(self, operator: str, wanted: str) -> None:
        if not self.at(operator):
            raise self.unexpected(wanted)
        self.index += 1

    def unexpected(self, wanted: str) -> ExpressionError:
        token = self.current
        found = "the end" if token.kind == "end" else repr(token.text)
        right = _WRONG_OPERATORS.get(token.text)
        hint = f"; write {right!r}" if right else ""
        return ExpressionError(f"expected {wanted}, found {found}{hint}", token.offset)

    def whole(self) -> Term:
        term = self.level(0)
        if self.current.kind != "end":
            raise self.unexpected("an operator or the end")
        return term

    def nested(self, level: int) -> Term:
        """One level deeper; the bound on ``depth`` bounds the recursion of every walk over the tree."""
        self.depth += 1
        if self.depth > LIMITS.max_depth:
            raise ExpressionError(f"nested more than {LIMITS.max_depth} deep", self.current.offset)
        term = self.level(level)
        self.depth -= 1
        return term

    def level(self, level: int) -> Term:
        if level == len(_LEVELS):
            return self.unary()
        offset = self.current.offset
        operands = [self.level(level + 1)]
        operators: list[tuple[str, int]] = []
        while self.at(*_LEVELS[level]):
            if operators and self.current.text in COMPARISONS:
                raise ExpressionError("comparisons do not chain; join two of them with '&&'", self.current.offset)
            operator = self.take()
            operators.append((operator.text, operator.offset))
            operands.append(self.level(level + 1))
        if not operators:
            return operands[0]
        return Chain(operands=tuple(operands), operators=tuple(operators), offset=offset)

    def unary(self) -> Term:
        if self.at("!", "-"):
            operator = self.take()
            operand = self.nested(len(_LEVELS))
            return Unary(operator=operator.text, operand=operand, offset=operator.offset)
        return self.primary()

    def primary(self) -> Term:
        token = self.current
        if token.kind == "number":
            self.index += 1
            return Literal(value=_number(token), offset=token.offset)
        if token.kind == "string":
            self.index += 1
            return Literal(value=_string_value(token.text), offset=token.offset)
        if token.kind == "name" and token.text not in _WRONG_OPERATORS:
            self.index += 1
            return self.named(token)
        if self.at("("):
            self.index += 1
            term = self.nested(0)
            self.expect(")", "')'")
            return term
        raise self.unexpected("a value")

    def named(self, token: _Token) -> Term:
        if self.at("("):
            return self.call(token)
        if token.text in CONSTANTS:
            return Literal(value=CONSTANTS[token.text], offset=token.offset)
        if token.text not in NAMESPACES:
            raise ExpressionError(
                f"{token.text!r} is not one of {', '.join(NAMESPACES)}; "
                f"write 'input.{token.text}' for a field of the input",
                token.offset,
            )
        names: list[str] = []
        while self.at("."):
            self.index += 1
            if self.current.kind != "name":
                raise self.unexpected("a name after '.'")
            names.append(self.take().text)
        path = Path(namespace=token.text, names=tuple(names), offset=token.offset)
        self.paths.append(path)
        return path

    def call(self, name: _Token) -> Term:
        if name.text not in FUNCTIONS:
            raise ExpressionError(f"there is no function {name.text!r}; there are {', '.join(FUNCTIONS)}", name.offset)
        self.index += 1
        arguments: list[Term] = []
        if not self.at(")"):
            arguments.append(self.nested(0))
            while self.at(","):
                self.index += 1
                arguments.append(self.nested(0))
        self.expect(")", "',' or ')'")
        least, most, usage = FUNCTIONS[name.text]
        if len(arguments) < least or (most is not None and len(arguments) > most):
            raise ExpressionError(f"write {usage}", name.offset)
        return Call(name=name.text, arguments=tuple(arguments), offset=name.offset)


def _number(token: _Token) -> int | float:
    if token.text.isdigit():
        if len(token.text) > LIMITS.max_integer_bits // 4:
            raise ExpressionError("this number is too large", token.offset)
        return int(token.text)
    value = float(token.text)
    if math.isinf(value):
        raise ExpressionError("this number is too large", token.offset)
    return value


def parse_expression(text: str) -> Expression:
    """Parse ``text``.

    Returns the expression with the paths it reads. Raises `ExpressionError` for anything else than an
    expression, and for one longer or deeper than `LIMITS` allows.
    """
    if len(text) > LIMITS.max_text_chars:
        raise ExpressionError(f"longer than {LIMITS.max_text_chars} characters", LIMITS.max_text_chars)
    parser = _Parser(text)
    root = parser.whole()
    return Expression(text=text, root=root, paths=tuple(parser.paths))
