"""Text to host: one canonical spelling for a name or an address, or a refusal.

Everything that is decided, resolved, dialled or logged goes through `parse_host` or `parse_authority` first, so two
spellings of one host can never get two answers. What the parser promises:

* bounded work: the length is checked before anything looks at the characters;
* no raw fallback: text that IDNA refuses is refused, never passed on as it was;
* an address in disguise (`127.1`, `0x7f.1`, `2130706433`) is no name: `getaddrinfo` would take it for an address;
* idempotence: `parse_host(str(host)) == host`.
"""

import importlib
import re
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from types import ModuleType
from typing import Final

IPAddress = IPv4Address | IPv6Address

MAX_NAME_BYTES: Final = 253
"""Longest host name in bytes, before IDNA and after it, without the trailing dot (RFC 1035 section 2.3.4)."""

MAX_LABEL_BYTES: Final = 63
"""Longest label in bytes (RFC 1035 section 2.3.4)."""

MAX_PORT: Final = 65535
"""Highest TCP port; 0 is not a port that can be dialled."""

MAX_AUTHORITY_CHARACTERS: Final = MAX_NAME_BYTES + len(".:65535")
"""Longest authority that is looked at, in characters; text is cut off here before it is split."""

_SHOWN_CHARACTERS: Final = 80

# Letters, digits, hyphen and underscore; a label neither starts nor ends with a hyphen (RFC 1123 section 2.1). The
# underscore is no host name by that RFC, but real names have it.
_NAME: Final = re.compile(
    r"(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII
)
# A last label that inet_aton, getaddrinfo or a programming language would read as a number (WHATWG URL, "ends in a
# number checker", widened to every base).
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*|0o[0-7]+|0b[01]+", re.ASCII)
_LAST_OF_A_NUMBER: Final = "0123456789abcdefx"
_OCTET: Final = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_DOTTED_QUAD: Final = re.compile(rf"{_OCTET}(?:\.{_OCTET}){{3}}", re.ASCII)
_IPV6: Final = re.compile(r"[0-9A-Fa-f:.]{2,45}", re.ASCII)


class InvalidHost(ValueError):
    """Text is no host, port or authority.

    Attributes: `value`, the text, shortened and printable; `detail`, what is wrong with it.
    """

    def __init__(self, value: str, detail: str) -> None:
        self.value = shown(value)
        self.detail = detail
        super().__init__(f"{self.value}: {detail}")


@dataclass(frozen=True, slots=True)
class Host:
    """A host in its canonical spelling: a name or an address, exactly one of the two.

    Args: `name`, A-labels, lower case, no trailing dot; `address`, where an IPv4-mapped IPv6 address becomes that IPv4
    address. Raises `InvalidHost` if neither or both are given, or the address has a zone.
    """

    name: str | None = None
    address: IPAddress | None = None

    def __post_init__(self) -> None:
        address = self.address
        if (self.name is None) is (address is None):
            raise InvalidHost(str(self.name), "a host is a name or an address, exactly one of the two")
        if address is not None and isinstance(address, IPv6Address):
            if address.scope_id is not None:
                raise InvalidHost(str(address), "an address with a zone (`%`) is not accepted")
            object.__setattr__(self, "address", unmapped(address))

    @property
    def is_address(self) -> bool:
        """Whether the host is an IP literal."""
        return self.address is not None

    def __str__(self) -> str:
        return self.name if self.name is not None else str(self.address)


@dataclass(frozen=True, slots=True)
class Authority:
    """A host and a TCP port; prints as `host:443` or `[2001:db8::1]:443`.

    Args: `host`; `port`, 1 to 65535. Raises `InvalidHost` for another port.
    """

    host: Host
    port: int

    def __post_init__(self) -> None:
        if not 0 < self.port <= MAX_PORT:
            raise InvalidHost(str(self.port), f"a port is a number from 1 to {MAX_PORT}")

    def __str__(self) -> str:
        if isinstance(self.host.address, IPv6Address):
            return f"[{self.host.address}]:{self.port}"
        return f"{self.host}:{self.port}"


def unmapped(address: IPAddress) -> IPAddress:
    """Return the IPv4 address that an IPv4-mapped IPv6 address (RFC 4291 section 2.5.5.2) is, or the address itself."""
    if isinstance(address, IPv6Address):
        return address.ipv4_mapped or address
    return address


def shown(text: str) -> str:
    """Return text cut to a printable ASCII excerpt, safe for logs and error messages."""
    excerpt = ascii(text[:_SHOWN_CHARACTERS])[1:-1]
    return excerpt if len(text) <= _SHOWN_CHARACTERS else f"{excerpt}..."


def parse_port(text: str) -> int:
    """Return a port from its decimal spelling: 1 to 65535, no sign, space or leading zero.

    Raises `InvalidHost`.
    """
    # isdigit alone would take the digits of every script, and int would take signs, spaces and underscores.
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and text[0] != "0" and int(text) <= MAX_PORT):
        raise InvalidHost(text, f"a port is a number from 1 to {MAX_PORT}, digits only, without leading zeros")
    return int(text)


def parse_authority(text: str, *, default_port: int | None = None) -> Authority:
    """Return the host and port of `host:port`, `1.2.3.4:port` or `[ipv6]:port`.

    Args: `default_port`, used where the text has no port; None makes the port mandatory (as CONNECT does, RFC 9110
    section 9.3.6). Raises `InvalidHost`.
    """
    if len(text) > MAX_AUTHORITY_CHARACTERS:
        raise InvalidHost(text, f"longer than {MAX_NAME_BYTES} bytes")
    if text.startswith("["):
        host_text, bracket, rest = text.partition("]")
        host_text += bracket
        if rest and not rest.startswith(":"):
            raise InvalidHost(text, "only a port may follow the closing bracket")
        separator, port_text = rest[:1], rest[1:]
    else:
        if text.count(":") > 1:
            raise InvalidHost(text, "more than one colon; an IPv6 address goes in brackets: `[2001:db8::1]:443`")
        host_text, separator, port_text = text.partition(":")
    host = parse_host(host_text)
    if separator:
        return Authority(host, parse_port(port_text))
    if default_port is None:
        raise InvalidHost(text, "the port is missing; write `host:port`")
    return Authority(host, default_port)


def parse_host(text: str) -> Host:
    """Return the host that text names: a DNS name, an IPv4 address, or an IPv6 address with or without brackets.

    Names go through UTS 46 (non-transitional) and become lower-case A-labels; one trailing dot is dropped. Digits of
    other scripts are mapped first and judged afterwards, so `①②⑦.0.0.1` is the address 127.0.0.1.

    Raises `InvalidHost`. Source: RFC 1035, RFC 1123, RFC 4291, UTS 46.
    """
    limit = MAX_NAME_BYTES + text.endswith(".")
    if len(text) > limit:
        raise InvalidHost(text, f"longer than {MAX_NAME_BYTES} bytes")
    if text.isascii():
        if ":" in text or text.startswith("["):
            return Host(address=_parse_ipv6(text))
        name = text.lower()
    else:
        if len(text.encode("utf-8", "surrogatepass")) > limit:
            raise InvalidHost(text, f"longer than {MAX_NAME_BYTES} bytes")
        name = _map_unicode(text)
    name = name.removesuffix(".")
    if _NAME.fullmatch(name) is None:
        raise InvalidHost(text, _explain(name))
    if len(name) > MAX_NAME_BYTES:
        raise InvalidHost(text, f"longer than {MAX_NAME_BYTES} bytes once it is in ASCII")
    if name[-1] in _LAST_OF_A_NUMBER and _NUMBER.fullmatch(name, name.rfind(".") + 1):
        return Host(address=_parse_ipv4(text, name))
    if "xn--" in name:
        for label in name.split("."):
            if label.startswith("xn--"):
                _check_a_label(text, label)
    return Host(name)


def _parse_ipv4(text: str, name: str) -> IPv4Address:
    if _DOTTED_QUAD.fullmatch(name) is None:
        raise InvalidHost(
            text, "ends in a number, so it is an address in disguise; write an IPv4 address as four decimal numbers"
        )
    return IPv4Address(name)


def _parse_ipv6(text: str) -> IPv6Address:
    inner = text
    if text.startswith("["):
        if not text.endswith("]"):
            raise InvalidHost(text, "the bracket is not closed")
        inner = text[1:-1]
    if "%" in inner:
        raise InvalidHost(text, "an address with a zone (`%`) is not accepted")
    if _IPV6.fullmatch(inner) is None:
        raise InvalidHost(text, "brackets and colons belong to IPv6 addresses only")
    try:
        return IPv6Address(inner)
    except AddressValueError as error:
        raise InvalidHost(text, "not an IPv6 address") from error


def _idna(text: str) -> ModuleType:
    """Load the IDNA tables at first use: that costs more than parsing thousands of ASCII names.

    They may come too late, when no file descriptor is left to read them with: then `text` is refused, not passed on.
    """
    try:
        return importlib.import_module("idna")
    except (ImportError, OSError) as error:
        raise InvalidHost(text, "the IDNA tables cannot be loaded now") from error


def _map_unicode(text: str) -> str:
    """Map a name with non-ASCII characters to A-labels (UTS 46 section 4, non-transitional processing)."""
    idna = _idna(text)
    try:
        mapped = idna.uts46_remap(text, std3_rules=False, transitional=False)
        # Label by label, because idna.encode would refuse the underscore of an ASCII label next to a Unicode one.
        return ".".join(label if label.isascii() else idna.alabel(label).decode("ascii") for label in mapped.split("."))
    except (UnicodeError, ValueError) as error:
        raise InvalidHost(text, f"not a valid international name ({shown(str(error))})") from error


def _check_a_label(text: str, label: str) -> None:
    """Refuse an A-label that is not the one spelling of a valid U-label (RFC 5891 section 4.4)."""
    idna = _idna(text)
    try:
        valid = idna.alabel(idna.ulabel(label)) == label.encode("ascii")
    except (UnicodeError, ValueError):
        valid = False
    if not valid:
        raise InvalidHost(text, f"`{label}` is not the encoding of a valid international label")


def _explain(name: str) -> str:
    """Say why a lower-case ASCII name without its trailing dot is not a host name."""
    if not name:
        return "empty"
    if any(ord(character) < 0x20 or ord(character) == 0x7F for character in name):
        return "has a control character"
    for character, detail in (
        (" ", "has a space"),
        ("@", "has a user name (`@`); write the host only"),
        ("/", "has a path (`/`); write the host only"),
        ("%", "has a percent sign; zones and escapes are not accepted"),
        ("*", "has a wildcard (`*`), which only rules may have"),
        ("[", "has a bracket, which only IPv6 addresses have"),
        ("]", "has a bracket, which only IPv6 addresses have"),
    ):
        if character in name:
            return detail
    labels = name.split(".")
    if "" in labels:
        return "has an empty label (two dots in a row, or a dot at the start)"
    if any(len(label) > MAX_LABEL_BYTES for label in labels):
        return f"has a label longer than {MAX_LABEL_BYTES} bytes"
    if any(label.startswith("-") or label.endswith("-") for label in labels):
        return "has a label that starts or ends with a hyphen"
    return "has a character that no host name has (letters, digits, hyphen, underscore)"
