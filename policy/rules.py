"""The values of a policy: rules and where they come from, the policy they make, and the answers it gives.

A plain rule allows and a `!rule` denies, in every mode; the mode is what hosts get that no rule matches; of several
matching rules the last one wins. So a policy is a mode and one ordered tuple of rules: the preset's, then the user's.
"""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from policy.address import AddressClass
from policy.host import Authority, IPAddress, shown
from policy.pattern import Pattern, PatternError, parse_pattern
from policy.presets import PRESETS

Inherit = Literal["merge", "append", "replace"]

_PRESET_ORIGIN: Final = "preset:"


class Mode(StrEnum):
    """What a host gets that no rule matches."""

    ALLOWLIST = "allowlist"
    """Denied."""
    DENYLIST = "denylist"
    """Allowed; an address literal only if it is public."""
    OPEN = "open"
    """Allowed, whatever it is."""


class Reason(StrEnum):
    """Why a host or an address was allowed or denied; the closed list of codes that events and errors carry."""

    ALLOWED_BY_RULE = "allowed_by_rule"
    ALLOWED_BY_MODE = "allowed_by_mode"
    INVALID_HOST = "invalid_host"
    DENIED_BY_RULE = "denied_by_rule"
    NOT_IN_ALLOWLIST = "not_in_allowlist"
    ADDRESS_LITERAL = "address_literal"
    ADDRESS_OWN = "address_own"
    ADDRESS_LOOPBACK = "address_loopback"
    ADDRESS_LINK_LOCAL = "address_link_local"
    ADDRESS_METADATA = "address_metadata"
    ADDRESS_UNSPECIFIED = "address_unspecified"
    ADDRESS_MULTICAST = "address_multicast"
    ADDRESS_RESERVED = "address_reserved"
    ADDRESS_PRIVATE = "address_private"
    ADDRESS_UNIQUE_LOCAL = "address_unique_local"
    ADDRESS_CGNAT = "address_cgnat"
    NO_ADDRESS_LEFT = "no_address_left"

    @property
    def message(self) -> str:
        """A short text for people."""
        return _MESSAGES[self]

    @classmethod
    def of_address(cls, address_class: AddressClass) -> "Reason":
        """Return the reason for refusing an address of a class that is not public.

        Raises `ValueError` for the public class, which nothing is refused for.
        """
        return cls(f"address_{address_class.value}")


_MESSAGES: Final = {
    Reason.ALLOWED_BY_RULE: "a rule allows it",
    Reason.ALLOWED_BY_MODE: "no rule matches, and the mode allows what no rule matches",
    Reason.INVALID_HOST: "not a valid host and port",
    Reason.DENIED_BY_RULE: "a rule denies it",
    Reason.NOT_IN_ALLOWLIST: "no rule allows it",
    Reason.ADDRESS_LITERAL: "an address, which only an IP or CIDR rule allows",
    Reason.ADDRESS_OWN: "an address of the gateway itself",
    Reason.ADDRESS_LOOPBACK: "a loopback address",
    Reason.ADDRESS_LINK_LOCAL: "a link-local address",
    Reason.ADDRESS_METADATA: "an address of a cloud metadata service",
    Reason.ADDRESS_UNSPECIFIED: "the unspecified address",
    Reason.ADDRESS_MULTICAST: "a multicast address",
    Reason.ADDRESS_RESERVED: "a reserved address",
    Reason.ADDRESS_PRIVATE: "a private address, which only an exact host rule or an IP rule allows",
    Reason.ADDRESS_UNIQUE_LOCAL: "a unique local address, which only an exact host rule or an IP rule allows",
    Reason.ADDRESS_CGNAT: "a carrier-grade NAT address, which only an exact host rule or an IP rule allows",
    Reason.NO_ADDRESS_LEFT: "it has no address that policy allows",
}


@dataclass(frozen=True, slots=True)
class RuleSource:
    """Where a rule was written: `origin` ("user", "node", "cli", "preset:NAME"...), its file and line if it has one.

    Prints as `policy.yaml:7`, `preset iterion-default` or `--allow`.
    """

    origin: str
    file: str | None = None
    line: int | None = None

    @property
    def is_preset(self) -> bool:
        """Whether the rule came with a preset, so that it is not the user's own."""
        return self.origin.startswith(_PRESET_ORIGIN)

    def __str__(self) -> str:
        if self.file is not None:
            return self.file if self.line is None else f"{self.file}:{self.line}"
        if self.is_preset:
            return f"preset {self.origin.removeprefix(_PRESET_ORIGIN)}"
        return "--allow" if self.origin == "cli" else self.origin


@dataclass(frozen=True, slots=True)
class RuleText:
    """A rule as it was written, with its `!` if it has one, and where."""

    text: str
    source: RuleSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A parsed rule; `str()` gives its canonical spelling, `text` is what was written."""

    pattern: Pattern
    negated: bool
    source: RuleSource
    text: str

    def __str__(self) -> str:
        return f"!{self.pattern}" if self.negated else str(self.pattern)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A mode and its rules in order, the last matching one wins; `presets` names the presets among them."""

    mode: Mode
    rules: tuple[Rule, ...] = ()
    presets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The answer on a host and port, before its name is resolved.

    `rule` is the rule that fired, None if the mode or the kind of host decided. `authority` is None for an invalid
    host, whose fault is in `detail`. `silent`: denied, and on the silent-deny list, and no rule of the user's names it.
    """

    allowed: bool
    reason: Reason
    rule: Rule | None = None
    authority: Authority | None = None
    silent: bool = False
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedAddress:
    """An address that must not be dialled, why, and the rule that denies it, if one does."""

    address: IPAddress
    reason: Reason
    rule: Rule | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The answer on the addresses of an allowed host: which may be dialled, in the order given, and which may not.

    Without survivors, `reason` is why all of them were dropped if that is one reason, else NO_ADDRESS_LEFT.
    """

    allowed: bool
    reason: Reason
    survivors: tuple[IPAddress, ...] = ()
    dropped: tuple[DroppedAddress, ...] = ()
    rule: Rule | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is wrong with one rule or preset: where, its text, the fault, and what to write instead if that is clear."""

    source: RuleSource | None
    value: str
    detail: str
    suggestion: str | None = None

    def __str__(self) -> str:
        where = f"{self.source}: " if self.source is not None else ""
        cure = f"; write `{self.suggestion}`" if self.suggestion is not None else ""
        return f"{where}`{self.value}`: {self.detail}{cure}"


class PolicyError(ValueError):
    """A policy cannot be built; `problems` has one entry for each bad rule, in order."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: list[Problem] = list(problems)
        super().__init__("\n".join(map(str, self.problems)))


def parse_rule(rule: RuleText) -> Rule:
    """Return the parsed rule.

    Raises `PatternError`, whose suggestion has the `!` of the rule.
    """
    negated = rule.text.startswith("!")
    try:
        pattern = parse_pattern(rule.text[1:] if negated else rule.text)
    except PatternError as error:
        suggestion = f"!{error.suggestion}" if negated and error.suggestion else error.suggestion
        raise PatternError(rule.text, error.detail, suggestion) from error
    return Rule(pattern=pattern, negated=negated, source=rule.source, text=rule.text)


def build_policy(mode: Mode, *, preset: str | None = None, rules: Sequence[RuleText] = ()) -> Policy:
    """Return the policy of a mode, a preset's rules and the given rules after them.

    Raises `PolicyError` with every problem there is, not only the first.
    """
    problems: list[Problem] = []
    parsed = _parse_rules(_preset_rules(preset, problems), problems) + _parse_rules(rules, problems)
    if problems:
        raise PolicyError(problems)
    return Policy(mode=mode, rules=tuple(parsed), presets=() if preset is None else (preset,))


def merge_policy(
    parent: Policy,
    *,
    mode: Mode | None = None,
    preset: str | None = None,
    rules: Sequence[RuleText] = (),
    inherit: Inherit = "merge",
) -> Policy:
    """Return the policy of a node whose network block refines its parent's.

    Args: `mode` and `preset`, None to keep the parent's; a preset replaces the parent's preset. `inherit`: "merge" and
    "append" put the node's rules after the parent's, "replace" drops the parent's rules and preset.

    Raises `PolicyError`.
    """
    own = build_policy(mode or parent.mode, preset=preset, rules=rules)
    if inherit == "replace":
        return own
    own_preset = tuple(rule for rule in own.rules if rule.source.is_preset)
    own_rules = tuple(rule for rule in own.rules if not rule.source.is_preset)
    parent_preset = tuple(rule for rule in parent.rules if rule.source.is_preset)
    parent_rules = tuple(rule for rule in parent.rules if not rule.source.is_preset)
    return Policy(
        mode=own.mode,
        rules=(parent_preset if preset is None else own_preset) + parent_rules + own_rules,
        presets=parent.presets if preset is None else own.presets,
    )


def _parse_rules(rules: Iterable[RuleText], problems: list[Problem]) -> list[Rule]:
    parsed = []
    for rule in rules:
        try:
            parsed.append(parse_rule(rule))
        except PatternError as error:
            problems.append(
                Problem(source=rule.source, value=error.value, detail=error.detail, suggestion=error.suggestion)
            )
    return parsed


def _preset_rules(preset: str | None, problems: list[Problem]) -> list[RuleText]:
    if preset is None:
        return []
    if preset not in PRESETS:
        close = difflib.get_close_matches(preset, PRESETS, n=1)
        detail = f"there is no such preset; there is {', '.join(f'`{name}`' for name in PRESETS)}"
        problems.append(
            Problem(source=None, value=shown(preset), detail=detail, suggestion=close[0] if close else None)
        )
        return []
    source = RuleSource(f"{_PRESET_ORIGIN}{preset}")
    return [RuleText(entry.pattern, source) for entry in PRESETS[preset]]
