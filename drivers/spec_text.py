"""The lexical rules for texts that end up in somebody's argument list.

A value that starts with `-` is an option to the program that receives it, and a control character can end a line or a
string early; neither has a use in any field, so both are refused before a driver sees them.
"""

import posixpath
import re
from collections.abc import Iterator

MAX_SHOWN_CHARACTERS = 80
"""How much of a bad value an error message repeats."""

ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@+-]*(\[[0-9a-fA-F:]+\][A-Za-z0-9._/:@+-]*)?")
USER = re.compile(r"([A-Za-z_][A-Za-z0-9_.-]*|[0-9]{1,10})(:([A-Za-z_][A-Za-z0-9_.-]*|[0-9]{1,10}))?")
MEMORY = re.compile(r"[1-9][0-9]*[bkmgtBKMGT]")
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
SCRIPT_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def printable(value: object, *, quote: bool = True) -> str:
    """A bad value for a message: on one line, escaped, shortened."""
    text = str(value)
    if len(text) > MAX_SHOWN_CHARACTERS:
        text = text[:MAX_SHOWN_CHARACTERS] + "..."
    escaped = text.encode("unicode_escape").decode("ascii") if not text.isprintable() else text
    return f"`{escaped}`" if quote else escaped


def argument_problem(name: str, value: str) -> Iterator[str]:
    """Yield why `value` cannot be one argument of a command line."""
    if not value:
        yield f"{name}: is empty; write a value or leave the field out"
    elif value.startswith("-"):
        yield f"{name}: {printable(value)} starts with `-` and would be read as an option; write it without"
    if CONTROL.search(value):
        yield f"{name}: {printable(value)} holds a control character; write it without"


def script_problem(name: str, value: str) -> Iterator[str]:
    """Yield why `value` cannot be a shell script; line breaks and tabs are fine."""
    if not value.strip():
        yield f"{name}: is empty; write a command or leave the field out"
    if value.startswith("-"):
        yield f"{name}: {printable(value)} starts with `-`; write a command such as `npm ci`"
    if SCRIPT_CONTROL.search(value):
        yield f"{name}: {printable(value)} holds a control character; write it without"


def canonical_path_problem(name: str, value: str) -> Iterator[str]:
    """Yield why `value` is not an absolute path in canonical form below the root."""
    if CONTROL.search(value):
        yield f"{name}: {printable(value)} holds a control character; write it without"
    elif not value.startswith("/"):
        yield f"{name}: {printable(value)} is not absolute; write a path that starts with `/`, such as /workspace"
    elif value == "/":
        yield f"{name}: `/` would hide the whole system; write a directory below it, such as /workspace"
    elif posixpath.normpath(value) != value or value.startswith("//"):
        fixed = "/" + posixpath.normpath(value).lstrip("/")
        yield f"{name}: {printable(value)} has `..`, `.`, `//` or a `/` at the end; write {printable(fixed)}"
