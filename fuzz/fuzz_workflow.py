"""Workflow files, templates and expressions: no input does anything but parse or be refused with its own error."""

import contextlib

from tests.gateway.workflow.properties import check_expression, check_flow, check_template
from tests.gateway.workflow.samples import EVERYTHING

_HEAD, _, _WORKFLOW = EVERYTHING.partition("workflow everything:")

SEEDS = (
    b"f" + EVERYTHING.encode(),
    b"fworkflow w:" + _WORKFLOW.encode(),
    *(b"f" + block.encode() for block in _HEAD.split("\n\n") if block),
    b'f## strict-escape: on\r\ntool a:\r\n  command: "a\\"b"\r\nworkflow w:\r\n  entry: a\r\n  a -> done\r\n',
    b'f\xef\xbb\xbfvars:\n  a: json = {"a": [1, {}], b: `c`}\n',
    b"eoutputs.a.ok && length(vars.list) >= 2 || !(vars.n * -1.5 < 3)",
    b"eif(contains(vars.list, 'a'), join(unique(concat(vars.list)), \\\", \\\"), null)",
    b"techo '{{vars.x}}' \"$(cat {{ input.x }})\" <<E # $((1))\n{{outputs.a.text}}\nE\n",
    b"tprintf %s $'{{!vars.x}}' `{{vars.n}}` $(( {{vars.n}} )) ${HOME}",
)


def fuzz(data: bytes) -> None:
    """Check one input; its first byte says what it is."""
    kind, body = data[:1], data[1:]
    if kind == b"e":
        check_expression(body.decode("utf-8", "replace"))
    elif kind == b"t":
        check_template(body.decode("utf-8", "replace"))
    else:
        check_flow(body)
        with contextlib.suppress(UnicodeDecodeError):
            check_flow(body.decode())
