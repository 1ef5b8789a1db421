"""One pattern of a rule: parse, match, print. The `!` of a denying rule belongs to the rule, not to the pattern.

    pattern     = target [ ":" ports ]
    target      = name | "*." name | "**." name | "*" | "**" | address | cidr
    ports       = port | port "-" port
    IPv6        = bare without ports (`2001:db8::1`, `2001:db8::/32`), in brackets with them (`[2001:db8::/32]:443`)

Every pattern has one spelling. Text in another one is refused, and the error carries the spelling to write, so that
what is read in a review, matched on the wire and printed in the audit is the same string. International names may be
written in Unicode (`bücher.example`); they are matched and printed as A-labels.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Final

from policy.address import IPNetwork
from policy.host import MAX_PORT, Authority, Host, InvalidHost, parse_host, parse_port, shown
from policy.spelling import candidate

MAX_PATTERN_CHARACTERS: Final = 300
"""Longest pattern that is looked at, in characters: a wildcard, a name of 253 bytes and a port range fit."""

_IPV6_WITH_PORTS: Final = re.compile(r"\[(?P<target>[^\[\]]*)\](?::(?P<ports>.*))?", re.DOTALL)
_MAPPED: Final = IPv6Network("::ffff:0:0/96")


class PatternError(ValueError):
    """Text is no pattern in its canonical spelling.

    Attributes: `value`, the text, shortened and printable; `detail`, what is wrong; `suggestion`, the pattern to write
    instead, or None where there is no single right one.
    """

    def __init__(self, value: str, detail: str, suggestion: str | None = None) -> None:
        # The author of a policy may read Unicode; repr still escapes control and direction characters.
        self.value = repr(value[:MAX_PATTERN_CHARACTERS])[1:-1]
        self.detail = detail
        self.suggestion = suggestion
        super().__init__(f"`{self.value}`: {detail}" + (f"; write `{suggestion}`" if suggestion else ""))


class Kind(StrEnum):
    """What a pattern is compared with."""

    EXACT = "exact"
    """One name."""
    CHILD = "child"
    """`*.name`: exactly one label more."""
    DESCENDANT = "descendant"
    """`**.name`: one or more labels more."""
    ONE_LABEL = "one_label"
    """`*`: names of one label."""
    ANY = "any"
    """`**`: every name; in a denying rule every address literal too."""
    NETWORK = "network"
    """An address or a CIDR range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """A parsed pattern; `str()` gives its canonical spelling.

    `name` is the A-label name of EXACT, CHILD and DESCENDANT, else empty; `network` is set for NETWORK only; `low` and
    `high` bound the ports, both inclusive, 1 to 65535 for every port.
    """

    kind: Kind
    name: str = ""
    network: IPNetwork | None = None
    low: int = 1
    high: int = MAX_PORT

    @property
    def has_ports(self) -> bool:
        """Whether the pattern covers some ports only."""
        return self.low > 1 or self.high < MAX_PORT

    def matches(self, authority: Authority) -> bool:
        """Return whether the pattern covers a host and port; `**` covers names only, as in an allowing rule."""
        return self.low <= authority.port <= self.high and self.matches_host(authority.host)

    def matches_host(self, host: Host) -> bool:
        """Return whether the pattern covers a host on some port."""
        if host.address is not None:
            # Addresses of another IP version are simply not in the network.
            return self.network is not None and host.address in self.network
        name = host.name or ""
        match self.kind:
            case Kind.EXACT:
                return name == self.name
            case Kind.CHILD:
                return name.partition(".")[2] == self.name
            case Kind.DESCENDANT:
                return name.endswith(f".{self.name}")
            case Kind.ONE_LABEL:
                return "." not in name
            case Kind.ANY:
                return True
        return False  # a network covers no names

    def __str__(self) -> str:
        target = self._target()
        if not self.has_ports:
            return target
        ports = str(self.low) if self.low == self.high else f"{self.low}-{self.high}"
        return f"[{target}]:{ports}" if isinstance(self.network, IPv6Network) else f"{target}:{ports}"

    def _target(self) -> str:
        match self.kind:
            case Kind.CHILD:
                return f"*.{self.name}"
            case Kind.DESCENDANT:
                return f"**.{self.name}"
            case Kind.ONE_LABEL:
                return "*"
            case Kind.ANY:
                return "**"
        if self.network is None:
            return self.name
        if self.network.prefixlen == self.network.max_prefixlen:
            return str(self.network.network_address)
        return str(self.network)


def parse_pattern(text: str) -> Pattern:
    """Return the pattern that text spells canonically.

    Raises `PatternError`, with the canonical spelling as its suggestion where the intent is clear.
    """
    if len(text) > MAX_PATTERN_CHARACTERS:
        raise PatternError(text, f"longer than {MAX_PATTERN_CHARACTERS} characters")
    try:
        return _parse_canonical(text)
    except _Refusal as refusal:
        raise PatternError(text, refusal.detail, _suggest(text)) from refusal


class _Refusal(Exception):
    def __init__(self, detail: str) -> None:
        self.detail = detail
        super().__init__(detail)


def _suggest(text: str) -> str | None:
    """Return the canonical spelling of what text probably means."""
    repaired = candidate(text)
    try:
        spellings = _spellings(_parse(repaired))
    except _Refusal:
        return None
    # Who wrote Unicode is shown Unicode.
    return spellings[0] if repaired.isascii() else spellings[-1]


def _parse_canonical(text: str) -> Pattern:
    pattern = _parse(text)
    if text != str(pattern) and text not in _spellings(pattern):
        raise _Refusal("not in canonical form")
    return pattern


def _spellings(pattern: Pattern) -> tuple[str, ...]:
    """Return the accepted spellings: the canonical one, and for an international name the one in Unicode."""
    canonical = str(pattern)
    if "xn--" not in pattern.name:
        return (canonical,)
    import idna  # here, not above: loading its tables costs more than parsing thousands of ASCII patterns

    readable = ".".join(idna.ulabel(label) if label.startswith("xn--") else label for label in pattern.name.split("."))
    return canonical, canonical.replace(pattern.name, readable)


def _parse(text: str) -> Pattern:
    if not text:
        raise _Refusal("empty")
    if text.startswith("!"):
        raise _Refusal("a rule has at most one `!`, in front")
    if "://" in text:
        raise _Refusal("a rule names hosts and ports, not a URL")
    target, ports = _split(text)
    low, high = (1, MAX_PORT) if ports is None else _parse_ports(ports)
    if "*" in target:
        kind, name = _parse_wildcard(target)
        return Pattern(kind=kind, name=name, low=low, high=high)
    if "/" in target:
        return Pattern(kind=Kind.NETWORK, network=_parse_network(target), low=low, high=high)
    host = _parse_host(target)
    if host.address is not None:
        return Pattern(kind=Kind.NETWORK, network=ip_network(host.address), low=low, high=high)
    return Pattern(kind=Kind.EXACT, name=str(host), low=low, high=high)


def _split(text: str) -> tuple[str, str | None]:
    """Split a pattern into its target and its ports (None: no ports written)."""
    match = _IPV6_WITH_PORTS.fullmatch(text)
    if match is not None:
        if ":" not in match["target"]:
            raise _Refusal("brackets belong to IPv6 addresses only")
        return match["target"], match["ports"]
    if text.count(":") > 1:
        return text, None
    target, separator, ports = text.partition(":")
    return target, ports if separator else None


def _parse_ports(text: str) -> tuple[int, int]:
    low, separator, high = text.partition("-")
    try:
        first = parse_port(low)
        last = parse_port(high) if separator else first
    except InvalidHost as error:
        raise _Refusal(f"`{shown(text)}` is no port and no port range such as `8000-8999`") from error
    if first > last:
        raise _Refusal("the port range runs backwards")
    return first, last


def _parse_wildcard(target: str) -> tuple[Kind, str]:
    if target == "*":
        return Kind.ONE_LABEL, ""
    if target == "**":
        return Kind.ANY, ""
    wildcard, _, rest = target.partition(".")
    if wildcard not in ("*", "**"):
        raise _Refusal("a wildcard is a whole first label: `*.example.com` or `**.example.com`")
    if "*" in rest:
        raise _Refusal("a pattern has one wildcard, in front: `*.example.com` or `**.example.com`")
    host = _parse_host(rest)
    if host.name is None:
        raise _Refusal("a wildcard does not go with an address; write a CIDR range such as `10.0.0.0/8`")
    return (Kind.CHILD if wildcard == "*" else Kind.DESCENDANT), host.name


def _parse_host(text: str) -> Host:
    try:
        return parse_host(text)
    except InvalidHost as error:
        raise _Refusal(error.detail) from error


def _parse_network(text: str) -> IPNetwork:
    base, _, length = text.partition("/")
    host = _parse_host(base)
    if host.address is None:
        raise _Refusal("only an address may be followed by `/`; a rule names hosts and ports, not paths")
    bits = 128 if ":" in base else 32
    if not (length.isascii() and length.isdigit() and len(length) <= 3 and int(length) <= bits):
        raise _Refusal(f"`/{shown(length)}` is no prefix length from 0 to {bits}")
    if bits == 32:
        return IPv4Network((int(host.address), int(length)), strict=False)
    # Not host.address: a range wider than the IPv4-mapped ones may start with a mapped address.
    network = IPv6Network((base.strip("[]"), int(length)), strict=False)
    if network.subnet_of(_MAPPED):
        # A range of IPv4-mapped addresses is a range of IPv4 addresses. A wider one is not, and covers none of them.
        return IPv4Network((int(network.network_address) & 0xFFFF_FFFF, network.prefixlen - 96))
    return network
