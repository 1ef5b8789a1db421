"""The command line of a tool node; each interpreter is really run."""

import os
import shutil
import subprocess
from typing import Any

import pytest

from gateway.workflow.model import SourcePos, ToolNode
from gateway.workflow.templates import TemplateError
from gateway.workflow.tool_command import MAX_ARGUMENT_BYTES, ToolCommand, render_tool

HERE = SourcePos(file="flow.bot", line=3, column=5)
CONTEXT = {"vars": {"v": "it's $HOME"}}


def tool(**fields: Any) -> ToolNode:
    return ToolNode(name="t", position=HERE, **fields)


def run(command: ToolCommand) -> str:
    done = subprocess.run(
        command.argv,
        input=command.stdin or b"",
        env={**os.environ, **command.environment},
        capture_output=True,
        check=True,
        timeout=60,
    )
    return done.stdout.decode()


def test_a_command_runs_in_sh_and_its_values_are_data() -> None:
    command = render_tool(tool(command="echo {{vars.v}}"), CONTEXT)
    assert command.argv[:2] == ("sh", "-c")
    assert command.stdin is None
    assert run(command) == "it's $HOME\n"


PROGRAMS = {
    "sh": ("sh", "printf '%s' {{vars.v}}", "#"),
    "bash": ("bash", "[[ -n x ]] && printf '%s' {{vars.v}}", "#"),
    "py": ("python3", "print({{vars.v}}, end='')", "#"),
    "js": ("node", "process.stdout.write({{vars.v}})", "//"),
}


@pytest.mark.parametrize("language", PROGRAMS)
@pytest.mark.parametrize("long", [False, True])
@pytest.mark.real
def test_scripts_of_any_length_run_in_their_language(language: str, long: bool) -> None:
    interpreter, script, comment = PROGRAMS[language]
    if long:
        script = f"{comment} {'x' * MAX_ARGUMENT_BYTES}\n{script}"
    command = render_tool(tool(script=script, language=language), CONTEXT)
    assert command.argv[0] == interpreter
    assert (command.stdin is not None) == long
    if shutil.which(interpreter):  # Node.js is not part of every system that this is developed on
        assert run(command) == "it's $HOME"


def test_a_long_shell_script_is_read_whole_before_its_commands_run() -> None:
    script = f"cat; # {'x' * MAX_ARGUMENT_BYTES}\necho end"
    assert run(render_tool(tool(script=script, language="sh"), CONTEXT)) == "end\n"


def test_a_missing_value_is_told_with_its_place() -> None:
    with pytest.raises(TemplateError, match=r"flow\.bot:3:10: .*vars has no 'none'"):
        render_tool(tool(command="echo {{vars.none}}"), CONTEXT)
