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
from gateway.workflow.templates import Template, TemplateError, parse_template, render_text

JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda values: st.lists(values, max_size=4) | st.dictionaries(st.text(), values, max_size=4),
    max_leaves=8,
)

CONTEXT: dict[str, Any] = {
    "vars": {"x": 'it\'s "$(id)" `id` \\ \n', "n": 1, "flag": True, "list": [1, "a"]},
    "input": {"x": None, "object": {"a": 1}},
    "outputs": {"a": {"ok": True, "text": "t"}},
    "loop": {"again": {"iteration": 1}},
    "run": {"id": "r"},
}


def check_expression(text: str) -> None:
    """An expression parses and has a value, or an `ExpressionError` points into the text."""
    refused = None
    try:
        evaluate(parse_expression(text), CONTEXT)
    except ExpressionError as problem:
        refused = problem
    assert refused is None or (refused.message and 0 <= refused.offset <= len(text))


def check_template(text: str) -> None:
    """A template parses and renders, or a `TemplateError` points into the text; no value becomes shell text."""
    template, refused = None, None
    try:
        template = parse_template(text)
    except TemplateError as problem:
        refused = problem
    assert refused is None or 0 <= refused.offset < len(text)
    if template is None:
        return
    printed = [str(part) for part in template.parts]
    assert [str(part) for part in parse_template("".join(printed)).parts] == printed
    with contextlib.suppress(TemplateError):
        render_text(template, CONTEXT)
    if not any(part.raw for part in template.references):
        for language in LANGUAGES:
            _check_script(template, language)


def _check_script(template: Template, language: str) -> None:
    literal = "".join(part for part in template.parts if isinstance(part, str))
    refused = None
    try:
        rendered = render_script(template, CONTEXT, language=language)
        assert "$(id)" in literal or "$(id)" not in rendered.text
        assert all(name in rendered.text for name in rendered.environment)
    except TemplateError as problem:
        refused = problem
    assert refused is None or 0 <= refused.offset < len(template.text)


def check_flow(content: bytes | str) -> None:
    """A file is a flow without errors, or a `FlowError` whose findings are known and point into the file."""
    text = content if isinstance(content, str) else content.decode("utf-8", "replace")
    lines = text.split("\n")
    flow, refused = None, None
    try:
        flow = parse_flow(content, file="f.bot")
    except FlowError as error:
        refused = error
    if refused is not None:
        assert refused.errors
        assert str(refused)
        for found in refused.diagnostics:
            assert CODES[found.code][0] is found.severity
            assert 1 <= found.position.line <= len(lines)
            assert found.position.column >= 1
        with contextlib.suppress(FlowError):
            _, diagnostics = read_flow(content, file="f.bot")
            assert {found.code for found in diagnostics} == {found.code for found in refused.diagnostics}
    if flow is not None:
        assert all(found.severity is Severity.WARNING for found in flow.warnings)
        assert all(edge.source in flow.nodes for edge in flow.workflow.edges)
