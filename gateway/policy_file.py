"""A policy file: YAML with the keys of a `network:` block, read with the line of every rule.

The file is composed into nodes and never constructed into objects, so tags cannot do anything and each value keeps its
place. YAML reads some patterns as something else (`*.example.com` as an alias, `!evil.site` as a tag, `no` as false);
each of these is an error that says to write quotes. Every problem of a file is reported, not only the first.
"""

import difflib
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml

from drivers.spec import ENFORCEMENTS, INHERITS, NETWORK_MODES, TLS_MODES, NetworkSpec, static_host_problems
from gateway.errors import ConfigError
from policy.rules import RuleSource, RuleText

__all__ = ["MAX_FILE_BYTES", "PolicyFileError", "load_network_file", "parse_network"]

MAX_FILE_BYTES: Final = 16 * 1024 * 1024
"""Largest policy file that is read, in bytes: several hundred thousand rules."""

_WORDS: Final[dict[str, tuple[str, ...]]] = {
    "mode": NETWORK_MODES,
    "inherit": INHERITS,
    "enforcement": ENFORCEMENTS,
    "tls": TLS_MODES,
}
_KEYS: Final = ("mode", "preset", "inherit", "rules", "enforcement", "tls", "inspect_hosts", "exclude_hosts", "hosts")
_TEXT_TAG: Final = "tag:yaml.org,2002:str"
_YAML_TAGS: Final = "tag:yaml.org,2002:"
_SHOWN_CHARACTERS: Final = 80

# What YAML takes for the end of a line and editors do not show as one, and what shows text in another order than it
# has (UAX 9, explicit formatting): the file that is reviewed must be the file that is read.
_HIDDEN: Final = re.compile("\r(?!\n)|[\x85\u2028\u2029\u202a-\u202e\u2066-\u2069]")

# libyaml where PyYAML was built with it: 100,000 rules in a quarter of a second, and a bounded nesting depth.
_Loader: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_Value = TypeVar("_Value")


class PolicyFileError(ConfigError):
    """A policy file that cannot be used; `problems` has one line for each mistake, with file and line number."""

    def __init__(self, problems: Collection[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


def load_network_file(path: Path) -> NetworkSpec:
    """Read a policy file.

    Returns the network block as it is written; its rules are not parsed yet, but know their line. Raises
    `PolicyFileError`.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise PolicyFileError([f"{path}: cannot be read: {error.strerror}"]) from error
    if len(data) > MAX_FILE_BYTES:
        raise PolicyFileError([f"{path}: is larger than {MAX_FILE_BYTES:,} bytes; write fewer or wider rules"])
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise PolicyFileError([f"{path}:{line}: is not UTF-8 text; save the file as UTF-8"]) from error
    return parse_network(text, str(path))


def parse_network(text: str, file: str) -> NetworkSpec:
    """Return the network block that YAML text holds.

    Args: `file`, the name to use in errors and as the source of the rules. Raises `PolicyFileError`.
    """
    if (hidden := _HIDDEN.search(text)) is not None:
        raise PolicyFileError([_hidden_problem(hidden, text, file)])
    try:
        root = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        raise PolicyFileError([_syntax_problem(error, text, file)]) from error
    except (yaml.YAMLError, RecursionError) as error:
        raise PolicyFileError([f"{file}: is not YAML: {_excerpt(str(error))}"]) from error
    reader = _Reader(file)
    spec = reader.network(root)
    if reader.problems:
        raise PolicyFileError([f"{file}:{line}: {problem}" for line, problem in sorted(reader.problems)])
    return spec


def _hidden_problem(hidden: re.Match[str], text: str, file: str) -> str:
    number = text.count("\n", 0, hidden.start()) + 1
    return (
        f"{file}:{number}: has the character U+{ord(hidden[0]):04X}, which ends or reorders a line for some readers "
        "and not for others, so a rule could hide in a comment; remove it"
    )


def _syntax_problem(error: yaml.MarkedYAMLError, text: str, file: str) -> str:
    mark = error.problem_mark or error.context_mark
    number = 1 if mark is None else mark.line + 1
    lines = text.splitlines()
    written = lines[number - 1].strip().removeprefix("- ").strip() if number <= len(lines) else ""
    where = f"{file}:{number}"
    what = " ".join(filter(None, (error.context, error.problem)))
    if "alias" in what or "tag" in what:
        return (
            f"{where}: `{_excerpt(written)}`: a value that starts with `*` or `!` needs quotes in YAML; "
            f'write it in quotes, like "*.example.com" or "!evil.site"'
        )
    return f"{where}: `{_excerpt(written)}` is not YAML: {what}"


class _Reader:
    """Reads nodes into values and collects problems; a value with a problem reads as None or is left out."""

    def __init__(self, file: str) -> None:
        self.problems: list[tuple[int, str]] = []
        self._file = file

    def network(self, root: yaml.Node | None) -> NetworkSpec:
        if root is None:
            self.problems.append((1, "is empty; write `mode: allowlist` and a list of `rules`"))
            return NetworkSpec()
        entries = self._entries(root, "the file", _KEYS, wrapper="network")
        if "network" in entries:
            entries = self._entries(entries["network"], "`network`", _KEYS)
        values: dict[str, Any] = {}
        for key, node in entries.items():
            if key in _WORDS:
                values[key] = self._word(key, node, _WORDS[key])
            elif key == "preset":
                values[key] = self._text(node, "`preset`")
            elif key == "hosts":
                values[key] = self._hosts(node)
            else:
                texts = self._texts(node, f"`{key}`")
                values[key] = tuple(self._rule(*item) for item in texts) if key == "rules" else _firsts(texts)
        return NetworkSpec(**{key: value for key, value in values.items() if value is not None})

    def _rule(self, text: str, line: int) -> RuleText:
        return RuleText(text, RuleSource("user", self._file, line))

    def _hosts(self, node: yaml.Node) -> dict[str, tuple[str, ...]]:
        hosts = {}
        for name, value in self._entries(node, "`hosts`").items():
            known = len(self.problems)
            hosts[name] = _firsts(self._texts(value, f"`hosts.{_excerpt(name)}`"))
            if len(self.problems) == known:  # else the list is not what was written
                for problem in static_host_problems(name, hosts[name]):
                    self._complain(value, problem)
        return hosts

    def _entries(
        self, node: yaml.Node, what: str, keys: tuple[str, ...] = (), wrapper: str | None = None
    ) -> dict[str, yaml.Node]:
        """Return the entries of a mapping; without `keys`, any key that is text is known."""
        if not isinstance(node, yaml.MappingNode):
            self._complain(node, f"{what} is {_kind(node)}; write `key: value` lines")
            return {}
        found: dict[str, yaml.Node] = {}
        for key_node, value in node.value:
            key = self._text(key_node, "a key")
            if key is None:
                continue
            if key in found:
                self._complain(key_node, f"`{_excerpt(key)}` is there twice; keep one of the two")
            elif keys and key not in keys and key != wrapper:
                self._complain(key_node, f"`{_excerpt(key)}` is no key of {what}; {_cure(key, keys)}")
            else:
                found[key] = value
        if wrapper in found and len(found) > 1:
            self._complain(node, f"`{wrapper}` goes with no other key at the top; put everything below it")
        return found

    def _word(self, key: str, node: yaml.Node, words: tuple[str, ...]) -> str | None:
        value = self._text(node, f"`{key}`")
        if value is not None and value not in words:
            self._complain(node, f"`{key}`: `{_excerpt(value)}` is not known; {_cure(value, words)}")
            return None
        return value

    def _texts(self, node: yaml.Node, what: str) -> list[tuple[str, int]]:
        """Return the texts of a list and the line of each."""
        if not isinstance(node, yaml.SequenceNode):
            self._complain(node, f"{what} is {_kind(node)}; write a list, one `- value` a line, or `[]` for none")
            return []
        texts = ((self._text(item, f"an entry of {what}"), item.start_mark.line + 1) for item in node.value)
        return [(text, line) for text, line in texts if text is not None]

    def _text(self, node: yaml.Node, what: str) -> str | None:
        if not isinstance(node, yaml.ScalarNode):
            self._complain(node, f"{what} is {_kind(node)}; write text")
            return None
        if not node.tag.startswith(_YAML_TAGS):
            written = f"{node.tag} {node.value}".strip()
            self._complain(node, f'`{_excerpt(written)}` is a tag in YAML; write it in quotes: "{_excerpt(written)}"')
            return None
        if node.tag != _TEXT_TAG:
            value = _excerpt(node.value)
            cure = f'write it in quotes: "{value}"' if value else "write a value, or leave it out"
            self._complain(node, f"{what} is {_kind(node)}; {cure}")
            return None
        text: str = node.value
        return text

    def _complain(self, node: yaml.Node, problem: str) -> None:
        self.problems.append((node.start_mark.line + 1, problem))


def _firsts(items: Collection[tuple[_Value, int]]) -> tuple[_Value, ...]:
    return tuple(value for value, _ in items)


def _kind(node: yaml.Node) -> str:
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    name = str(node.tag).removeprefix(_YAML_TAGS)
    kinds = {"str": "text", "null": "empty", "bool": "read as true or false", "int": "a number", "float": "a number"}
    return f"`{_excerpt(str(node.value))}`, {kinds.get(name, name)}" if node.value else kinds.get(name, name)


def _cure(value: str, known: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(value.lower(), known, n=1)
    return f"write `{close[0]}`" if close else f"write one of {', '.join(f'`{word}`' for word in known)}"


def _excerpt(text: str) -> str:
    """Return the printable start of a text that may hold anything."""
    return repr(text[:_SHOWN_CHARACTERS])[1:-1] + ("..." if len(text) > _SHOWN_CHARACTERS else "")
