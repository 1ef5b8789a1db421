"""What is executed for a tool node: the interpreter, its arguments, its input and its environment."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gateway.workflow.commands import render_script
from gateway.workflow.model import ToolNode
from gateway.workflow.templates import parse_template

__all__ = ["ToolCommand", "render_tool"]

MAX_ARGUMENT_BYTES: Final = 120_000
"""Linux takes 128 KiB in one argument (MAX_ARG_STRLEN); a longer script travels on standard input."""

_BY_ARGUMENT = {"sh": ("sh", "-c"), "bash": ("bash", "-c"), "py": ("python3", "-c"), "js": ("node", "-e")}

# A shell reads a script from its input bit by bit, and the script's own commands would eat the rest of it; so it
# is read whole first. The other two read all of it before they begin.
_BY_INPUT = {
    "sh": ("sh", "-c", 'eval "$(cat)"'),
    "bash": ("bash", "-c", 'eval "$(cat)"'),
    "py": ("python3", "-"),
    "js": ("node", "-"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCommand:
    """A command line, what it gets on standard input (None: nothing), and variables for its environment."""

    argv: tuple[str, ...]
    stdin: bytes | None
    environment: Mapping[str, str]


def render_tool(node: ToolNode, context: Mapping[str, Any]) -> ToolCommand:
    """Return the command of a tool node, with the values of this moment.

    Raises:
        TemplateError: a value is missing, or cannot go where it should.
    """
    if node.command is not None:
        text, position, language = node.command, node.where("command"), "sh"
    else:
        text, position, language = node.script or "", node.where("script"), node.language or "sh"
    rendered = render_script(parse_template(text, position), context, language=language)
    data = rendered.text.encode()
    if len(data) > MAX_ARGUMENT_BYTES:
        return ToolCommand(argv=_BY_INPUT[language], stdin=data, environment=rendered.environment)
    return ToolCommand(argv=(*_BY_ARGUMENT[language], rendered.text), stdin=None, environment=rendered.environment)
