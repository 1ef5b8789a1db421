"""Values enter commands and scripts as data: what the text becomes, and what real interpreters make of it."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.workflow.commands import LIMITS, render_command, render_script
from gateway.workflow.templates import TemplateError, parse_template

CONTEXT: dict[str, Any] = {
    "vars": {"x": "it's", "n": 3, "half": 0.5, "flag": True, "list": [1, "é"]},
    "outputs": {"a": {"text": "t"}},
}


def text_of(command: str) -> str:
    return render_command(parse_template(command), CONTEXT).text


V = "${ITERION_VALUE_1}"


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("echo", "echo"),
        ("echo {{vars.x}}", f'echo "{V}"'),
        ('echo "a {{vars.x}} b"', f'echo "a {V} b"'),
        ("echo 'a {{vars.x}} b'", f"echo 'a '\"{V}\"' b'"),
        ("echo $'a {{vars.x}} b'", f"echo $'a '\"{V}\"$' b'"),
        (r"echo $'a\'{{vars.x}}'", rf"""echo $'a\''"{V}"$''"""),
        (r"echo \'{{vars.x}}", rf"""echo \'"{V}" """[:-1]),
        (r"echo \"{{vars.x}}", rf"""echo \""{V}" """[:-1]),
        (r'echo "\"{{vars.x}}"', rf'echo "\"{V}"'),
        ("echo $(printf {{vars.x}})", f'echo $(printf "{V}")'),
        ('echo "$(printf {{vars.x}}) {{vars.x}}"', f'echo "$(printf "{V}") {V}"'),
        ("echo \"$(printf '{{vars.x}}')\"", f"echo \"$(printf ''\"{V}\"'')\""),
        ("echo `printf {{vars.x}}` '{{vars.x}}'", f"echo `printf \"{V}\"` ''\"{V}\"''"),
        ('echo "`printf {{vars.x}}`"', f'echo "`printf "{V}"`"'),
        ("(cd {{vars.x}})", f'(cd "{V}")'),
        ("echo $(({{vars.n}} + (1)))", f"echo $(({V} + (1)))"),
        ('echo "$(({{vars.n}} + 1)) {{vars.n}}"', f'echo "$(({V} + 1)) {V}"'),
        ("echo $((1)) {{vars.x}}", f'echo $((1)) "{V}"'),
        ("case a in a) echo '{{vars.x}}';; esac", f"case a in a) echo ''\"{V}\"'';; esac"),
        ("echo # it's\necho {{vars.x}}", f'echo # it\'s\necho "{V}"'),
        ("echo # it's {{vars.x}}", f"echo # it's {V}"),
        ("echo a#'b'{{vars.x}}", f"echo a#'b'\"{V}\""),
        ("echo {{vars.n}}#'{{vars.n}}'", f"echo \"{V}\"#''\"{V}\"''"),
        ("cat <<E\n'{{vars.x}}\nE\necho {{vars.x}}", f'cat <<E\n\'{V}\nE\necho "{V}"'),
        ("cat <<-E\n\t{{vars.x}}'\n\tE\necho {{vars.x}}", f'cat <<-E\n\t{V}\'\n\tE\necho "{V}"'),
        ("cat <<A <<B\n'{{vars.x}}\nA\n'{{vars.x}}\nB\n{{vars.x}}", f"cat <<A <<B\n'{V}\nA\n'{V}\nB\n\"{V}\""),
        ("cat <<'E'\n'\nE\necho {{vars.x}}", f"cat <<'E'\n'\nE\necho \"{V}\""),
        ("cat <<E # '\n{{vars.x}}\nE", f"cat <<E # '\n{V}\nE"),
        ("cat <<E\nE{{vars.x}}\nE\n{{vars.x}}", f'cat <<E\nE{V}\nE\n"{V}"'),
        ("cat <<<{{vars.x}}", f'cat <<<"{V}"'),
        ("cat << ;{{vars.x}}", f'cat << ;"{V}"'),
        ("echo ) ' ) {{vars.x}}", f"echo ) ' ) '\"{V}\"'"),
        ("echo $HOME ${HOME} $ {{vars.x}}", f'echo $HOME ${{HOME}} $ "{V}"'),
    ],
)
def test_the_expansion_fits_its_quotes(command: str, text: str) -> None:
    assert text_of(command) == text


def test_values_are_shared_and_typed() -> None:
    rendered = render_command(parse_template("{{vars.list}} {{vars.flag}} {{vars.list}} {{outputs.a}}"), CONTEXT)
    assert rendered.text == '"${ITERION_VALUE_1}" "${ITERION_VALUE_2}" "${ITERION_VALUE_1}" "${ITERION_VALUE_3}"'
    assert dict(rendered.environment) == {
        "ITERION_VALUE_1": '[1,"é"]',
        "ITERION_VALUE_2": "true",
        "ITERION_VALUE_3": '{"text":"t"}',
    }


def test_raw_references_are_code() -> None:
    rendered = render_command(parse_template("{{!vars.x}} {{vars.n}}'"), CONTEXT)
    assert rendered.text == f"it's '\"{V}\"''"
    assert dict(rendered.environment) == {"ITERION_VALUE_1": "3"}


def test_scripts_read_typed_values() -> None:
    python = render_script(parse_template("x = {{vars.list}}"), CONTEXT, language="py")
    assert python.text == 'x = __import__("json").loads(__import__("os").environ["ITERION_VALUE_1"])'
    assert dict(python.environment) == {"ITERION_VALUE_1": '[1, "\\u00e9"]'}
    script = render_script(parse_template("const x = {{vars.x}} + `${HOME}`"), CONTEXT, language="js")
    assert script.text == "const x = JSON.parse(process.env.ITERION_VALUE_1) + `${HOME}`"
    assert render_script(parse_template("echo {{vars.x}}"), CONTEXT, language="bash").text == f'echo "{V}"'


@pytest.mark.parametrize(
    ("command", "value", "message"),
    [
        ("cat <<'E'\n{{vars.v}}\nE", "a", "literal text; write its end word bare"),
        ("cat <<\\E\n{{vars.v}}\nE", "a", "literal text"),
        ("echo $(({{vars.v}}))", "a[$(id)]", r"only a number may stand in \$\(\(...\)\)"),
        ("echo $(({{vars.v}}))", True, "only a number"),
        ("echo {{vars.v}}", "a\0b", "a NUL character"),
        ("echo {{vars.v}}", "a\ud800", "half of a character"),
        ("echo {{vars.v}}", "é" * (LIMITS.max_value_bytes // 2 + 1), "pass a file instead"),
        ("echo {{!vars.v}}", "a\0b", "a NUL character"),
        ("echo {{vars.w}}", "", "vars has no 'w'"),
    ],
)
def test_values_that_cannot_go_there(command: str, value: object, message: str) -> None:
    with pytest.raises(TemplateError, match=message):
        render_command(parse_template(command), {"vars": {"v": value}})


def test_the_largest_value() -> None:
    rendered = render_command(parse_template("{{vars.v}}"), {"vars": {"v": "a" * LIMITS.max_value_bytes}})
    assert len(rendered.environment["ITERION_VALUE_1"]) == LIMITS.max_value_bytes


# -- Real interpreters ------------------------------------------------------------------------------

EVIL = "a'b\"c; touch pwned; $(touch pwned) `touch pwned` \\ * ${HOME} !x\n# y\t-n {{vars.x}}"

PLACES = {
    "bare": "printf %s {{vars.v}}",
    "in a word": "printf %s a{{vars.v}}z",
    "single": "printf %s '{{vars.v}}'",
    "double": 'printf %s "{{vars.v}}"',
    "substitution": 'printf %s "$(printf %s {{vars.v}})"',
    "single in substitution": "printf %s \"$(printf %s '{{vars.v}}')\"",
    "single in backticks": "printf %s \"`printf %s '{{vars.v}}'`\"",
    "here-document": "cat <<E\n{{vars.v}}\nE",
    "here-document without tabs": "cat <<-E\n\t{{vars.v}}\n\tE",
    "case": "case a in a) printf %s '{{vars.v}}';; esac",
    "after a comment": "# it's\nprintf %s {{vars.v}}",
    "assignment": 'x={{vars.v}}; printf %s "$x"',
    "default of an expansion": 'printf %s "${nothing:-{{vars.v}}}"',
}


def run(argv: list[str], environment: dict[str, str], directory: Path) -> str:
    path = {"PATH": os.environ["PATH"]}
    done = subprocess.run(argv, env={**path, **environment}, cwd=directory, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.real
@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize("place", PLACES)
def test_a_shell_sees_the_value_and_runs_none_of_it(shell: str, place: str, tmp_path: Path) -> None:
    rendered = render_script(parse_template(PLACES[place]), {"vars": {"v": EVIL}}, language=shell)
    output = run([shell, "-c", rendered.text], dict(rendered.environment), tmp_path)
    assert output.removeprefix("a" if place == "in a word" else "").removesuffix("z").rstrip("\n") == EVIL
    assert list(tmp_path.iterdir()) == []


@pytest.mark.real
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    pieces=st.lists(
        st.sampled_from(
            ["'", '"', "`", "\\", "$(", "(", ")", "$((", "))", "#", "\n", "<<E", "<<'E'", "E\n", "${x:-", "}", "$'"]
        )
        | st.sampled_from(["{{vars.v}}", "{{vars.v}}", " ", ":", ";", "x"]),
        max_size=12,
    )
)
def test_no_arrangement_of_quotes_runs_a_value(pieces: list[str], tmp_path: Path) -> None:
    try:
        rendered = render_command(parse_template("".join(pieces)), {"vars": {"v": "'\"`;touch pwned;$(touch pwned)\n"}})
    except TemplateError:
        return
    subprocess.run(
        ["sh", "-c", rendered.text],
        env={"PATH": os.environ["PATH"], **rendered.environment},
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=20,
    )
    assert not (tmp_path / "pwned").exists()


@pytest.mark.real
@pytest.mark.parametrize("value", [EVIL, None, True, 1.5, [1, {"a": "é\u2028"}], "\ud800"])
def test_python_reads_the_value(value: object, tmp_path: Path) -> None:
    script = "import json\nprint(json.dumps([{{vars.v}}, {{vars.v}}]))"
    rendered = render_script(parse_template(script), {"vars": {"v": value}}, language="py")
    assert json.loads(run(["python3", "-c", rendered.text], dict(rendered.environment), tmp_path)) == [value, value]


@pytest.mark.real
def test_node_reads_the_value(tmp_path: Path) -> None:
    node = shutil.which("node")
    assert node is not None, "install nodejs"
    value = [EVIL, None, {"a": "é\u2028"}]
    rendered = render_script(
        parse_template("console.log(JSON.stringify({{vars.v}}))"), {"vars": {"v": value}}, language="js"
    )
    assert json.loads(run([node, "-e", rendered.text], dict(rendered.environment), tmp_path)) == value
