"""The syntax tree: what `reader` makes of the tokens, and `build` makes the model of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from gateway.workflow.language.lexer import Token
from gateway.workflow.model import SourcePos


@dataclass(frozen=True, slots=True)
class Scalar:
    """A word, a dotted or hyphenated word, a string, a number, or ``string[]``."""

    token: Token

    @property
    def position(self) -> SourcePos:
        """Where it begins, its quote included."""
        return self.token.position

    @property
    def content(self) -> SourcePos:
        """Where its text begins, inside its quotes."""
        return self.token.content or self.token.position

    @property
    def text(self) -> str:
        """What it stands for: the value of a string, everything else as written."""
        return self.token.value if self.token.type == "STRING" else self.token.text


@dataclass(frozen=True, slots=True)
class ListSyntax:
    """``[a, b]``."""

    items: tuple[ValueSyntax, ...]
    position: SourcePos


@dataclass(frozen=True, slots=True)
class ObjectSyntax:
    """``{key: value}``."""

    pairs: tuple[tuple[Token, ValueSyntax], ...]
    position: SourcePos


@dataclass(frozen=True, slots=True)
class TypedSyntax:
    """``type [enum: "a"] = default``, at least one of the two."""

    type: Scalar
    enum: tuple[Token, ...]
    default: ValueSyntax | None
    position: SourcePos


ValueSyntax: TypeAlias = Scalar | ListSyntax | ObjectSyntax | TypedSyntax


@dataclass(frozen=True, slots=True)
class Entry:
    """``key: value``, ``key:`` or ``keyword name:``, and the deeper lines below it, if there are any."""

    key: Token
    name: Token | None = None
    value: ValueSyntax | None = None
    body: tuple[Statement, ...] | None = None

    @property
    def position(self) -> SourcePos:
        """Where the key stands."""
        return self.key.position


@dataclass(frozen=True, slots=True)
class PromptSyntax:
    """``prompt NAME:`` and its text."""

    keyword: Token
    name: Token
    body: Token

    @property
    def position(self) -> SourcePos:
        """Where the keyword stands."""
        return self.keyword.position


@dataclass(frozen=True, slots=True)
class WhenSyntax:
    """``when [not] field`` or ``when "expression"``."""

    keyword: Token
    negated: bool
    operand: Token


@dataclass(frozen=True, slots=True)
class LoopSyntax:
    """``as NAME(limit)``."""

    keyword: Token
    name: Token
    limit: Token


@dataclass(frozen=True, slots=True)
class MappingSyntax:
    """``with { key: value }``."""

    keyword: Token
    pairs: tuple[tuple[Token, ValueSyntax], ...]


@dataclass(frozen=True, slots=True)
class EdgeSyntax:
    """``source -> target`` and its clauses, in the order they are written."""

    source: Token
    target: Token
    clauses: tuple[WhenSyntax | LoopSyntax | MappingSyntax, ...]

    @property
    def position(self) -> SourcePos:
        """Where the source's name stands."""
        return self.source.position


Statement: TypeAlias = Entry | PromptSyntax | EdgeSyntax
