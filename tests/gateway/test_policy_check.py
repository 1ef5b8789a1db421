"""The checker answers what the proxy's engine answers."""

import re
import shlex
from pathlib import Path

import pytest

from drivers.spec import NetworkSpec, SpecError
from gateway.egress.interfaces import host_addresses
from gateway.errors import ConfigError, UsageError
from gateway.policy_check import check_hosts, load_network
from policy.engine import Engine
from policy.host import Authority, Host
from policy.rules import PolicyError, Reason, RuleSource, RuleText

GUIDE = (Path(__file__).parents[2] / "docs" / "policy.md").read_text()


def network(*rules: str, **hosts: tuple[str, ...]) -> NetworkSpec:
    source = RuleSource("user", "policy.yaml", 3)
    texts = tuple(RuleText(rule, source) for rule in rules)
    return NetworkSpec(mode="allowlist", rules=texts, hosts={f"{name}.test": value for name, value in hosts.items()})


def lines(spec: NetworkSpec, *targets: str) -> list[str]:
    return [each.line() for each in check_hosts(spec, targets).checked]


def test_answers_name_the_reason_and_the_rule() -> None:
    assert lines(network("**.b.com:443", "!x.b.com"), "A.B.com", "x.b.com:443", "c.com:80", "127.1", "\x1b[2J") == [
        "a.b.com:443  a rule allows it: **.b.com:443 (policy.yaml:3)",
        "x.b.com:443  a rule denies it: !x.b.com (policy.yaml:3)",
        "c.com:80  no rule allows it (not_in_allowlist)",
        "127.1  ends in a number, so it is an address in disguise; write an IPv4 address as four decimal numbers "
        "(invalid_host)",
        "\\x1b[2J  has a control character (invalid_host)",
    ]


def test_an_ipv6_address_needs_no_brackets_here() -> None:
    assert lines(network("2001:db8::1"), "2001:DB8::1", "[2001:db8::1]:80", "2001:db8::1:80") == [
        "[2001:db8::1]:443  a rule allows it: 2001:db8::1 (policy.yaml:3)",
        "[2001:db8::1]:80  a rule allows it: 2001:db8::1 (policy.yaml:3)",
        "[2001:db8::1:80]:443  an address, which only an IP or CIDR rule allows (address_literal)",
    ]


def test_static_addresses_are_judged() -> None:
    spec = network(
        "*.test", "c.test", "!8.8.4.4", a=("10.0.0.1",), b=("8.8.8.8", "10.0.0.1"), c=("10.0.0.1",), d=("8.8.4.4",)
    )
    report = check_hosts(spec, ["a.test", "b.test", "c.test", "d.test", "e.test"])
    assert [each.allowed for each in report.checked] == [False, True, True, False, True]
    assert report.checked[0].line() == (
        "a.test:443  a private address, which only an exact host rule or an IP rule allows "
        "(address_private; the host matched *.test, policy.yaml:3)"
    )
    assert report.checked[3].line() == "d.test:443  a rule denies it: !8.8.4.4 (policy.yaml:3)"
    as_json = report.as_json()["results"][1]
    assert as_json["addresses"] == ["8.8.8.8"]
    assert as_json["dropped"] == [{"address": "10.0.0.1", "code": "address_private", "rule": None, "source": None}]
    assert "addresses" not in report.as_json()["results"][4]


def test_a_report_for_programs() -> None:
    report = check_hosts(network("a.com"), ["a.com", "127.1"]).as_json()
    assert report == {
        "allowed": False,
        "mode": "allowlist",
        "presets": [],
        "results": [
            {
                "target": "a.com",
                "host": "a.com",
                "port": 443,
                "allowed": True,
                "code": "allowed_by_rule",
                "reason": "a rule allows it",
                "silent": False,
                "rule": "a.com",
                "source": "policy.yaml:3",
            },
            {
                "target": "127.1",
                "host": None,
                "port": None,
                "allowed": False,
                "code": "invalid_host",
                "reason": "ends in a number, so it is an address in disguise; "
                "write an IPv4 address as four decimal numbers",
                "silent": False,
                "rule": None,
                "source": None,
            },
        ],
        "findings": [],
    }


@pytest.mark.parametrize(
    "target", ["host.docker.internal", "localhost", "10.0.0.1", "a.com", "EVIL.com.", "1", "[::1]"]
)
def test_H18_the_checker_is_the_engine_of_the_proxy(target: str) -> None:
    spec = network("**", "!evil.com")
    (checked,) = check_hosts(spec, [target]).checked
    assert checked.decision == Engine(spec.build_policy()).decide_text(target, 443)


def test_H01_findings_come_with_the_answers() -> None:
    report = check_hosts(network(), ["a.com"])
    assert [finding.code for finding in report.findings] == ["empty-allowlist"]
    assert report.as_json()["findings"][0]["code"] == "empty-allowlist"


def test_rules_of_the_command_line_come_after_those_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("mode: denylist\nrules: ['!a.com']\n")
    rules = load_network(path, ["a.com"]).rules
    assert [str(rule.source) for rule in rules] == [f"{path}:2", "--allow"]
    assert load_network(None, ["a.com"]).mode == "allowlist"


def test_a_policy_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    with pytest.raises(UsageError, match="no policy"):
        load_network(None, [])
    path.write_text("rules: [a.com]\n")
    with pytest.raises(ConfigError, match="no mode"):
        load_network(path, [])
    path.write_text("mode: allowlist\nrules: [A.com]\n")
    with pytest.raises(PolicyError, match=r"policy\.yaml:2: `A\.com`"):
        load_network(path, [])
    path.write_text("mode: open\nrules: ['!a.com']\n")
    with pytest.raises(SpecError, match="denylist"):
        load_network(path, [])


def test_the_guide_shows_what_the_checker_says(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(GUIDE.split("```yaml\n")[1].split("```")[0])
    command, *expected = GUIDE.split("```\n$ ")[1].split("```")[0].splitlines()
    report = check_hosts(load_network(tmp_path / "policy.yaml", []), shlex.split(command)[5:])
    shown = [f"{'allowed' if each.allowed else 'denied '}  {each.line()}" for each in report.checked]
    assert [line.replace(f"{tmp_path}/", "") for line in shown] == expected
    assert report.findings == ()


def test_the_guide_has_every_reason_and_no_bad_example(tmp_path: Path) -> None:
    assert [reason for reason in Reason if f"`{reason}`" not in GUIDE] == []
    for number, example in enumerate(re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)):
        path = tmp_path / f"{number}.yaml"
        path.write_text(example)
        assert check_hosts(load_network(path, []), []).findings == ()


def test_H18_the_addresses_of_this_host_are_refused_as_the_proxy_does() -> None:
    spec = NetworkSpec(mode="denylist")
    engine = Engine(spec.build_policy(), own_addresses=host_addresses())
    targets = [str(Authority(Host(address=address), 443)) for address in sorted(host_addresses(), key=str)]
    for target, checked in zip(targets, check_hosts(spec, targets).checked, strict=True):
        assert (checked.allowed, checked.decision) == (False, engine.decide_text(target))
