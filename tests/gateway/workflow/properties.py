"""What must hold for any input, in one place for Hypothesis and for the fuzz target."""

import contextlib
from typing import Any

from hypothesis import strategies as st

from gateway.workflow.commands import LANGUAGES, render_script
from gateway.workflow.diagnostics import CODES, FlowError
from gateway.workflow.evaluation import evaluate
from gateway.workflow.expressions import ExpressionError, parse_expression
from gateway.workflow.language import parse_flow, read_flow
from gateway.workflow.model import Severity
from gateway.workflow.templates import TemplateError, parse_template, render_text

JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda values: st.lists(values, max_size=4) | st.dictionaries(st.text(), values, max_size=4),
    max_leaves=8,
)

CONTEXT: dict[str, Any] = {
    "vars": {"x": "it's \"$(id)\" `id` \\ \n", "n": 1, "flag": True, "list": [1, "a"]},
    "input": {"x": None, "object": {"a": 1}},
    "outputs": {"a": {"ok": True, "text": "t"}},
    "loop": {"again": {"iteration": 1}},
    "run": {"id": "r"},
}


def check_expression(text: str) -> None:
    """An expression parses and has a value, or an `ExpressionError` points into the text."""
    try:
        expression = parse_expression(text)
        evaluate(expression, CONTEXT)
    except ExpressionError as problem:
        assert 0 <= problem.offset <= len(text)
        assert problem.message


def check_template(text: str) -> None:
    """A template parses and renders, or a `TemplateError` points into the text; no value becomes shell text."""
    try:
        template = parse_template(text)
    except TemplateError as problem:
        assert 0 <= problem.offset < len(text)
        return
    literal = "".join(part for part in template.parts if isinstance(part, str))
    printed = [str(part) for part in template.parts]
    assert [str(part) for part in parse_template("".join(printed)).parts] == printed
    with contextlib.suppress(TemplateError):
        render_text(template, CONTEXT)
    if any(part.raw for part in template.references):
        return
    for language in LANGUAGES:
        try:
            rendered = render_script(template, CONTEXT, language=language)
        except TemplateError as problem:
            assert 0 <= problem.offset < len(text)
            continue
        if "$(id)" not in literal:
            assert "$(id)" not in rendered.text
        assert all(name in rendered.text for name in rendered.environment)


def check_flow(content: bytes | str) -> None:
    """A file is a flow without errors, or a `FlowError` whose findings are known and point into the file."""
    text = content if isinstance(content, str) else content.decode("utf-8", "replace")
    lines = text.split("\n")
    try:
        flow = parse_flow(content, file="f.bot")
    except FlowError as error:
        assert error.errors
        assert str(error)
        for found in error.diagnostics:
            assert CODES[found.code][0] is found.severity
            assert 1 <= found.position.line <= len(lines)
            assert 1 <= found.position.column
        with contextlib.suppress(FlowError):
            _, diagnostics = read_flow(content, file="f.bot")
            assert {found.code for found in diagnostics} == {found.code for found in error.diagnostics}
        return
    assert all(found.severity is Severity.WARNING for found in flow.warnings)
    for edge in flow.workflow.edges:
        assert edge.source in flow.nodes
