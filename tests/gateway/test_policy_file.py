"""Policy files: what is read, with which line, and what every mistake is told."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.spec import NetworkSpec
from gateway.errors import exit_code_of, is_expected
from gateway.policy_file import MAX_FILE_BYTES, PolicyFileError, load_network_file, parse_network
from policy.rules import PolicyError, RuleSource, RuleText

WHOLE = """\
mode: allowlist
preset: iterion-default
inherit: replace
enforcement: cooperative
tls: inspect
rules:
  - api.example.com
  - "*.example.com:443"   # a comment

  - '!evil.example.com'
  - 2001:db8::1
  - 10.0.0.0/8
inspect_hosts: [a.example.com, b.example.com]
exclude_hosts: []
hosts:
  registry.acme.dev: [10.0.0.5, "fd00::5"]
"""


def problems(text: str) -> tuple[str, ...]:
    with pytest.raises(PolicyFileError) as caught:
        parse_network(text, "policy.yaml")
    return caught.value.problems


def test_every_key_is_read() -> None:
    spec = parse_network(WHOLE, "policy.yaml")
    lines = {7: "api.example.com", 8: "*.example.com:443", 10: "!evil.example.com", 11: "2001:db8::1", 12: "10.0.0.0/8"}
    assert spec == NetworkSpec(
        mode="allowlist",
        preset="iterion-default",
        inherit="replace",
        enforcement="cooperative",
        tls="inspect",
        rules=tuple(RuleText(text, RuleSource("user", "policy.yaml", line)) for line, text in lines.items()),
        inspect_hosts=("a.example.com", "b.example.com"),
        exclude_hosts=(),
        hosts={"registry.acme.dev": ("10.0.0.5", "fd00::5")},
    )
    assert str(spec.build_policy().rules[-1].source) == "policy.yaml:12"


def test_a_network_wrapper_is_the_same() -> None:
    wrapped = "network:\n" + "".join(f"  {line}\n" if line else "\n" for line in WHOLE.splitlines())
    inner = parse_network(wrapped, "policy.yaml")
    plain = parse_network(WHOLE, "policy.yaml")
    assert [rule.text for rule in inner.rules] == [rule.text for rule in plain.rules]
    assert inner.rules[0].source.line == 8
    assert inner.hosts == plain.hosts


def test_flow_style_and_json_are_yaml() -> None:
    spec = parse_network('{"mode": "denylist", "rules": ["!evil.site",\n "!**.evil.site"]}', "p.json")
    assert [(rule.text, rule.source.line) for rule in spec.rules] == [("!evil.site", 1), ("!**.evil.site", 2)]


def test_a_key_that_is_left_out_has_its_default() -> None:
    assert parse_network("mode: open", "policy.yaml") == NetworkSpec(mode="open")
    assert parse_network("rules: []", "policy.yaml").mode is None


def test_a_bad_rule_is_named_with_its_line() -> None:
    spec = parse_network("mode: allowlist\nrules:\n  - Example.COM\n", "policy.yaml")
    with pytest.raises(PolicyError) as caught:
        spec.build_policy()
    assert str(caught.value) == "policy.yaml:3: `Example.COM`: not in canonical form; write `example.com`"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "policy.yaml:1: is empty; write `mode: allowlist` and a list of `rules`"),
        ("# nothing\n", "policy.yaml:1: is empty; write `mode: allowlist` and a list of `rules`"),
        ("mod: allowlist", "policy.yaml:1: `mod` is no key of the file; write `mode`"),
        (
            "colour: red",
            "policy.yaml:1: `colour` is no key of the file; write one of `mode`, `preset`, `inherit`, `rules`, "
            "`enforcement`, `tls`, `inspect_hosts`, `exclude_hosts`, `hosts`",
        ),
        ("network:\n  rule: [a]", "policy.yaml:2: `rule` is no key of `network`; write `rules`"),
        ("network:\n  network: {}", "`network` is no key of `network`"),
        ("network: {}\nmode: open", "policy.yaml:1: `network` goes with no other key at the top"),
        ("mode: open\n\nmode: open", "policy.yaml:3: `mode` is there twice; keep one of the two"),
        ("mode: alowlist", "policy.yaml:1: `mode`: `alowlist` is not known; write `allowlist`"),
        ("mode: Denylist", "write `denylist`"),
        ("tls: x", "`tls`: `x` is not known; write one of `passthrough`, `inspect`"),
        ("mode: true", 'policy.yaml:1: `mode` is `true`, read as true or false; write it in quotes: "true"'),
        ("mode: [open]", "policy.yaml:1: `mode` is a list; write text"),
        ("preset: 3.5", '`preset` is `3.5`, a number; write it in quotes: "3.5"'),
        ("preset:", "policy.yaml:1: `preset` is empty; write a value, or leave it out"),
        ("rules: a.com", "`rules` is `a.com`, text; write a list"),
        ("rules:", "`rules` is empty; write a list"),
        ("rules: {a: b}", "`rules` is a mapping; write a list"),
        ("rules:\n  - a: 1", "policy.yaml:2: an entry of `rules` is a mapping; write text"),
        (
            "rules:\n  - a\n  - no",
            "policy.yaml:3: an entry of `rules` is `no`, read as true or false; write it in quotes",
        ),
        ("rules:\n  - 2024-01-01", "timestamp; write it in quotes"),
        ("rules:\n  -", "policy.yaml:2: an entry of `rules` is empty"),
        ("rules:\n  - !evil.site", 'policy.yaml:2: `!evil.site` is a tag in YAML; write it in quotes: "!evil.site"'),
        ("rules:\n  - !**.evil.site:443", 'write it in quotes: "!**.evil.site:443"'),
        (
            "rules:\n  - *.example.com",
            "policy.yaml:2: `*.example.com`: a value that starts with `*` or `!` needs quotes",
        ),
        ("rules:\n  - **", "policy.yaml:2: `**`: a value that starts with `*` or `!` needs quotes"),
        ("rules:\n  - ![::1]:80", "needs quotes"),
        ("mode: !!python/object:os.system x", "policy.yaml:1: `mode` is `x`, python/object:os.system"),
        ("- a.com", "policy.yaml:1: the file is a list; write `key: value` lines"),
        ("a.com", "policy.yaml:1: the file is `a.com`, text; write `key: value` lines"),
        ("network: 1", "`network` is `1`, a number; write `key: value` lines"),
        ("hosts: [a]", "`hosts` is a list; write `key: value` lines"),
        ("hosts:\n  a.com: 1.2.3.4", "policy.yaml:2: `hosts.a.com` is `1.2.3.4`, text; write a list"),
        ("hosts:\n  a.com: [b]", "policy.yaml:2: network.hosts.a.com: `b` is a name; write IP addresses"),
        ("hosts:\n  a.com: []", "no addresses"),
        ("hosts:\n  1.2.3.4: [1.2.3.4]", "the key is an address"),
        ("1: 2", 'a key is `1`, a number; write it in quotes: "1"'),
        ("mode: open\n--- \nmode: open", "policy.yaml:2: "),
        ("mode: 'open", "is not YAML"),
        ("mode: open: x", "policy.yaml:1: `mode: open: x` is not YAML: mapping values are not allowed"),
        ("mode: \x00", "policy.yaml: is not YAML"),
        ("[" * 100_000, "policy.yaml"),
        ("<<: {mode: open}", "`<<`"),
    ],
)
def test_a_mistake_is_named_with_line_value_and_cure(text: str, problem: str) -> None:
    found = problems(text)
    assert any(problem in each for each in found), found
    assert all(each.isprintable() for each in found)


def test_all_mistakes_are_reported_in_order() -> None:
    found = problems("preset: 3\nmod: open\nrules:\n  - [a]\n  - yes\n")
    assert [each.split(": ")[0] for each in found] == [f"policy.yaml:{line}" for line in (1, 2, 4, 5)]


def test_an_alias_cannot_smuggle_anything() -> None:
    found = problems("rules: &rules\n  - *rules\n")
    assert "an entry of `rules` is a list" in found[0]


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_bytes(b'\xef\xbb\xbfmode: denylist\r\nrules:\r\n  - "!b\xc3\xbccher.example"\r\n')
    (rule,) = load_network_file(path).rules
    assert rule == RuleText("!b\u00fccher.example", RuleSource("user", str(path), 3))


def test_a_file_that_cannot_be_used_is_a_configuration_error(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_bytes(b"mode: open\n# \xff\n")
    with pytest.raises(PolicyFileError, match=r"policy\.yaml:2: is not UTF-8") as caught:
        load_network_file(path)
    assert is_expected(caught.value)
    assert exit_code_of(caught.value) == 2
    path.write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    with pytest.raises(PolicyFileError, match="larger than"):
        load_network_file(path)
    with pytest.raises(PolicyFileError, match="cannot be read"):
        load_network_file(tmp_path)
    with pytest.raises(PolicyFileError, match="cannot be read"):
        load_network_file(tmp_path / "missing.yaml")


@given(st.one_of(st.text(max_size=60), st.text(st.sampled_from("rulesmodhtnwk: -[]{}!*&'\"#\n.1"), max_size=60)))
def test_any_text_is_a_policy_or_a_named_mistake(text: str) -> None:
    try:
        parse_network(text, "policy.yaml")
    except PolicyFileError as error:
        found = error.problems
    else:
        return
    assert found
    assert all(each.startswith("policy.yaml") for each in found)


@pytest.mark.parametrize("character", ["\r", "\x85", "\u2028", "\u2029", "\u202e", "\u2066"])
def test_a_rule_cannot_hide_in_a_comment(character: str) -> None:
    text = f'mode: allowlist\nrules:\n  - a.example  # the only one{character}  - "**"\n'
    (problem,) = problems(text)
    assert problem.startswith(f"policy.yaml:3: has the character U+{ord(character):04X}, which ends or reorders a line")


def test_lines_may_end_as_on_windows() -> None:
    assert parse_network("mode: allowlist\r\nrules: []\r\n", "policy.yaml").mode == "allowlist"
