"""From standard output to the fields of an output."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.workflow.model import Schema, SchemaField, SourcePos, ValueType
from gateway.workflow.tool_output import read_output
from gateway.workflow.values import ValueProblem

HERE = SourcePos(file="flow.bot", line=1, column=1)
SCHEMA = Schema(name="result", position=HERE, fields=(SchemaField(name="n", type=ValueType.INT, position=HERE),))


def test_without_a_schema_the_output_is_the_text() -> None:
    assert read_output(b" a\nb \r\n\n", None) == {"output": " a\nb "}
    assert read_output(b"\xff", None, truncated=True) == {"output": "\ufffd"}
    assert read_output(b'{"n": 1}', None) == {"output": '{"n": 1}'}


@pytest.mark.parametrize(
    "stdout",
    [
        '{"n": 1}',
        '\n  {"n": 1}  \n\n',
        'log\n{"n": 0}\n{"n": 1}',
        '{"n": 1}\nlog\n[2]\n3\n',
        '{"n": 1}\n{broken}\n{"m": }\n',
        '{\n  "n": 1,\n  "list": [\n{"n": 2}\n]\n}\n',
        'log\r\n{"n": 1}\r\n',
        '{"n": 1}\n{"n": NaN}',
        '{"n": 1}\n{"x": ' + "[" * 100_000 + "}",
    ],
)
def test_the_whole_text_or_its_last_line_that_is_an_object_gives_the_fields(stdout: str) -> None:
    assert read_output(stdout.encode(), SCHEMA)["n"] == 1


@pytest.mark.parametrize("stdout", ["", "\n", "text", '["n"]', '{"n": 1', '{\n"n": 1\n}\nlog'])
def test_no_object_is_an_error(stdout: str) -> None:
    with pytest.raises(ValueProblem, match="it printed no JSON object, and its output is declared as 'result'"):
        read_output(stdout.encode(), SCHEMA)


def test_an_object_that_does_not_fit_is_an_error_that_names_the_field() -> None:
    with pytest.raises(ValueProblem, match="its output does not fit 'result': 'n' is missing"):
        read_output(b"{}", SCHEMA)
    with pytest.raises(ValueProblem, match="'n': wanted a whole number, found a string"):
        read_output(b'{"n": "1"}', SCHEMA)


def test_fields_that_may_have_been_cut_off_are_not_guessed() -> None:
    with pytest.raises(ValueProblem, match="more than the 8 bytes that are kept"):
        read_output(b'{"n": 1}', SCHEMA, truncated=True)


@given(st.binary() | st.text(alphabet='{}"n: 1[],\n\r').map(str.encode), st.booleans())
def test_any_bytes_give_fields_or_the_documented_error(stdout: bytes, truncated: bool) -> None:
    try:
        found = read_output(stdout, SCHEMA, truncated=truncated)
    except ValueProblem:
        return
    assert isinstance(found["n"], int)
