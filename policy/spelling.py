"""From what somebody wrote to the pattern they probably meant, for error messages only.

Nothing here decides anything: a candidate goes through the strict parser before it is shown, and a rule that needed one
stays refused until its author has written it.
"""

import re
from typing import Final

_QUOTES: Final = "\"'`"
_SCHEME: Final = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?//")
_USER: Final = re.compile(r"[^/@]*@")
_CIDR_TAIL: Final = re.compile(r"/\d+\]?(?::[\d*-]*)?")
_IPV6_RANGE: Final = re.compile(r"\[?(?P<base>[0-9a-f:.]*:[0-9a-f:.]*)\]?/(?P<length>\d+)\]?(?::(?P<ports>[\d*-]*))?")
_STARRED_OCTETS: Final = re.compile(r"(?P<octets>(?:\d{1,3}\.){1,3})\*(?:\.\*){0,2}")


def candidate(text: str) -> str:
    """Return text with the usual slips repaired: case, scheme, path, dots, wildcards, brackets and ports."""
    tidy = _without_url_parts(text.strip().strip(_QUOTES).strip().lstrip("!").strip().lower())
    ipv6_range = _IPV6_RANGE.fullmatch(tidy)
    if ipv6_range is not None:
        target = f"{ipv6_range['base']}/{ipv6_range['length']}"
        ports = _repaired_ports(ipv6_range["ports"] or "")
        return f"[{target}]{ports}" if ports else target
    target, ports = _split_ports(tidy)
    return _repaired_target(target) + _repaired_ports(ports)


def _without_url_parts(text: str) -> str:
    scheme = _SCHEME.match(text)
    if scheme is not None:
        text = text[scheme.end() :]
    text = _USER.sub("", text, count=1)
    head, slash, _ = text.partition("/")
    if slash and _CIDR_TAIL.fullmatch(text, len(head)) is not None and _is_like_address(head):
        return text
    return re.split(r"[/?#\\]", text, maxsplit=1)[0]


def _is_like_address(text: str) -> bool:
    # Digits of other scripts become ASCII digits later.
    return not text.isascii() or not text.strip("0123456789abcdef:.[]*")


def _split_ports(text: str) -> tuple[str, str]:
    """Split off trailing ports, except from a bare IPv6 address, whose last group looks like one."""
    if text.startswith("["):
        target, bracket, ports = text.partition("]")
        return target + bracket, ports.removeprefix(":")
    if text.count(":") != 1:
        return text, ""
    target, _, ports = text.partition(":")
    return target, ports


def _repaired_ports(ports: str) -> str:
    """Return `:port` or `:low-high` without leading zeros and the right way round, or nothing for every port."""
    low, separator, high = ports.partition("-")
    if low in ("", "*") and not separator:
        return ""
    if not (low.isdecimal() and (high.isdecimal() or not separator)):
        return f":{ports}"
    first = int(low)
    last = int(high) if separator else first
    if first > last:
        first, last = last, first
    if separator and first <= 1 and last == 65535:
        return ""
    return f":{first}" if first == last else f":{first}-{last}"


def _repaired_target(target: str) -> str:
    octets = _STARRED_OCTETS.fullmatch(target)
    if octets is not None:
        known = octets["octets"].count(".")
        return octets["octets"] + ".".join(["0"] * (4 - known)) + f"/{8 * known}"
    target = target.rstrip(".")
    if target.startswith("."):
        return f"**{target}"
    if not target.startswith("*"):
        return target
    # `**.*.x`, `*.*`, `***`: several wildcards in front become the one that covers them.
    stars, rest = re.fullmatch(r"([*.]*)(.*)", target, re.DOTALL).groups()  # type: ignore[union-attr]
    wildcard = "*" if stars.count("*") == 1 else "**"
    return f"{wildcard}.{rest}" if rest else wildcard
