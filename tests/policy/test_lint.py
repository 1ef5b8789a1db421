"""Findings: each code with a list that has it, and the lists beside it that do not."""

import re
from pathlib import Path

import pytest

import policy.lint as lint_module
from policy.lint import Finding, lint
from policy.rules import Mode, RuleSource, RuleText, build_policy


def findings(mode: str, *texts: str, preset: str | None = None) -> tuple[Finding, ...]:
    rules = [RuleText(text, RuleSource("user", "policy.yaml", line)) for line, text in enumerate(texts, start=1)]
    return lint(build_policy(Mode(mode), preset=preset, rules=rules))


def codes(mode: str, *texts: str, preset: str | None = None) -> list[str]:
    return [
        f"{each.rule.source.line}:{each.code}" if each.rule else each.code
        for each in findings(mode, *texts, preset=preset)
    ]


@pytest.mark.parametrize(
    ("mode", "rules", "expected"),
    [
        ("allowlist", ["a.com", "!b.a.com"], []),
        ("denylist", [], []),
        ("open", [], []),
        ("open", ["a.com"], ["open-with-rules"]),
        ("allowlist", [], ["empty-allowlist"]),
        ("allowlist", ["!a.com"], ["empty-allowlist"]),
        ("denylist", ["evil.site"], ["1:plain-rule-in-denylist"]),
        # The apex is allowed by a rule of its own, so it is meant to be; or on some ports only, so it is not.
        ("allowlist", ["example.com", "!**.example.com"], []),
        ("allowlist", ["**.acme.dev", "!*.acme.dev", "acme.dev"], ["2:deeper-names-not-denied"]),
        ("denylist", ["!**.evil.site", "!evil.site:1-100"], ["1:apex-not-denied"]),
        ("denylist", ["!**.evil.site", "!evil.site:1", "!evil.site:65535"], ["1:apex-not-denied"]),
        ("denylist", ["!**.evil.site:80", "!evil.site:80"], []),
        ("allowlist", ["169.254.0.0/16", "!169.254.169.254:1-79", "!169.254.169.254:65535"], ["1:metadata-allowed"]),
        ("allowlist", ["64:ff9b::/96"], ["1:metadata-allowed"]),
        ("allowlist", ["2002:a000::/19"], ["1:metadata-allowed"]),
        ("allowlist", ["2002:808::/32"], []),
        ("denylist", ["**.evil.site", "evil.site"], ["1:plain-rule-in-denylist", "2:plain-rule-in-denylist"]),
        ("denylist", ["!evil.site", "!**.evil.site", "ok.evil.site"], []),
        ("denylist", ["!evil.site", "!**.evil.site", "other.site"], ["3:plain-rule-in-denylist"]),
        ("denylist", ["!a.evil.site", "**.evil.site"], ["1:hidden-rule"]),
        ("denylist", ["!a.evil.site:80", "**.evil.site:443"], []),
        ("denylist", ["!a.evil.site", "*"], ["2:plain-rule-in-denylist"]),
        ("denylist", ["!intranet:80", "*:443"], []),
        ("denylist", ["!8.8.8.8", "**"], ["2:plain-rule-in-denylist"]),
        ("denylist", ["!a.evil.site:80", "**:443"], []),
        ("denylist", ["*"], ["1:plain-rule-in-denylist"]),
        ("denylist", ["!**:25", "**:25"], []),
        ("denylist", ["10.0.0.0/8"], []),
        ("denylist", ["!**.evil.site"], ["1:apex-not-denied"]),
        ("denylist", ["!**.evil.site", "!evil.site"], []),
        ("denylist", ["!**.evil.site:443", "!evil.site:443"], []),
        ("denylist", ["!*.evil.site", "!evil.site"], ["1:deeper-names-not-denied"]),
        ("denylist", ["!*.evil.site"], ["1:apex-not-denied", "1:deeper-names-not-denied"]),
        ("allowlist", ["a.com", "!**.evil.site"], []),
        ("allowlist", ["**", "!**.evil.site"], ["1:any-host-in-allowlist", "2:apex-not-denied"]),
        ("allowlist", ["a.com", "a.com"], ["1:duplicate-rule"]),
        ("allowlist", ["a.com:80", "a.com"], ["1:hidden-rule"]),
        ("allowlist", ["a.com", "a.com:80"], []),
        ("allowlist", ["!evil.site", "**"], ["1:hidden-rule", "2:any-host-in-allowlist"]),
        ("allowlist", ["10.1.0.0/16", "10.0.0.0/8"], ["1:hidden-rule"]),
        ("allowlist", ["169.254.169.254"], ["1:metadata-allowed"]),
        ("allowlist", ["169.254.0.0/16:80"], ["1:metadata-allowed"]),
        ("allowlist", ["169.254.0.0/16", "!169.254.0.0/17", "!169.254.128.0/17"], []),
        ("allowlist", ["fd00::/8"], ["1:metadata-allowed"]),
        ("allowlist", ["10.0.0.0/8"], []),
        ("allowlist", ["localhost"], ["1:localhost-needs-address"]),
        ("allowlist", ["**.localhost:80"], ["1:localhost-needs-address"]),
        ("allowlist", ["a.localhost", "::1"], []),
        ("allowlist", ["localhost.example"], []),
    ],
)
def test_codes(mode: str, rules: list[str], expected: list[str]) -> None:
    assert codes(mode, *rules) == expected


def test_H01_an_empty_allowlist_is_pointed_out() -> None:
    (finding,) = findings("allowlist")
    assert "everything is denied" in finding.message
    assert finding.rule is None
    assert str(finding) == f"{finding.message} (empty-allowlist)"


@pytest.mark.parametrize(
    ("mode", "rules", "cure"),
    [
        ("open", ["a.com"], "write `mode: denylist`"),
        ("allowlist", [], "`preset: iterion-default`"),
        ("denylist", ["evil.site"], "write `!evil.site`"),
        ("denylist", ["!**.evil.site:443"], "write `!evil.site:443` as well"),
        ("denylist", ["!*.evil.site", "!evil.site"], "write `!**.evil.site`"),
        ("allowlist", ["a.com", "a.com"], "remove one"),
        ("allowlist", ["!a.com", "**.com", "a.com"], "policy.yaml:3"),
        ("allowlist", ["**"], "`mode: denylist`"),
        ("allowlist", ["169.254.0.0/16"], "write `!169.254.169.254` below it"),
        ("allowlist", ["localhost:8080"], "write `127.0.0.1:8080` as well"),
    ],
)
def test_a_finding_says_what_to_write(mode: str, rules: list[str], cure: str) -> None:
    first = findings(mode, *rules)[0]
    assert cure in first.message
    if first.rule is not None:
        assert str(first).startswith(f"policy.yaml:{first.rule.source.line}: ")


def test_the_guide_explains_every_code() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "policy.md").read_text()
    source = Path(lint_module.__file__).read_text()
    found = set(re.findall(r'code="([a-z-]+)"', source))
    assert len(found) == 10
    assert [code for code in sorted(found) if f"`{code}`" not in guide] == []


def test_presets_are_not_judged_but_count() -> None:
    assert codes("allowlist", preset="iterion-default") == []
    assert codes("allowlist", "!api.openai.com", "pypi.org", preset="iterion-default") == []
    assert codes("allowlist", "!github.com", preset="iterion-default") == []


def test_a_long_list_is_read_in_one_pass() -> None:
    texts = [f"!host{number}.example.com:{1 + number % 50}" for number in range(2_000)]
    assert codes("denylist", *texts) == []
    assert len(codes("denylist", *texts, "!**")) == 2_000
