"""The variables of a run: declared in the file, set by presets and on the command line."""

from collections.abc import Collection, Iterable, Mapping

from gateway.errors import ConfigError, Position, UsageError
from gateway.workflow.diagnostics import did_you_mean
from gateway.workflow.model import Flow, JsonValue
from gateway.workflow.templates import TemplateError, expand_environment
from gateway.workflow.values import ValueProblem, parse_text

__all__ = ["expand_variables", "parse_assignments", "resolve_variables"]


def parse_assignments(texts: Iterable[str]) -> dict[str, str]:
    """Split ``NAME=VALUE`` texts of ``--var``; of several for one name the last counts.

    Raises:
        UsageError: a text without ``=`` or without a name.
    """
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"--var {text[:80]!r} is not an assignment", cure="write --var NAME=VALUE")
        found[name] = value
    return found


def resolve_variables(flow: Flow, assignments: Mapping[str, str], *, preset: str | None = None) -> dict[str, JsonValue]:
    """Return the value of every variable of a flow: assigned, else from the preset, else the default.

    Args:
        flow: the file.
        assignments: name to text, from the command line.
        preset: the name of one of the file's presets.

    Raises:
        UsageError: an unknown variable or preset, a text that does not fit its type, or a variable without a value.
    """
    variables = flow.variables
    values: dict[str, JsonValue] = {
        name: variable.default for name, variable in variables.items() if variable.has_default
    }
    if preset is not None:
        if preset not in flow.presets:
            cure = did_you_mean(preset, flow.presets) or f"there are: {', '.join(flow.presets) or 'none'}"
            raise UsageError(f"{flow.file} has no preset {preset[:80]!r}", cure=cure)
        values |= flow.presets[preset].values
    for name, text in assignments.items():
        if name not in variables:
            cure = did_you_mean(name, variables) or f"there are: {', '.join(variables) or 'none'}"
            raise UsageError(f"{flow.file} has no variable {name[:80]!r}", cure=cure)
        type_ = variables[name].type
        try:
            values[name] = parse_text(type_, text)
        except ValueProblem as problem:
            raise UsageError(f"--var {name}: {problem}", cure=f"{name!r} is declared as {type_}") from None
    missing = [name for name in variables if name not in values]
    if missing:
        places = ", ".join(f"{name} ({variables[name].position})" for name in missing)
        raise UsageError(f"no value for {places}", cure=" ".join(f"--var {name}=VALUE" for name in missing))
    return values


def expand_variables(
    flow: Flow, values: Mapping[str, JsonValue], *, assigned: Collection[str], environ: Mapping[str, str]
) -> dict[str, JsonValue]:
    """Return the values with ``${NAME}`` replaced in the texts that come from the file.

    Args:
        flow: the file.
        values: the value of every variable.
        assigned: the variables whose value comes from the command line, which is taken as it is.
        environ: what ``${NAME}`` stands for; ``PROJECT_DIR`` is the workspace.

    Raises:
        ConfigError: ``environ`` does not have a name.
    """

    def expand(name: str, value: JsonValue) -> JsonValue:
        if isinstance(value, list):
            return [expand(name, item) for item in value] if flow.variables[name].type == "string[]" else value
        if not isinstance(value, str):
            return value
        try:
            return expand_environment(value, environ, flow.variables[name].position)
        except TemplateError as error:
            place = flow.variables[name].position
            position = Position(file=place.file, line=place.line, column=place.column)
            raise ConfigError(f"variable {name!r}: {error.message}", position=position) from None

    return {name: value if name in assigned else expand(name, value) for name, value in values.items()}
