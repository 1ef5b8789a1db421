"""``iterion policy check`` as it is called: output, streams and exit codes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.cli.policy import policy


def check(*arguments: str) -> Result:
    return CliRunner().invoke(policy, ["check", *arguments])


def test_all_allowed_is_0() -> None:
    result = check("--allow", "*.a.com", "--allow", "10.0.0.0/8", "b.a.com", "10.1.2.3:22")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "allowed  b.a.com:443  a rule allows it: *.a.com (--allow)",
        "allowed  10.1.2.3:22  a rule allows it: 10.0.0.0/8 (--allow)",
    ]
    assert result.stderr == ""


@pytest.mark.parametrize("target", ["b.com", "127.1", "a.com:0", ""])
def test_one_denied_or_refused_is_1(target: str) -> None:
    result = check("--allow", "a.com", "a.com", target)
    assert result.exit_code == 1
    verdicts = [line.split()[0] for line in result.stdout.splitlines()]
    assert verdicts == ["allowed", "denied"]


def test_a_rule_is_shown_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("mode: allowlist\nrules:\n  - '**.a.com'\n  - '!x.a.com'\n")
    result = check("--policy", str(path), "x.a.com")
    assert result.stdout == f"denied   x.a.com:443  a rule denies it: !x.a.com ({path}:4)\n"


def test_findings_go_to_standard_error() -> None:
    result = check("--allow", "**", "a.com")
    assert result.exit_code == 0
    assert "any-host-in-allowlist" in result.stderr
    assert "any-host-in-allowlist" not in result.stdout


def test_many_findings_are_counted() -> None:
    rules = [f"--allow=a{number}.com" for number in range(25)]
    result = check(*rules, *rules, "a.com")
    assert len(result.stderr.splitlines()) == 21
    assert "and 5 more" in result.stderr


def test_json_is_one_object() -> None:
    result = check("--json", "--allow", "a.com", "a.com", "b.com")
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert [each["code"] for each in report["results"]] == ["allowed_by_rule", "not_in_allowlist"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a.com"], "no policy to check against"),
        (["--allow", "A.com", "a.com"], "--allow: `A.com`: not in canonical form; write `a.com`"),
        (["--policy", "missing.yaml", "a.com"], "does not exist"),
        (["--allow", "a.com"], "Missing argument"),
        (["--alow", "a.com", "a.com"], "--alow"),
    ],
)
def test_a_bad_policy_or_call_is_2(arguments: list[str], message: str) -> None:
    command = [sys.executable, "-m", "gateway.cli", "policy", "check", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert message in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
