"""What declarations mean together: every code with a file that has it and one beside it that has not."""

import pytest

from gateway.workflow.check import CAPABILITIES
from tests.gateway.workflow.helpers import found, only

END = "workflow w:\n  entry: a\n  a -> done\n"
TOOL = 'tool a:\n  command: "x"\n'


def agent(*lines: str) -> str:
    return "agent a:\n" + "".join(f"  {line}\n" for line in lines) + END


@pytest.mark.parametrize("key", ["input", "output"])
def test_c002_an_unknown_schema(key: str) -> None:
    text = "schema result:\n  ok: bool\n" + agent(f"{key}: reslt")
    assert found(text) == [f"C002 4:{len(key) + 5}"]
    assert only(text).hint == "did you mean 'result'?"
    assert only(agent(f"{key}: other")).hint == "write 'schema other:'"
    assert found("schema result:\n  ok: bool\n" + agent(f"{key}: result")) == []


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("agent", "system"),
        ("judge", "user"),
        ("agent", "interaction_prompt"),
        ("router", "system"),
        ("router", "user"),
        ("human", "instructions"),
        ("human", "system"),
        ("human", "interaction_prompt"),
    ],
)
def test_c003_an_unknown_prompt(kind: str, key: str) -> None:
    text = f"{kind} a:\n  {key}: pp\n{END}"
    assert found(text) == [f"C003 2:{len(key) + 5}"]
    assert only(text).hint == "write 'prompt pp:'"
    assert found("prompt pp:\n  x\n" + text) == []


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("prompt p:\n  fine\n  a {{oops}} b\n" + TOOL + END, "3:5"),
        ('tool a:\n  command: "x {{vars}}"\n' + END, "2:15"),
        ("tool a:\n  language: py\n  script: |\n    a\n    {{oops\n" + END, "5:5"),
        (
            TOOL
            + "tool b:\n  command: `one\ntwo {{x}}`\n"
            + END.replace("done", 'b with { k: "v" }')
            + "  b -> done\n",
            "5:5",
        ),
        (TOOL + END.replace("done", 'done with { k: "ab{{run.no}}" }'), "5:26"),
    ],
)
def test_c004_a_malformed_template(text: str, place: str) -> None:
    assert found(text) == [f"C004 {place}"]


def test_c004_not_in_other_texts() -> None:
    assert found('vars:\n  a: string = "{{x}}"\n' + agent('model: "{{x}}"')) == []


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("prompt p:\n  {{outputs.b.x}}\n" + TOOL + END, "2:3"),
        (TOOL + END + '  a -> fail when "outputs.b.ok"\n', "6:19"),
        ('compute a:\n  expr:\n    x: "1 + length(outputs.b)"\n' + END, "3:20"),
    ],
)
def test_c029_the_output_of_an_unknown_node(text: str, place: str) -> None:
    assert found(text) == [f"C029 {place}"]
    assert found(text.replace("outputs.b", "outputs.a")) == []


def test_c030_codex() -> None:
    assert found(agent('backend: "codex"')) == ["C030 2:13"]
    assert found(agent("backend: claude_code")) == []
    assert found("router a:\n  backend: codex\n" + END) == ["C030 2:12"]
    assert found(TOOL + END + '  default_backend: "codex"\n') == ["C030 6:21"]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("prompt p:\n  {{vars.nam}}\n" + TOOL + END, "2:3"),
        ('tool a:\n  command: "{{vars.nam}}"\n' + END, "2:13"),
        (TOOL + END + '  a -> fail when "vars.nam == 1"\n', "6:19"),
        (TOOL + END + "presets:\n  p:\n    nam: 1\n", "8:5"),
    ],
)
def test_c033_an_undeclared_variable(text: str, place: str) -> None:
    assert found(text) == [f"C033 {place}"]
    assert only(text + "vars:\n  name: int = 1\n").hint == "did you mean 'name'?"
    assert found(text + "vars:\n  nam: int = 1\n") == []


def test_a_whole_namespace_needs_no_declaration() -> None:
    assert found(TOOL + END + '  a -> fail when "length(vars) > 0 && length(outputs) > 0"\n') == []


def test_c080_an_unknown_capability() -> None:
    assert found(agent("capabilities: [board.reed]")) == ["C080 2:3"]
    assert only(agent("capabilities: [board.reed]")).hint == "did you mean 'board.read'?"
    assert only(agent("capabilities: [x.y]")).hint == "there are " + ", ".join(CAPABILITIES)
    assert found(TOOL + END + "  capabilities: [a.b]\n") == ["C080 6:3"]
    assert found(agent(f"capabilities: [{', '.join(CAPABILITIES)}, board.*]")) == []


@pytest.mark.parametrize("name", ["board", "Board.read", "board.read.x", '"board."', '".read"', '"a b.c"', '"*"'])
def test_c081_a_malformed_capability(name: str) -> None:
    assert found(agent(f"capabilities: [{name}]")) == ["C081 2:3"]


def sandbox(*lines: str, node: bool = False) -> list[str]:
    body = "".join(f"    {line}\n" for line in lines)
    if node:
        return found(f'tool a:\n  command: "x"\n  sandbox:\n{body}' + END)
    return found(TOOL + END + f"  sandbox:\n{body}")


def test_c044_an_inline_sandbox_needs_exactly_one_of_image_and_build() -> None:
    assert sandbox('image: "i"') == []
    assert sandbox("build:", '  dockerfile: "D"') == []
    assert sandbox("mode: inline", 'image: "i"') == []
    assert sandbox('image: "i"', "build:", '  dockerfile: "D"') == ["C044 8:5"]
    assert sandbox('user: "1"') == ["C044 6:3"]
    assert sandbox("mode: inline") == ["C044 7:11"]
    assert sandbox("mode: auto", 'user: "1"') == []
    assert found(TOOL + END + "  sandbox: inline\n") == ["C044 6:12"]
    assert found(TOOL + END + "  sandbox: auto\n") == []


def test_c044_a_node_may_refine_without_an_image() -> None:
    assert sandbox("network:", '  rules: ["a.example"]', node=True) == []
    assert sandbox("mode: inline", node=True) == ["C044 4:11"]


def test_c044_rules_need_a_mode() -> None:
    image = 'image: "i"'
    assert sandbox(image, "network:", '  rules: ["a.example"]') == ["C044 9:7"]
    assert sandbox(image, "network:", "  preset: iterion-default") == ["C044 9:15"]
    assert sandbox(image, "network:", "  mode: allowlist", '  rules: ["a.example"]') == []
    assert sandbox(image, "network:", "  tls: inspect") == []


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("mode: atuo", "did you mean 'auto'?"),
        ("host_state: all", ""),
    ],
)
def test_c044_an_unknown_word(line: str, hint: str) -> None:
    finding = only(TOOL + END + f'  sandbox:\n    image: "i"\n    {line}\n')
    assert (finding.code, finding.hint) == ("C044", hint)


@pytest.mark.parametrize("line", ["mode: closed", "inherit: all", "enforcement: no", "tls: mitm"])
def test_c044_an_unknown_word_in_the_network(line: str) -> None:
    assert sandbox('image: "i"', "network:", "  " + line) == [f"C044 9:{line.index(':') + 9}"]


def test_c128_no_sandbox() -> None:
    assert found(TOOL + END + "  sandbox: none\n") == ["C128 6:12"]
    assert found('tool a:\n  command: "x"\n  sandbox: none\n' + END) == ["C128 3:12"]
    assert sandbox("mode: none") == ["C128 7:11"]
    assert found(TOOL + END + "  sandbox: auto\n") == []
