"""Templates: ``{{namespace.name.field}}`` and ``${ENV}`` in the texts of a workflow file.

A template is parsed once into literal text and typed references; a value is put in when the text is used
and is data from then on: it is never scanned for templates again.

Where a text goes decides how a value enters it. Prompts and mappings (`render_text`, `render_value`) take the
value itself; commands and scripts are another language, and live in `commands`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gateway.workflow.evaluation import kind_of, text_of
from gateway.workflow.model import JsonValue, SourcePos

NAMESPACES = ("vars", "input", "outputs", "artifacts", "attachments", "loop", "run")
"""The names a reference may begin with."""

ATTACHMENT_FIELDS = ("path", "url", "mime", "size", "sha256")
"""What ``{{attachments.name.field}}`` may ask for; without a field it is the path."""

_USAGE = {
    "vars": "{{vars.name}}",
    "input": "{{input.field}}",
    "outputs": "{{outputs.node}} or {{outputs.node.field}}",
    "artifacts": "{{artifacts.name}}",
    "attachments": "{{attachments.name}} or {{attachments.name.path}}",
    "loop": "{{loop.name.iteration}}",
    "run": "{{run.id}}",
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_ENVIRONMENT = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_PART = re.compile(r"\{\{|\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
# A reference ends at the first }} and stays on its line: a stray {{ must not swallow the rest of a prompt.
_REFERENCE_END = re.compile(r"\}\}|\n")


class TemplateError(ValueError):
    """A template that is malformed, or whose value is missing or cannot be used there.

    ``offset`` is the character of the text it is about, from 0; ``position`` is the same place in the file,
    where the file is known.
    """

    def __init__(self, message: str, offset: int, position: SourcePos | None = None) -> None:
        super().__init__(f"{position}: {message}" if position else message)
        self.message = message
        self.offset = offset
        self.position = position


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """``{{namespace.name...}}``; ``raw`` for ``{{!...}}``, which only commands and scripts tell apart."""

    namespace: str
    names: tuple[str, ...]
    raw: bool
    offset: int

    @property
    def path(self) -> str:
        """The dotted path, as an author writes it."""
        return ".".join((self.namespace, *self.names))

    def __str__(self) -> str:
        return f"{{{{{'!' if self.raw else ''}{self.path}}}}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentReference:
    """``${NAME}``: a variable of the host's environment; ``PROJECT_DIR`` is the workspace."""

    name: str
    offset: int

    def __str__(self) -> str:
        return f"${{{self.name}}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A parsed text. Printing the parts one after the other gives the text back, but for blanks in braces."""

    text: str
    parts: tuple[str | Reference | EnvironmentReference, ...]
    position: SourcePos | None = None

    @property
    def references(self) -> tuple[Reference, ...]:
        """Every ``{{...}}``, in order."""
        return tuple(part for part in self.parts if isinstance(part, Reference))

    def error(self, message: str, offset: int) -> TemplateError:
        """A `TemplateError` at ``offset`` of this text."""
        return _error(message, self.text, offset, self.position)


def _error(message: str, text: str, offset: int, position: SourcePos | None) -> TemplateError:
    return TemplateError(message, offset, position.inside(text, offset) if position else None)


@lru_cache(maxsize=1024)
def parse_template(text: str, position: SourcePos | None = None) -> Template:
    """Parse ``text``, which begins at ``position`` of a file.

    Returns the template. Raises `TemplateError` for ``{{`` that does not open a well-formed reference.
    """
    parts: list[str | Reference | EnvironmentReference] = []
    done = 0
    while match := _PART.search(text, done):
        start = match.start()
        if start > done:
            parts.append(text[done:start])
        if match[1] is not None:
            parts.append(EnvironmentReference(name=match[1], offset=start))
            done = match.end()
            continue
        end = _REFERENCE_END.search(text, match.end())
        if end is None or end.group() == "\n":
            raise _error("'{{' has no '}}' on its line", text, start, position)
        try:
            parts.append(_reference(text[match.end() : end.start()], start))
        except ValueError as problem:
            raise _error(str(problem), text, start, position) from None
        done = end.end()
    if done < len(text):
        parts.append(text[done:])
    return Template(text=text, parts=tuple(parts), position=position)


def _reference(inside: str, offset: int) -> Reference:
    body = inside.strip()
    raw = body.startswith("!")
    names = body.removeprefix("!").strip().split(".")
    namespace = names[0]
    if namespace not in NAMESPACES or not all(map(_NAME.match, names)):
        close = difflib.get_close_matches(namespace[:40], NAMESPACES, n=1)
        meant = f"; did you mean {close[0]!r}?" if close and namespace not in NAMESPACES else ""
        shown = body if len(body) <= 60 else body[:60] + "..."
        raise ValueError(f"{{{{{shown}}}}} is not a reference; write {_usage(namespace)}{meant}")
    if not _well_formed(namespace, names[1:]):
        raise ValueError(f"{{{{{body}}}}} is not a reference; write {_USAGE[namespace]}")
    return Reference(namespace=namespace, names=tuple(names[1:]), raw=raw, offset=offset)


def _usage(namespace: str) -> str:
    return _USAGE.get(namespace) or "{{namespace.name}} with one of " + ", ".join(NAMESPACES)


def _well_formed(namespace: str, names: list[str]) -> bool:
    match namespace:
        case "run":
            return names == ["id"]
        case "loop":
            return len(names) == 2 and names[1] == "iteration"
        case "attachments":
            return len(names) == 1 or (len(names) == 2 and names[1] in ATTACHMENT_FIELDS)
        case _:
            return bool(names)


def lookup(template: Template, reference: Reference, context: Mapping[str, Any]) -> Any:
    """The value of ``reference``; ``context`` holds one object per namespace.

    Raises `TemplateError`, at the reference, when there is no such value.
    """
    value: Any = context.get(reference.namespace, {})
    seen = reference.namespace
    names = reference.names
    if reference.namespace == "attachments" and len(names) == 1:
        names = (*names, "path")
    for name in names:
        if not isinstance(value, Mapping):
            problem = f"{reference}: {seen} is {kind_of(value)} and has no field {name!r}"
            raise template.error(problem, reference.offset)
        if name not in value:
            raise template.error(f"{reference}: {seen} has no {name!r}", reference.offset)
        value = value[name]
        seen += "." + name
    return value


def _environment(template: Template, part: EnvironmentReference, environ: Mapping[str, str] | None) -> str:
    if environ is None:
        return str(part)
    if part.name not in environ:
        raise template.error(f"{part}: the environment has no {part.name}; set it", part.offset)
    return environ[part.name]


def render_text(template: Template, context: Mapping[str, Any], *, environ: Mapping[str, str] | None = None) -> str:
    """The text with every value in its place: strings as they are, everything else as compact JSON.

    ``environ`` gives ``${NAME}`` its value; None leaves ``${NAME}`` as it is written (prompts). Raises
    `TemplateError` for a value that is missing.
    """
    pieces: list[str] = []
    for part in template.parts:
        if isinstance(part, Reference):
            pieces.append(text_of(lookup(template, part, context)))
        elif isinstance(part, EnvironmentReference):
            pieces.append(_environment(template, part, environ))
        else:
            pieces.append(part)
    return "".join(pieces)


def expand_environment(text: str, environ: Mapping[str, str], position: SourcePos) -> str:
    """``text`` with ``${NAME}`` replaced, and ``{{...}}`` left alone: for texts that are no templates.

    Raises `TemplateError` for a variable that ``environ`` does not have.
    """

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name not in environ:
            message = f"${{{name}}}: the environment has no {name}; set it"
            raise _error(message, text, match.start(), position)
        return environ[name]

    return _ENVIRONMENT.sub(value, text)


def render_value(
    template: Template, context: Mapping[str, Any], *, environ: Mapping[str, str] | None = None
) -> JsonValue:
    """The value of a mapping entry: a text that is one reference and nothing else keeps the value's type.

    ``key: "{{outputs.a.items}}"`` hands on a list, not its JSON. Raises `TemplateError` as `render_text`
    does.
    """
    if len(template.parts) == 1 and isinstance(template.parts[0], Reference):
        value: JsonValue = lookup(template, template.parts[0], context)
        return value
    return render_text(template, context, environ=environ)
