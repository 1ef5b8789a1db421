"""``iterion run`` from the file to the exit code, in real sandboxes; every run leaves a whole record."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.iterion import Iterion, Run, answer_http, check_record, tcp_server

pytestmark = pytest.mark.real

FETCH = (
    "python3 -c 'import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=10).read().decode())' "
)


@pytest.fixture
def origin() -> Iterator[int]:
    with tcp_server(answer_http) as port:
        yield port


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=Jo", "-c", "user.email=jo@example.com", "-c", "commit.gpgsign=false")
    done = subprocess.run(
        ["git", *identity, *arguments],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder.parent / "home"), "GIT_CONFIG_NOSYSTEM": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return done.stdout


@pytest.fixture
def repository(iterion: Iterion) -> Path:
    """Make the working directory a repository with one commit."""
    iterion.write("file", "first\n")
    git(iterion.folder, "init", "-q", "-b", "main")
    git(iterion.folder, "add", "file")
    git(iterion.folder, "commit", "-q", "-m", "first")
    return iterion.folder


def flow(
    iterion: Iterion, nodes: str, edges: str, *, sandbox: str = "sandbox: auto", top: str = "", name: str = "flow.bot"
) -> str:
    """Write a workflow whose entry is ``a``; a block of the workflow is indented by two."""
    lines = [*top.splitlines(), *nodes.splitlines(), "workflow w:", "  entry: a"]
    lines += [f"  {line}" for line in [*sandbox.splitlines(), *edges.splitlines()]]
    iterion.write(name, "\n".join(lines) + "\n")
    return name


def run(
    iterion: Iterion, name: str = "flow.bot", *arguments: str, code: int = 0, env: dict[str, str] | None = None
) -> Run:
    """Run a workflow that must end with ``code``."""
    done = iterion.run("run", name, *arguments, env=env)
    assert done.returncode == code, done.stderr.decode()
    assert done.stdout == b""
    assert b"Traceback" not in done.stderr
    result = iterion.last
    assert result.record["exit_code"] == code
    return result


def refused(
    iterion: Iterion, name: str = "flow.bot", *arguments: str, code: int, env: dict[str, str] | None = None
) -> str:
    """Run a workflow that must be refused before anything is started; returns what is said."""
    done = iterion.run("run", name, *arguments, env=env)
    assert done.returncode == code, done.stderr.decode()
    assert b"Traceback" not in done.stderr
    assert not list((iterion.store / "runs").glob("*"))
    return done.stderr.decode()


def nodes_of(result: Run) -> list[tuple[str, str]]:
    """Return which node ended how, in order."""
    return [(event["node_id"], event["data"]["status"]) for event in result.events if event["type"] == "node_finished"]


# What a workflow can be made of


def test_one_node_after_the_other(iterion: Iterion) -> None:
    nodes = 'tool a:\n  command: "echo one > trace"\ntool b:\n  command: "cat trace; echo two >> trace"'
    flow(iterion, nodes, "a -> b\nb -> done")
    result = run(iterion)
    assert (iterion.folder / "trace").read_text() == "one\ntwo\n"
    assert nodes_of(result) == [("a", "ok"), ("b", "ok")]
    assert result.record["flow"] == str(iterion.folder / "flow.bot")
    assert result.of("sandbox_started")[0]["driver"] == "bubblewrap"


def test_a_loop_ends_when_its_condition_or_its_limit_says(iterion: Iterion) -> None:
    top = "schema count:\n  n: int\n  enough: bool"
    nodes = (
        "tool a:\n  output: count\n  command: |\n"
        "    echo x >> trace; n=$(wc -l < trace); [ $n -ge 3 ] && e=true || e=false\n"
        '    echo "{\\"n\\": $n, \\"enough\\": $e}"\n'
        'tool b:\n  command: "echo {{outputs.a.n}} in round {{loop.again.iteration}} >> last"'
    )
    flow(iterion, nodes, "a -> b when enough\na -> a when not enough as again(5)\nb -> done", top=top)
    result = run(iterion)
    assert nodes_of(result) == [("a", "ok")] * 3 + [("b", "ok")]
    assert (iterion.folder / "last").read_text() == "3 in round 2\n"
    assert [data["iteration"] for data in result.of("node_started")] == [1, 2, 3, 1]


def test_branches_run_at_the_same_time_and_join(iterion: Iterion) -> None:
    wait = "for i in $(seq 500); do [ -e {other} ] && exit 0; sleep 0.02; done; exit 1"
    nodes = (
        "router a:\n  mode: fan_out_all\n"
        f'tool left:\n  command: "touch l; {wait.format(other="r")}"\n'
        f'tool right:\n  command: "touch r; {wait.format(other="l")}"\n'
        'tool join:\n  await: wait_all\n  command: "echo joined"'
    )
    flow(iterion, nodes, "a -> left\na -> right\nleft -> join\nright -> join\njoin -> done")
    result = run(iterion)
    assert sorted(nodes_of(result)) == [("a", "ok"), ("join", "ok"), ("left", "ok"), ("right", "ok")]
    assert nodes_of(result)[-1] == ("join", "ok")


HOSTILE = "'; touch pwned; \" $(touch pwned) `touch pwned` \\ & | < > * ~ $HOME ${X} \n {{vars.x}} é \u202e %s !"


@pytest.mark.parametrize("language", ["sh", "bash", "py"])
def test_values_are_data_wherever_they_go(iterion: Iterion, language: str) -> None:
    script = {
        "sh": "printf %s {{input.value}} > seen; printf %s {{vars.x}} > seen2",
        "bash": "printf %s {{input.value}} > seen; printf %s {{vars.x}} > seen2",
        "py": "open('seen', 'w').write({{input.value}}); open('seen2', 'w').write({{vars.x}})",
    }[language]
    nodes = (
        "schema text:\n  value: string\n"
        'tool a:\n  command: "printf %s {{vars.x}}"\n'
        f"tool b:\n  input: text\n  language: {language}\n  script: |\n    {script}"
    )
    flow(iterion, nodes, 'a -> b with { value: "{{outputs.a.output}}" }\nb -> done', top="vars:\n  x: string")
    run(iterion, "flow.bot", "--var", f"x={HOSTILE}")
    assert (iterion.folder / "seen").read_text() == HOSTILE
    assert (iterion.folder / "seen2").read_text() == HOSTILE
    assert not (iterion.folder / "pwned").exists()


def test_variables_have_types_defaults_and_presets(iterion: Iterion) -> None:
    top = 'vars:\n  n: int = 3\n  who: string = "nobody"\npresets:\n  loud:\n    who: "EVERYBODY"'
    flow(iterion, 'tool a:\n  command: "echo {{vars.n}} {{vars.who}} > seen"', "a -> done", top=top)
    run(iterion)
    assert (iterion.folder / "seen").read_text() == "3 nobody\n"
    result = run(iterion, "flow.bot", "--var", "n=4", "--preset", "loud")
    assert (iterion.folder / "seen").read_text() == "4 EVERYBODY\n"
    assert result.record["vars"] == {"n": 4, "who": "EVERYBODY"}
    assert iterion.run("run", "flow.bot", "--var", "n=x").returncode == 2
    assert iterion.run("run", "flow.bot", "--var", "absent=x").returncode == 2
    assert iterion.run("run", "flow.bot", "--preset", "absent").returncode == 2


def test_a_node_knows_its_run_and_its_place(iterion: Iterion) -> None:
    flow(
        iterion,
        'tool a:\n  command: "echo $ITERION_RUN_ID $ITERION_NODE_ID $PROJECT_DIR {{run.id}} > seen"',
        "a -> done",
    )
    result = run(iterion)
    identity = result.record["run_id"]
    assert (iterion.folder / "seen").read_text().split() == [identity, "a", str(iterion.folder), identity]


def test_output_is_checked_against_its_schema(iterion: Iterion) -> None:
    top = 'schema s:\n  n: int\n  kind: string [enum: "x", "y"]'
    flow(
        iterion,
        'tool a:\n  output: s\n  command: |\n    echo log; echo \'{"n": 1, "kind": "z"}\'',
        "a -> done",
        top=top,
    )
    result = run(iterion, code=1)
    assert "its output does not fit 's'" in result.record["error"]
    assert nodes_of(result) == [("a", "failed")]


# How a workflow fails


def test_a_failed_command_fails_the_run_and_says_why(iterion: Iterion) -> None:
    flow(
        iterion,
        'tool a:\n  command: "echo the reason >&2; exit 3"\ntool b:\n  command: "touch ran"',
        "a -> b\nb -> done",
    )
    done = iterion.run("run", "flow.bot")
    assert done.returncode == 1
    result = iterion.last
    assert "the reason" in result.record["error"]
    assert "exit code 3" in result.of("run_failed")[0]["error"]
    assert "flow.bot:1" in done.stderr.decode()
    assert result.of("node_finished")[0]["exit_code"] == 3
    assert not (iterion.folder / "ran").exists()


def test_fail_is_1(iterion: Iterion) -> None:
    top = "schema s:\n  good: bool"
    nodes = "tool a:\n  output: s\n  command: |\n    echo '{\"good\": false}'"
    flow(iterion, nodes, "a -> done when good\na -> fail", top=top)
    result = run(iterion, code=1)
    assert nodes_of(result) == [("a", "ok")]
    assert "fail" in result.record["error"]


def test_a_branch_that_fails_ends_the_others(iterion: Iterion) -> None:
    nodes = (
        "router a:\n  mode: fan_out_all\n"
        'tool slow:\n  command: "touch started; sleep 1000.25"\n'
        'tool bad:\n  command: "until [ -e started ]; do sleep 0.02; done; exit 1"'
    )
    flow(iterion, nodes, "a -> slow\na -> bad\nslow -> done\nbad -> done")
    result = run(iterion, code=1)
    assert sorted(nodes_of(result)) == [("a", "ok"), ("bad", "failed"), ("slow", "cancelled")]


def test_control_characters_of_a_node_do_not_reach_the_terminal(iterion: Iterion) -> None:
    flow(
        iterion,
        "tool a:\n  command: |\n    printf '\\033]0;title\\007ok\\tx\\n'; printf '\\033[2J' >&2; exit 1",
        "a -> done",
    )
    done = iterion.run("run", "flow.bot")
    assert b"ok\tx" in done.stderr
    assert b"\x1b" not in done.stderr
    assert b"\x07" not in done.stderr


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ('agent a:\n  model: "m"', "agent 'a'"),
        ('judge a:\n  model: "m"', "judge 'a'"),
        ('human a:\n  instructions: "x"', "human 'a'"),
        ('router a:\n  mode: llm\n  model: "m"', "mode 'llm'"),
    ],
)
def test_kinds_of_later_work_are_refused_by_name(iterion: Iterion, node: str, said: str) -> None:
    flow(iterion, f'prompt x:\n  text\n{node}\ntool b:\n  command: "true"', "a -> b\nb -> done")
    text = refused(iterion, code=2)
    if said not in text:  # a mistake that the language itself finds comes first
        pytest.fail(text)
    assert "not part of this version" in text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("workflow w:\n  entry: a\n\ta -> done\n", "flow.bot:3:1"),
        ('tool a:\n  command: "x"\nworkflow w:\n  entry: a\n  a -> nowhere\n', "C001"),
        ("", "C006"),
        ("\x00", "flow.bot:1"),
    ],
)
def test_a_mistake_in_the_file_is_2_and_has_a_place(iterion: Iterion, text: str, said: str) -> None:
    iterion.write("flow.bot", text)
    assert said in refused(iterion, code=2)


def test_the_name_of_a_workflow_file_ends_in_bot_or_iter(iterion: Iterion) -> None:
    flow(iterion, 'tool a:\n  command: "true"', "a -> done", name="flow.txt")
    assert ".bot or .iter" in refused(iterion, "flow.txt", code=2)
    flow(iterion, 'tool a:\n  command: "true"', "a -> done", name="flow.iter")
    run(iterion, "flow.iter")


# Which sandbox

POLICY = """sandbox:
  mode: auto
  network:
    mode: allowlist
    rules: ["a.test", "127.0.0.1"]
    hosts:
      a.test: ["127.0.0.1"]
      b.test: ["127.0.0.1"]"""


def test_the_network_policy_of_the_workflow_is_enforced(iterion: Iterion, origin: int) -> None:
    flow(
        iterion,
        f'tool a:\n  command: "{FETCH}http://a.test:{origin}/; ! {FETCH}http://b.test:{origin}/"',
        "a -> done",
        sandbox=POLICY,
    )
    done = iterion.run("run", "flow.bot")
    assert done.returncode == 0, done.stderr.decode()
    result = iterion.last
    assert [data["host"] for data in result.of("network_allowed")] == ["a.test"]
    assert [data["host"] for data in result.of("network_blocked")] == ["b.test"]
    assert b"network: 1 allowed, 1 blocked" in done.stderr


def test_a_node_without_a_sandbox_runs_on_the_host(iterion: Iterion) -> None:
    nodes = (
        'tool a:\n  command: "readlink /proc/self/ns/net > inside"\n'
        'tool b:\n  sandbox: none\n  command: "readlink /proc/self/ns/net > outside; echo $SEEN > seen"'
    )
    flow(iterion, nodes, "a -> b\nb -> done", sandbox=POLICY)
    done = iterion.run("run", "flow.bot", env={"SEEN": "yes"})
    assert done.returncode == 0
    assert b"credentials" in done.stderr
    outside = (iterion.folder / "outside").read_text().strip()
    assert outside == os.readlink("/proc/self/ns/net") != (iterion.folder / "inside").read_text().strip()
    assert (iterion.folder / "seen").read_text() == "yes\n"
    check_record(iterion.last, "done")


@pytest.mark.parametrize(
    ("inherit", "a_is", "b_is"),
    [("merge", "allowed", "allowed"), ("append", "allowed", "allowed"), ("replace", "blocked", "allowed")],
)
def test_a_node_refines_the_policy_in_a_sandbox_of_its_own(
    iterion: Iterion, origin: int, inherit: str, a_is: str, b_is: str
) -> None:
    both = f"{FETCH}http://a.test:{origin}/; {FETCH}http://b.test:{origin}/; true"
    block = (
        "  sandbox:\n    mode: auto\n    network:\n      mode: allowlist\n"
        f'      inherit: {inherit}\n      rules: ["b.test", "127.0.0.1"]'
    )
    if inherit == "replace":
        block += '\n      hosts:\n        a.test: ["127.0.0.1"]\n        b.test: ["127.0.0.1"]'
    flow(
        iterion,
        f'tool a:\n  command: "{both}"\ntool b:\n{block}\n  command: "{both}"',
        "a -> b\nb -> done",
        sandbox=POLICY,
    )
    done = iterion.run("run", "flow.bot")
    assert done.returncode == 0, done.stderr.decode()
    result = iterion.last
    verdicts = {
        (event.get("node_id"), event["data"]["host"]): event["type"].removeprefix("network_")
        for event in result.events
        if event["type"] in ("network_allowed", "network_blocked")
    }
    assert verdicts == {
        (None, "a.test"): "allowed",
        (None, "b.test"): "blocked",
        ("b", "a.test"): a_is,
        ("b", "b.test"): b_is,
    }
    assert result.types.count("sandbox_started") == result.types.count("sandbox_removed") == 2
    allowed, blocked = result.types.count("network_allowed"), result.types.count("network_blocked")
    assert f"network: {allowed} allowed, {blocked} blocked".encode() in done.stderr


def test_a_node_s_sandbox_that_cannot_be_made_fails_the_node(iterion: Iterion) -> None:
    block = '  sandbox:\n    mode: inline\n    image: "debian:12"'
    flow(iterion, f'tool a:\n{block}\n  command: "true"', "a -> done")
    result = run(iterion, code=1)
    [ended] = result.of("node_finished")
    assert ended["status"] == "failed"
    assert "debian:12" in ended["error"]
    assert "Group" not in ended["error"]


def test_post_create_runs_first_and_its_failure_is_the_run_s(iterion: Iterion) -> None:
    flow(
        iterion,
        'tool a:\n  command: "cat made"',
        "a -> done",
        sandbox='sandbox:\n  mode: auto\n  post_create: "echo made > made"',
    )
    assert run(iterion).of("sandbox_started")[0]["has_post_create"] is True
    flow(
        iterion,
        'tool a:\n  command: "true"',
        "a -> done",
        sandbox="sandbox:\n  mode: auto\n  post_create: \"printf '\\033[31mx'; exit 5\"",
    )
    done = iterion.run("run", "flow.bot")
    assert done.returncode == 1
    assert b"post_create ended with exit code 5" in done.stderr
    assert b"\x1b" not in done.stderr
    assert "node_started" not in iterion.last.types


# The precedence, as seen from outside


@pytest.mark.parametrize(
    ("sandbox", "arguments", "env", "driver", "source"),
    [
        ("", [], {}, None, None),  # outside a repository the default does not apply
        ("", [], {"ITERION_SANDBOX_DEFAULT": "auto"}, None, None),
        ("", [], {"ITERION_SANDBOX_OVERRIDE": "auto"}, "bubblewrap", "ITERION_SANDBOX_OVERRIDE"),
        ("", ["--sandbox", "auto"], {}, "bubblewrap", "cli flag --sandbox"),
        ("sandbox: auto", [], {}, "bubblewrap", "workflow sandbox: block (flow.bot)"),
        ("sandbox: auto", [], {"ITERION_SANDBOX_OVERRIDE": "none"}, None, None),
        ("sandbox: auto", ["--sandbox", "none"], {}, None, None),
        ("sandbox: none", [], {"ITERION_SANDBOX_DEFAULT": "auto"}, None, None),
        ("sandbox: none", ["--sandbox", "auto"], {}, "bubblewrap", "cli flag --sandbox"),
    ],
)
def test_who_decides(
    iterion: Iterion, sandbox: str, arguments: list[str], env: dict[str, str], driver: str | None, source: str | None
) -> None:
    flow(iterion, 'tool a:\n  command: "true"', "a -> done", sandbox=sandbox)
    result = run(iterion, "flow.bot", *arguments, env=env)
    started = [(data["driver"], data["source"]) for data in result.of("sandbox_started")]
    assert started == ([] if driver is None else [(driver, source)])
    assert "sandbox_skipped" not in result.types


@pytest.mark.usefixtures("repository")
def test_in_a_repository_the_default_applies(iterion: Iterion) -> None:
    flow(iterion, 'tool a:\n  command: "true"', "a -> done", sandbox="")
    assert run(iterion).of("sandbox_started")[0]["source"] == "default"
    result = run(iterion, env={"ITERION_SANDBOX_DEFAULT": "none"})
    assert "sandbox_started" not in result.types


@pytest.fixture
def without_bubblewrap(tmp_path: Path) -> dict[str, str]:
    """Return a PATH with the programs of these tests, and no bubblewrap."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("sh", "true", "touch", "git", "cat"):
        found = shutil.which(name)
        assert found is not None
        (programs / name).symlink_to(found)
    return {"PATH": str(programs)}


@pytest.mark.usefixtures("repository")
def test_without_bubblewrap_a_sandbox_nobody_asked_for_is_skipped(
    iterion: Iterion, without_bubblewrap: dict[str, str]
) -> None:
    flow(iterion, 'tool a:\n  command: "touch ran"', "a -> done", sandbox="")
    done = iterion.run("run", "flow.bot", env=without_bubblewrap)
    assert done.returncode == 0, done.stderr.decode()
    assert b"WARNING: no sandbox" in done.stderr
    result = iterion.last
    [skipped] = result.of("sandbox_skipped")
    assert (skipped["driver"], skipped["mode"], skipped["source"]) == ("noop", "auto", "default")
    assert "apt-get install bubblewrap" in skipped["reason"]
    assert (iterion.folder / "ran").exists()


@pytest.mark.parametrize(
    ("sandbox", "node", "arguments", "source"),
    [
        ("sandbox: auto", "", [], "workflow sandbox:"),
        ("", "", ["--sandbox", "auto"], "cli flag --sandbox"),
        ("sandbox: none", "  sandbox: auto\n", [], "node sandbox:"),
    ],
)
@pytest.mark.usefixtures("repository")
def test_without_bubblewrap_a_sandbox_that_was_asked_for_is_an_error(
    iterion: Iterion, without_bubblewrap: dict[str, str], sandbox: str, node: str, arguments: list[str], source: str
) -> None:
    flow(iterion, f'tool a:\n{node}  command: "touch ran"', "a -> done", sandbox=sandbox)
    text = refused(iterion, "flow.bot", *arguments, code=1, env=without_bubblewrap)
    assert source in text
    assert "apt-get install bubblewrap" in text
    assert not (iterion.folder / "ran").exists()


def test_a_driver_by_name(iterion: Iterion) -> None:
    flow(iterion, 'tool a:\n  command: "touch ran"', "a -> done")
    result = run(iterion, "flow.bot", "--sandbox-driver", "noop")
    assert result.of("sandbox_skipped")[0]["driver"] == "noop"
    assert "docker" in iterion.run("run", "flow.bot", "--sandbox-driver", "docker").stderr.decode()


# Worktrees

COMMIT = "git -c user.name=x -c user.email=x@example.com commit -q"


def test_a_commit_made_in_the_sandbox_survives(iterion: Iterion, repository: Path) -> None:
    flow(
        iterion,
        f'tool a:\n  command: "echo second > file && {COMMIT} -am second"',
        "a -> done",
        sandbox="sandbox: auto\nworktree: auto",
    )
    done = iterion.run("run", "flow.bot")
    assert done.returncode == 0, done.stderr.decode()
    result = iterion.last
    branch = result.record["branch"]
    assert branch == f"iterion/{result.record['run_name']}"
    assert git(repository, "show", f"{branch}:file") == "second\n"
    assert (repository / "file").read_text() == "first\n"
    assert Path(result.record["worktree"], "file").read_text() == "second\n"
    assert f"branch {branch}".encode() in done.stderr
    git(repository, "fsck", "--strict")


def test_a_worktree_without_changes_is_removed(iterion: Iterion, repository: Path) -> None:
    flow(iterion, 'tool a:\n  command: "cat file"', "a -> done", sandbox="sandbox: auto\nworktree: auto")
    result = run(iterion)
    assert "branch" not in result.record
    assert git(repository, "branch", "--format=%(refname:short)") == "main\n"
    assert git(repository, "worktree", "list").count("\n") == 1
    assert not list((iterion.store / "worktrees").glob("*"))


def test_a_failed_run_keeps_its_changes(iterion: Iterion, repository: Path) -> None:
    flow(iterion, 'tool a:\n  command: "echo new > new; exit 1"', "a -> done", sandbox="sandbox: auto\nworktree: auto")
    result = run(iterion, code=1)
    assert Path(result.record["worktree"], "new").read_text() == "new\n"
    assert not (repository / "new").exists()


def test_a_run_sees_no_other_run_s_worktree(iterion: Iterion, repository: Path) -> None:
    flow(
        iterion,
        'tool a:\n  command: "echo x > mine; cat ../*/mine; ! ls ../../runs/*"',
        "a -> done",
        sandbox="sandbox: auto\nworktree: auto",
    )
    for _ in range(2):
        done = iterion.run("run", "flow.bot", "--store-dir", str(repository / ".store"))
        assert done.returncode == 0, done.stderr.decode()
        assert done.stderr.count(b"iterion: [a] x") == 1


def test_a_worktree_needs_a_repository(iterion: Iterion) -> None:
    flow(iterion, 'tool a:\n  command: "touch ran"', "a -> done", sandbox="sandbox: auto\nworktree: auto")
    result = run(iterion, code=1)
    assert "needs a git repository" in result.record["error"]
    assert not (iterion.folder / "ran").exists()
