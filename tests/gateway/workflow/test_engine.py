"""The node engine with a fake executor and a clock of its own: what runs, in which order, and how it ends."""

import contextlib
import functools
import hashlib
import itertools
import json
import math
import random
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import ConfigError, RunFailed
from gateway.events import Event, NodeFinished, NodeStarted
from gateway.workflow.engine import EngineLimits, ToolResult, WorkflowOutcome, run_workflow
from gateway.workflow.language import parse_flow
from gateway.workflow.model import JsonValue, ToolNode
from gateway.workflow.node_errors import NodeError, WorkflowFailed

Clock = trio.testing.MockClock


@dataclass
class Recorder:
    """Keeps events as lines such as ``+a1`` (its first start), ``-a ok`` and ``-a failed 2``."""

    lines: list[str] = field(default_factory=list)
    events: list[tuple[str | None, Event]] = field(default_factory=list)

    def emit(self, event: Event, *, node_id: str | None = None) -> None:
        self.events.append((node_id, event))
        match event:
            case NodeStarted():
                self.lines.append(f"+{node_id}{event.iteration}")
            case NodeFinished():
                code = "" if event.exit_code in (None, 0) else f" {event.exit_code}"
                self.lines.append(f"-{node_id} {event.status}{code}")

    @property
    def open(self) -> set[str]:
        """Nodes that were started and never finished."""
        counts: dict[str, int] = {}
        for node_id, event in self.events:
            counts[str(node_id)] = counts.get(str(node_id), 0) + (1 if isinstance(event, NodeStarted) else -1)
        return {name for name, count in counts.items() if count}


@dataclass(frozen=True, kw_only=True)
class Call:
    """What the fake executor was asked to run."""

    node: str
    argv: tuple[str, ...]
    stdin: bytes | None
    env: Mapping[str, str]


Behaviour = Callable[[Call], Awaitable[ToolResult]]


def prints(text: str = "", *, seconds: float = 0.0, exit_code: int = 0, stderr: str = "") -> Behaviour:
    async def behave(call: Call) -> ToolResult:
        await trio.sleep(seconds)
        return ToolResult(exit_code=exit_code, stdout=text.encode(), stderr_tail=stderr)

    return behave


class FakeExecutor:
    """Behaves as each node was told to; a node without a behaviour prints its ``echo`` arguments' values."""

    def __init__(self, **behaviours: Behaviour | list[Behaviour]) -> None:
        self.behaviours = behaviours
        self.calls: list[Call] = []
        self.running = 0
        self.most_running = 0

    async def run_tool(
        self, node_id: str, argv: tuple[str, ...], *, stdin: bytes | None, env: Mapping[str, str], node: ToolNode
    ) -> ToolResult:
        assert node.name == node_id
        call = Call(node=node_id, argv=argv, stdin=stdin, env=env)
        self.calls.append(call)
        behaviour = self.behaviours.get(node_id, echo)
        if isinstance(behaviour, list):
            behaviour = behaviour.pop(0)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            return await behaviour(call)
        finally:
            self.running -= 1


async def echo(call: Call) -> ToolResult:
    """Like ``echo`` with the values of the command, one after the other."""
    await trio.lowlevel.checkpoint()
    return ToolResult(exit_code=0, stdout=" ".join(call.env.values()).encode())


async def play(
    text: str,
    executor: FakeExecutor | None = None,
    *,
    recorder: Recorder | None = None,
    variables: Mapping[str, JsonValue] | None = None,
    limits: EngineLimits | None = None,
) -> WorkflowOutcome:
    return await run_workflow(
        parse_flow(text, file="flow.bot"),
        run_id="run-1",
        variables=variables or {},
        executor=executor or FakeExecutor(),
        events=recorder if recorder is not None else Recorder(),
        environ={"PROJECT_DIR": "/w"},
        limits=limits,
    )


def tools(names: str, command: str = "true", extra: str = "") -> str:
    return "".join(f'tool {name}:\n  command: "{command}"\n{extra}' for name in names)


DIAMOND = (
    "router r:\n  mode: fan_out_all\n"
    + tools("abj")
    + "workflow w:\n  entry: r\n  r -> a\n  r -> b\n  a -> j\n  b -> j\n  j -> done\n"
)


# -- Values -----------------------------------------------------------------------------------------------


async def test_values_flow_from_variables_through_commands_and_mappings(autojump_clock: Clock) -> None:
    executor = FakeExecutor()
    outcome = await play(
        """
vars:
  who: string = "x"
tool a:
  command: "greet {{vars.who}} {{run.id}}"
tool b:
  command: "use {{input.text}} {{outputs.a.output}}"
workflow w:
  entry: a
  a -> b with { text: "<{{outputs.a.output}}>" }
  b -> done
""",
        executor,
        variables={"who": "jo"},
    )
    assert outcome == WorkflowOutcome(
        outputs={"a": {"output": "jo run-1"}, "b": {"output": "<jo run-1> jo run-1"}}, node_starts=2
    )
    assert executor.calls[0].argv[:2] == ("sh", "-c")
    assert executor.calls[0].stdin is None


async def test_a_schema_gives_fields_that_conditions_read(autojump_clock: Clock) -> None:
    text = """
schema verdict:
  approved: bool
  score: float
tool a:
  command: "judge"
  output: verdict
tool b:
  command: "echo {{input.score}}"
workflow w:
  entry: a
  a -> b when approved
  a -> fail
  b -> done
"""
    outcome = await play(text, FakeExecutor(a=prints('log\n{"approved": true, "score": 1}')))
    assert outcome.outputs["a"] == {"approved": True, "score": 1}
    assert outcome.outputs["b"] == {"output": "1"}
    with pytest.raises(WorkflowFailed, match=r"flow\.bot:13:3: 'a' led to 'fail'"):
        await play(text, FakeExecutor(a=prints('{"approved": false, "score": 0.5}')))
    with pytest.raises(NodeError, match=r"flow\.bot:7:11: node 'a': its output does not fit 'verdict': 'score'"):
        await play(text, FakeExecutor(a=prints('{"approved": false}')))


async def test_compute_nodes_compute(autojump_clock: Clock) -> None:
    text = """
schema sum:
  n: int
tool a:
  command: "count"
  output: sum
compute c:
  output: sum
  expr:
    n: "input.n + vars.k"
    all: "concat(outputs.a.n, '-', run.id)"
workflow w:
  vars:
    k: int = 2
  entry: a
  a -> c
  c -> done when "outputs.c.n == 3"
  c -> fail
"""
    executor = FakeExecutor(a=prints('{"n": 1}'))
    outcome = await play(text, executor, variables={"k": 2})
    assert outcome.outputs["c"] == {"n": 3, "all": "1-run-1"}
    with pytest.raises(NodeError, match=r"flow\.bot:10:17: node 'c': n: '\+' needs two numbers"):
        await play(text, FakeExecutor(a=prints('{"n": 1}')), variables={"k": "x"})
    with pytest.raises(NodeError, match=r"flow\.bot:8:11: node 'c': its output does not fit 'sum': 'n'"):
        await play(text, FakeExecutor(a=prints('{"n": 1}')), variables={"k": 0.5})


async def test_a_compute_node_without_a_schema_may_compute_anything(autojump_clock: Clock) -> None:
    outcome = await play(
        'compute c:\n  expr:\n    list: "unique(concat(vars.l, vars.l))"\n'
        "workflow w:\n  vars:\n    l: json = []\n  entry: c\n  c -> done\n",
        variables={"l": [1, 2]},
    )
    assert outcome.outputs["c"] == {"list": [1, 2]}


async def test_an_input_that_does_not_fit_its_schema_fails_the_node(autojump_clock: Clock) -> None:
    text = """
schema request:
  n: int
tool a:
  command: "true"
tool b:
  command: "true"
  input: request
workflow w:
  entry: a
  a -> b with { n: "{{outputs.a.output}}" }
  b -> done
"""
    with pytest.raises(NodeError, match=r"flow\.bot:8:10: node 'b': its input does not fit 'request': 'n': wanted"):
        await play(text)
    assert (await play(text.replace("n: int", "n: string"))).node_starts == 2


async def test_a_script_is_given_to_its_interpreter(autojump_clock: Clock) -> None:
    executor = FakeExecutor()
    await play(
        "tool a:\n  language: py\n  script: |\n    print({{run.id}})\nworkflow w:\n  entry: a\n  a -> done\n", executor
    )
    (call,) = executor.calls
    assert call.argv[:2] == ("python3", "-c")
    assert list(call.env.values()) == ['"run-1"']


async def test_a_command_without_its_value_fails_the_node_at_the_reference(autojump_clock: Clock) -> None:
    recorder = Recorder()
    with pytest.raises(NodeError, match=r"flow\.bot:2:18: node 'a': \{\{input\.none\}\}: input has no 'none'"):
        await play(
            'tool a:\n  command: "echo {{input.none}}"\nworkflow w:\n  entry: a\n  a -> done\n', recorder=recorder
        )
    assert recorder.lines == ["+a1", "-a failed"]


# -- Order ------------------------------------------------------------------------------------------------


async def test_branches_run_at_the_same_time_and_meet(autojump_clock: Clock) -> None:
    recorder = Recorder()
    began = trio.current_time()
    outcome = await play(DIAMOND, FakeExecutor(a=prints("A", seconds=3), b=prints("B", seconds=2)), recorder=recorder)
    assert trio.current_time() - began == 3
    assert recorder.lines == ["+r1", "-r ok", "+a1", "+b1", "-b ok", "-a ok", "+j1", "-j ok"]
    assert outcome.outputs["j"] == {"output": ""}
    durations = {node: event.duration_ms for node, event in recorder.events if isinstance(event, NodeFinished)}
    assert durations == {"r": 0, "a": 3000, "b": 2000, "j": 0}


async def test_the_budget_bounds_how_many_run_at_once(autojump_clock: Clock) -> None:
    names = "abcdefgh"
    text = (
        "router r:\n  mode: fan_out_all\n"
        + tools(names)
        + "workflow w:\n  entry: r\n  budget:\n    max_parallel_branches: 3\n"
        + "".join(f"  r -> {name}\n  {name} -> done\n" for name in names)
    )
    executor = FakeExecutor(**{name: prints(seconds=1) for name in names})
    began = trio.current_time()
    await play(text, executor)
    assert executor.most_running == 3
    assert trio.current_time() - began == 3
    unbounded = FakeExecutor(**{name: prints(seconds=1) for name in names})
    text = text.replace("  budget:\n    max_parallel_branches: 3\n", "")
    await play(text, unbounded, limits=EngineLimits(max_parallel_branches=5))
    assert unbounded.most_running == 5


async def test_a_loop_repeats_until_its_condition_or_its_limit(autojump_clock: Clock) -> None:
    text = (
        tools("a", "try {{loop.again.iteration}}", "  output: s\n")
        + "schema s:\n  ok: bool\nworkflow w:\n  entry: a\n  a -> a when not ok as again(3)\n  a -> done\n"
    )

    def after(good: int) -> Behaviour:
        async def behave(call: Call) -> ToolResult:
            await trio.lowlevel.checkpoint()
            found = int(call.env["ITERION_VALUE_1"])
            return ToolResult(exit_code=0, stdout=json.dumps({"ok": found >= good}).encode())

        return behave

    recorder = Recorder()
    outcome = await play(text, FakeExecutor(a=after(2)), recorder=recorder)
    assert recorder.lines == ["+a1", "-a ok", "+a2", "-a ok", "+a3", "-a ok"]
    assert outcome.outputs["a"] == {"ok": True}
    outcome = await play(text, FakeExecutor(a=after(9)))
    assert (outcome.outputs["a"], outcome.node_starts) == ({"ok": False}, 4)
    with pytest.raises(NodeError, match=r"no edge is left: the limit of again \(3\) is reached"):
        await play(text.replace("  a -> done\n", "  a -> done when ok\n"), FakeExecutor(a=after(9)))


# -- Failures -----------------------------------------------------------------------------------------------


async def test_a_failing_command_fails_the_run_and_says_how(autojump_clock: Clock) -> None:
    recorder = Recorder()
    text = tools("ab") + "workflow w:\n  entry: a\n  a -> b\n  b -> done\n"
    with pytest.raises(NodeError) as caught:
        await play(text, FakeExecutor(a=prints("out", exit_code=3, stderr="cannot\nopen x\n")), recorder=recorder)
    assert str(caught.value) == "flow.bot:1:6: node 'a': exit code 3\ncannot\nopen x"
    assert (caught.value.node, caught.value.command_exit_code) == ("a", 3)
    assert isinstance(caught.value, RunFailed)
    assert recorder.lines == ["+a1", "-a failed 3"]
    with pytest.raises(NodeError, match="exit code 137, and nothing on stderr"):
        await play(text, FakeExecutor(a=prints(exit_code=137)))


async def test_a_long_error_output_is_cut_at_its_head(autojump_clock: Clock) -> None:
    text = tools("a") + "workflow w:\n  entry: a\n  a -> done\n"
    executor = FakeExecutor(a=prints(exit_code=1, stderr="x" * 99 + "the end"))
    with pytest.raises(NodeError) as caught:
        await play(text, executor, limits=EngineLimits(max_error_chars=7))
    assert str(caught.value).endswith("exit code 1\nthe end")


async def test_a_failure_cancels_the_other_branches(autojump_clock: Clock) -> None:
    recorder = Recorder()
    began = trio.current_time()
    with pytest.raises(NodeError, match="node 'b'"):
        await play(DIAMOND, FakeExecutor(a=prints(seconds=60), b=prints(seconds=1, exit_code=1)), recorder=recorder)
    assert trio.current_time() - began == 1
    assert recorder.lines[-2:] == ["-b failed 1", "-a cancelled"]


async def test_a_best_effort_join_goes_on_with_what_there_is(autojump_clock: Clock) -> None:
    recorder = Recorder()
    text = DIAMOND.replace('tool j:\n  command: "true"\n', 'tool j:\n  command: "true"\n  await: best_effort\n')
    executor = FakeExecutor(a=prints("A", seconds=5), b=prints(seconds=1, exit_code=1))
    outcome = await play(text, executor, recorder=recorder)
    assert recorder.lines == ["+r1", "-r ok", "+a1", "+b1", "-b failed 1", "-a ok", "+j1", "-j ok"]
    assert set(outcome.outputs) == {"r", "a", "j"}
    with pytest.raises(NodeError, match="node 'a'"):
        await play(text, FakeExecutor(a=prints(seconds=2, exit_code=1), b=prints(exit_code=1)))


async def test_an_edge_that_cannot_be_taken_fails_its_node_like_a_command(autojump_clock: Clock) -> None:
    text = DIAMOND.replace("  a -> j\n", '  a -> j with { k: "{{outputs.a.none}}" }\n')
    with pytest.raises(NodeError, match="the edge to 'j' cannot be taken"):
        await play(text)
    tolerant = text.replace('tool j:\n  command: "true"\n', 'tool j:\n  command: "true"\n  await: best_effort\n')
    assert (await play(tolerant)).node_starts == 4


async def test_fail_cancels_what_still_runs(autojump_clock: Clock) -> None:
    recorder = Recorder()
    text = DIAMOND.replace("  b -> j\n", "  b -> fail\n")
    with pytest.raises(WorkflowFailed, match="'b' led to 'fail'"):
        await play(text, FakeExecutor(a=prints(seconds=60)), recorder=recorder)
    assert recorder.lines[-1] == "-a cancelled"


async def test_an_error_of_the_executor_leaves_as_it_is(autojump_clock: Clock) -> None:
    class Lost(Exception):
        pass

    async def lose(call: Call) -> ToolResult:
        await trio.sleep(1)
        raise Lost("the sandbox died")

    recorder = Recorder()
    text = DIAMOND.replace('tool j:\n  command: "true"\n', 'tool j:\n  command: "true"\n  await: best_effort\n')
    with pytest.raises(ExceptionGroup) as caught:
        await play(text, FakeExecutor(a=prints(seconds=60), b=lose), recorder=recorder)
    assert [type(error) for error in caught.value.exceptions] == [Lost]
    assert sorted(recorder.lines[-2:]) == ["-a cancelled", "-b failed"]
    (failed,) = [event for _, event in recorder.events if isinstance(event, NodeFinished) and event.error]
    assert failed.error == "Lost: the sandbox died"


# -- Limits -------------------------------------------------------------------------------------------------


async def test_the_budget_bounds_the_time(autojump_clock: Clock) -> None:
    recorder = Recorder()
    text = tools("a") + 'workflow w:\n  entry: a\n  budget:\n    max_duration: "30m"\n  a -> done\n'
    began = trio.current_time()
    with pytest.raises(WorkflowFailed, match=r"flow\.bot:5:3: the budget of max_duration 30m is used up"):
        await play(text, FakeExecutor(a=prints(seconds=3600)), recorder=recorder)
    assert trio.current_time() - began == 1800
    assert recorder.lines == ["+a1", "-a cancelled"]
    await play(text, FakeExecutor(a=prints(seconds=1799)))


async def test_the_budget_bounds_the_nodes_that_are_started(autojump_clock: Clock) -> None:
    text = tools("ab") + "workflow w:\n  entry: a\n  budget:\n    max_iterations: 1\n  a -> b\n  b -> done\n"
    recorder = Recorder()
    with pytest.raises(WorkflowFailed, match=r"the budget of max_iterations 1 is used up \(before node 'b'\)"):
        await play(text, recorder=recorder)
    assert recorder.lines == ["+a1", "-a ok"]
    endless = tools("a") + "workflow w:\n  entry: a\n  a -> a as again(1000000)\n  a -> done\n"
    with pytest.raises(WorkflowFailed, match="more than 50 nodes were started"):
        await play(endless, limits=EngineLimits(max_node_starts=50))


async def test_cancellation_ends_every_node(autojump_clock: Clock) -> None:
    recorder = Recorder()
    executor = FakeExecutor(a=prints(seconds=60), b=prints(seconds=60))
    with trio.move_on_after(1) as scope:
        await play(DIAMOND, executor, recorder=recorder)
    assert scope.cancelled_caught
    assert sorted(recorder.lines[-2:]) == ["-a cancelled", "-b cancelled"]
    assert executor.running == 0


# -- What this version does not have ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        ('agent x:\n  model: "m"\n  user: p\nprompt p:\n  text\n', "flow.bot:1:7: agent 'x': agent nodes are not part"),
        ('judge x:\n  model: "m"\n  user: p\nprompt p:\n  text\n', "judge 'x': judge nodes are not part"),
        ("human x:\n  instructions: p\nprompt p:\n  text\n", "human 'x': human nodes are not part"),
        ('router x:\n  mode: llm\n  model: "m"\n', "router 'x': the mode 'llm' is not part"),
        (tools("x") + "attachments:\n  spec: file\n    required: true\n", "attachment 'spec' is required"),
    ],
)
async def test_later_work_is_refused_by_name_before_anything_starts(declaration: str, message: str) -> None:
    recorder = Recorder()
    with pytest.raises(ConfigError) as caught:
        await play(declaration + tools("a") + "workflow w:\n  entry: a\n  a -> x\n  x -> done\n", recorder=recorder)
    assert message in str(caught.value)
    assert caught.value.cure is not None
    assert recorder.lines == []


async def test_an_attachment_that_is_not_required_is_no_obstacle(autojump_clock: Clock) -> None:
    text = "attachments:\n  spec: file\n" + tools("a") + "workflow w:\n  entry: a\n  a -> done\n"
    assert (await play(text)).node_starts == 1


# -- Any graph, any timing ------------------------------------------------------------------------------------
#
# A random program is written in two ways: as a flow, which the engine runs with random durations, and as a tree, which
# the sequential reference below evaluates. Each tool prints a digest of its name and its input, so equal outputs
# mean that every node saw the same values.


@dataclass(frozen=True)
class Step:
    """One tool; ``fails`` only where a best-effort join goes on without it."""

    fails: bool = False


@dataclass(frozen=True)
class Sequence:
    parts: tuple["Program", ...]


@dataclass(frozen=True)
class Parallel:
    branches: tuple["Program", ...]
    best_effort: bool = False


@dataclass(frozen=True)
class Choice:
    then: "Program"
    otherwise: "Program"


@dataclass(frozen=True)
class Repeat:
    body: "Program"
    limit: int


Program = Step | Sequence | Parallel | Choice | Repeat


def digest(name: str, values: list[str]) -> str:
    return hashlib.sha256("/".join([name, *values]).encode()).hexdigest()[:6]


def holds(value: str) -> bool:
    """The condition of choices and repetitions: ``contains(output, '1')`` or the like."""
    return "1" in value or "2" in value


CONDITION = "contains(outputs.{0}.output, '1') || contains(outputs.{0}.output, '2')"


class Writer:
    """Writes a program as a flow. Every part has one first and one last node; values travel in ``input.v``."""

    def __init__(self) -> None:
        self.nodes: list[str] = []
        self.edges: list[str] = []
        self.failing: set[str] = set()
        self.count = 0

    def name(self, kind: str) -> str:
        self.count += 1
        return f"{kind}{self.count}"

    def tool(self, kind: str = "t", *, keys: tuple[str, ...] = ("v",), best_effort: bool = False) -> str:
        name = self.name(kind)
        values = " ".join(f"{{{{input.{key}}}}}" for key in keys)
        awaits = "  await: best_effort\n" if best_effort else ""
        self.nodes.append(f'tool {name}:\n  command: "x {values}"\n{awaits}')
        return name

    def edge(self, source: str, target: str, *, key: str = "v", rest: str = "") -> None:
        value = "{{input.v}}" if source.startswith("r") else f"{{{{outputs.{source}.output}}}}"
        self.edges.append(f'  {source} -> {target} {rest} with {{ {key}: "{value}" }}\n')

    def write(self, program: Program) -> tuple[str, str]:
        match program:
            case Step():
                name = self.tool()
                if program.fails:
                    self.failing.add(name)
                return name, name
            case Sequence():
                ends = [self.write(part) for part in program.parts]
                for (_, last), (first, _) in itertools.pairwise(ends):
                    self.edge(last, first)
                return ends[0][0], ends[-1][1]
            case Parallel():
                return self.parallel(program)
            case Choice():
                fork = self.tool("c")
                ends = [self.write(program.then), self.write(program.otherwise)]
                merge = self.tool("m")
                self.edge(fork, ends[1][0])
                self.edge(fork, ends[0][0], rest=f'when "{CONDITION.format(fork)}"')
                for _, last in ends:
                    self.edge(last, merge)
                return fork, merge
            case Repeat():
                first, last = self.write(program.body)
                loop = self.name("l")
                rest = f'when "{CONDITION.format(last)}" as {loop}({program.limit})'
                self.edge(last, first, rest=rest)
                after = self.tool("e")
                self.edge(last, after)
                return first, after

    def parallel(self, program: Parallel) -> tuple[str, str]:
        first = self.tool("f")
        router = self.name("r")
        self.nodes.append(f"router {router}:\n  mode: fan_out_all\n")
        self.edge(first, router)
        keys = () if program.best_effort else tuple(f"v{index}" for index in range(len(program.branches)))
        ends = [self.write(branch) for branch in program.branches]
        join = self.tool("j", keys=keys, best_effort=program.best_effort)
        for index, (start, last) in enumerate(ends):
            self.edge(router, start)
            self.edge(last, join, key=f"v{index}")
        return first, join

    def flow(self, program: Program) -> str:
        start = self.name("s")
        self.nodes.append(f'tool {start}:\n  command: "x"\n')
        first, last = self.write(program)
        self.edge(start, first)
        text = "".join(self.nodes) + f"workflow w:\n  entry: {start}\n" + "".join(self.edges)
        return text + f"  {last} -> done\n"


class Failed(Exception):
    """A step of the reference failed."""


class Reference:
    """Evaluates a program one step after the other, giving out names in the order of `Writer`."""

    def __init__(self) -> None:
        self.outputs: dict[str, str] = {}
        self.starts = 0
        self.loops: dict[str, int] = {}

    def tool(self, name: str, *values: str) -> str:
        self.starts += 1
        self.outputs[name] = digest(name, list(values))
        return self.outputs[name]

    def plan(self, program: Program, names: Writer) -> Callable[[str], str]:
        """The function from a part's input to its output; makes names as `Writer.write` does."""
        match program:
            case Step():
                name = names.name("t")
                return functools.partial(self.fail if program.fails else self.tool, name)
            case Sequence():
                parts = [self.plan(part, names) for part in program.parts]
                return lambda value: functools.reduce(lambda seen, part: part(seen), parts, value)
            case Parallel():
                first = names.name("f")
                names.name("r")
                branches = [self.plan(branch, names) for branch in program.branches]
                join = names.name("j")
                return lambda value: self.parallel(program, first, branches, join, value)
            case Choice():
                fork = names.name("c")
                then, otherwise = self.plan(program.then, names), self.plan(program.otherwise, names)
                merge = names.name("m")

                def choose(value: str) -> str:
                    seen = self.tool(fork, value)
                    return self.tool(merge, (then if holds(seen) else otherwise)(seen))

                return choose
            case Repeat():
                body = self.plan(program.body, names)
                loop, after = names.name("l"), names.name("e")

                def repeat(value: str) -> str:
                    seen = body(value)
                    while holds(seen) and self.loops.get(loop, 0) < program.limit:
                        self.loops[loop] = self.loops.get(loop, 0) + 1
                        seen = body(seen)
                    return self.tool(after, seen)

                return repeat

    def fail(self, name: str, value: str) -> str:
        self.starts += 1
        raise Failed

    def parallel(
        self, program: Parallel, first: str, branches: list[Callable[[str], str]], join: str, value: str
    ) -> str:
        seen = self.tool(first, value)
        self.starts += 1  # the router
        values = []
        for branch in branches:
            with contextlib.suppress(Failed):
                values.append(branch(seen))
        return self.tool(join, *([] if program.best_effort else values))

    def run(self, program: Program) -> None:
        names = Writer()
        start = names.name("s")
        self.plan(program, names)(self.tool(start))


def programs() -> st.SearchStrategy[Program]:
    chain = st.lists(st.just(Step()), min_size=1, max_size=3).map(lambda steps: Sequence(tuple(steps)))
    failing = chain.map(lambda steps: Sequence((*steps.parts, Step(fails=True), Step())))
    tolerant = st.builds(
        lambda good, others: Parallel((good, *others), best_effort=True),
        chain,
        st.lists(chain | failing, min_size=1, max_size=3),
    )

    def grow(inner: st.SearchStrategy[Program]) -> st.SearchStrategy[Program]:
        several = st.lists(inner, min_size=2, max_size=3).map(tuple)
        return st.one_of(
            several.map(Sequence),
            several.map(Parallel),
            st.builds(Choice, inner, inner),
            st.builds(Repeat, inner, st.integers(1, 3)),
        )

    return st.recursive(st.one_of(st.just(Step()), tolerant), grow, max_leaves=8)


async def execute(program: Program, seed: int, branches: int, cancel_after: float) -> WorkflowOutcome | None:
    writer = Writer()
    text = writer.flow(program)
    chance = random.Random(seed)
    recorder = Recorder()

    async def behave(call: Call) -> ToolResult:
        await trio.sleep(chance.choice([0, 0, 1, 2, 7]))
        if call.node in writer.failing:
            return ToolResult(exit_code=1, stdout=b"")
        references = re.findall(r"ITERION_VALUE_[0-9]+", call.argv[-1])
        return ToolResult(exit_code=0, stdout=digest(call.node, [call.env[name] for name in references]).encode())

    executor = FakeExecutor()
    executor.behaviours = dict.fromkeys(re.findall(r"^tool (\w+):", text, re.MULTILINE), behave)
    outcome = None
    with trio.move_on_after(cancel_after):
        outcome = await play(text, executor, recorder=recorder, limits=EngineLimits(max_parallel_branches=branches))
    assert recorder.open == set()
    assert executor.running == 0
    assert executor.most_running <= branches
    return outcome


@settings(deadline=None, max_examples=150)
@given(programs(), st.integers(0, 2**32), st.integers(1, 4))
def test_any_program_ends_as_it_would_one_step_after_the_other(program: Program, seed: int, branches: int) -> None:
    reference = Reference()
    reference.run(program)
    outcome = trio.run(execute, program, seed, branches, math.inf, clock=Clock(autojump_threshold=0))
    assert outcome is not None
    found = {name: output["output"] for name, output in outcome.outputs.items() if not name.startswith("r")}
    assert found == reference.outputs
    assert outcome.node_starts == reference.starts


@settings(deadline=None, max_examples=60)
@given(programs(), st.integers(0, 2**32), st.integers(1, 4), st.integers(0, 30))
def test_any_program_can_be_cancelled_at_any_time(program: Program, seed: int, branches: int, after: int) -> None:
    trio.run(execute, program, seed, branches, after + 0.5, clock=Clock(autojump_threshold=0))
