"""Templates: references, what they render to, and errors at their place."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.workflow.model import SourcePos
from gateway.workflow.templates import (
    EnvironmentReference,
    Reference,
    TemplateError,
    expand_environment,
    parse_template,
    render_text,
    render_value,
)
from tests.gateway.workflow.properties import check_template

CONTEXT: dict[str, Any] = {
    "vars": {"name": "ada", "n": 3, "list": [1, "é"], "tricky": "{{vars.n}} ${HOME}"},
    "input": {"none": None, "flag": True},
    "outputs": {"node": {"deep": {"er": 1.5}}, "text": "all of it"},
    "artifacts": {"report": {"a": 1}},
    "attachments": {"doc": {"path": "/a/doc.txt", "size": 12}},
    "loop": {"again": {"iteration": 2}},
    "run": {"id": "r-1"},
}
POSITION = SourcePos(file="a.bot", line=4, column=11)


def rendered(text: str, **environ: str) -> str:
    return render_text(parse_template(text), CONTEXT, environ=environ)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("", ""),
        ("plain { text } $ } {", "plain { text } $ } {"),
        ("{{vars.name}}", "ada"),
        ("a {{ vars.n }}b{{vars.name}}", "a 3bada"),
        ("{{vars.list}}", '[1,"é"]'),
        ("{{input.none}}/{{input.flag}}", "null/true"),
        ("{{outputs.node}}", '{"deep":{"er":1.5}}'),
        ("{{outputs.node.deep.er}}", "1.5"),
        ("{{outputs.text}}", "all of it"),
        ("{{artifacts.report}}", '{"a":1}'),
        ("{{attachments.doc}} {{attachments.doc.path}} {{attachments.doc.size}}", "/a/doc.txt /a/doc.txt 12"),
        ("{{loop.again.iteration}} {{run.id}}", "2 r-1"),
        ("{{!vars.name}}", "ada"),
        ("{{vars.tricky}}", "{{vars.n}} ${HOME}"),
        ("${HOME}/x${PROJECT_DIR}", "/home/x/work"),
        ("$HOME ${} ${a-b} ${localEnv:HOME} $${HOME}", "$HOME ${} ${a-b} ${localEnv:HOME} $/home"),
    ],
)
def test_rendering(text: str, result: str) -> None:
    assert rendered(text, HOME="/home", PROJECT_DIR="/work") == result


def test_without_an_environment_its_references_stay() -> None:
    assert render_text(parse_template("${HOME} {{vars.n}}"), CONTEXT) == "${HOME} 3"


def test_a_missing_variable_of_the_environment() -> None:
    with pytest.raises(TemplateError, match=r"a.bot:4:13: \$\{MODEL\}: the environment has no MODEL; set it"):
        render_text(parse_template("x ${MODEL}", POSITION), CONTEXT, environ={})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{vars.nmae}}", "{{vars.nmae}}: vars has no 'nmae'"),
        ("{{outputs.node.deep.er.x}}", "{{outputs.node.deep.er.x}}: outputs.node.deep.er is a number and has no field"),
        ("{{attachments.doc.url}}", "{{attachments.doc.url}}: attachments.doc has no 'url'"),
        ("{{attachments.other}}", "{{attachments.other}}: attachments has no 'other'"),
    ],
)
def test_missing_values_name_the_place(text: str, message: str) -> None:
    template = parse_template("ab " + text, POSITION)
    with pytest.raises(TemplateError) as caught:
        render_text(template, CONTEXT)
    assert str(caught.value).startswith(f"a.bot:4:14: {message}")
    assert caught.value.offset == 3


def test_a_namespace_that_the_run_does_not_have() -> None:
    with pytest.raises(TemplateError, match="artifacts has no 'x'"):
        render_text(parse_template("{{artifacts.x}}"), {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{vars.x", "'{{' has no '}}' on its line"),
        ("{{vars.x\n}}", "'{{' has no '}}' on its line"),
        ("{{}}", "write {{namespace.name}} with one of vars, input"),
        ("{{name}}", "write {{namespace.name}} with one of"),
        ("{{output.x}}", "did you mean 'outputs'?"),
        ("{{vars}}", "write {{vars.name}}"),
        ("{{vars.}}", "write {{vars.name}}"),
        ("{{vars.a-b}}", "write {{vars.name}}"),
        ("{{vars.a b}}", "write {{vars.name}}"),
        ("{{input.items[0]}}", "write {{input.field}}"),
        ("{{loop.again}}", "write {{loop.name.iteration}}"),
        ("{{loop.again.count}}", "write {{loop.name.iteration}}"),
        ("{{run.name}}", "write {{run.id}}"),
        ("{{attachments.doc.owner}}", "write {{attachments.name}} or {{attachments.name.path}}"),
        ("{{attachments.doc.path.x}}", "write {{attachments.name}}"),
        ("{{.Server.Version}}", "write {{namespace.name}}"),
        ("{{" + "x" * 500 + "}}", "x" * 60 + "...}} is not"),
    ],
)
def test_malformed(text: str, message: str) -> None:
    with pytest.raises(TemplateError) as caught:
        parse_template("é\n " + text, POSITION)
    assert message in str(caught.value)
    assert str(caught.value.position) == "a.bot:5:2"


def test_an_error_without_a_file() -> None:
    with pytest.raises(TemplateError) as caught:
        parse_template("{{x}}")
    assert caught.value.position is None
    assert str(caught.value) == caught.value.message


def test_parts() -> None:
    template = parse_template("a{{!vars.x.y}}${B}")
    reference = Reference(namespace="vars", names=("x", "y"), raw=True, offset=1)
    assert template.parts == ("a", reference, EnvironmentReference(name="B", offset=14))
    assert template.references == (reference,)
    assert reference.path == "vars.x.y"
    assert "".join(map(str, template.parts)) == template.text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{{vars.list}}", [1, "é"]),
        ("{{input.none}}", None),
        ("{{vars.n}}", 3),
        (" {{vars.n}}", " 3"),
        ("{{vars.n}}{{vars.n}}", "33"),
        ("${HOME}", "/home"),
        ("text", "text"),
        ("", ""),
    ],
)
def test_a_whole_reference_keeps_its_type(text: str, value: object) -> None:
    found = render_value(parse_template(text), CONTEXT, environ={"HOME": "/home"})
    assert found == value
    assert type(found) is type(value)


_PIECES = ["{{", "}}", "vars.x", "outputs.a.ok", "!", "${", "}", "'", '"', "\\", "\n", "<<E\n", "E\n", "$(", ")", "#"]


@given(st.lists(st.sampled_from([*_PIECES, "{{vars.x}}", "{{vars.n}}", " "]) | st.text(max_size=3), max_size=12))
def test_any_text_parses_or_is_refused(pieces: list[str]) -> None:
    check_template("".join(pieces))


def test_only_the_environment() -> None:
    assert expand_environment("${A}{{vars.x}} $B ${}", {"A": "{{x}}${B}"}, POSITION) == "{{x}}${B}{{vars.x}} $B ${}"
    with pytest.raises(TemplateError, match=r"a.bot:4:13: \$\{B\}: the environment has no B; set it"):
        expand_environment("x ${B}", {}, POSITION)
