"""The data: every entry is a canonical pattern with a purpose, and the list does what it is for."""

import pytest

from policy.engine import Engine
from policy.host import parse_host
from policy.pattern import Kind, parse_pattern
from policy.presets import BEDROCK_REGIONS, PRESETS, SILENT_DENY
from policy.rules import Mode, build_policy

ENGINE = Engine(build_policy(Mode.ALLOWLIST, preset="iterion-default"))


@pytest.mark.parametrize("entries", [*PRESETS.values(), SILENT_DENY], ids=[*PRESETS, "silent-deny"])
def test_entries_are_canonical_unique_and_have_a_purpose(entries: tuple[object, ...]) -> None:
    patterns = [entry.pattern for entry in entries]  # type: ignore[attr-defined]
    assert len(patterns) == len(set(patterns))
    assert all(str(parse_pattern(pattern)) == pattern for pattern in patterns)
    assert all(entry.purpose for entry in entries)  # type: ignore[attr-defined]


def test_a_preset_never_opens_everything_or_addresses() -> None:
    for entries in PRESETS.values():
        for entry in entries:
            pattern = parse_pattern(entry.pattern)
            assert pattern.kind in (Kind.EXACT, Kind.DESCENDANT)
            assert "." in pattern.name, "a whole top-level domain"


@pytest.mark.parametrize(
    "host",
    [
        *(f"bedrock-runtime.{region}.amazonaws.com" for region in BEDROCK_REGIONS),
        "github.com",
        "api.github.com",
        "uploads.github.com",
        "codeload.github.com",
        "raw.githubusercontent.com",
        "objects.githubusercontent.com",
        "release-assets.githubusercontent.com",
        "oauth2.googleapis.com",
        "us-central1-aiplatform.googleapis.com",
        "acme.openai.azure.com",
        "registry.npmjs.org",
        "files.pythonhosted.org",
        "sum.golang.org",
        "registry.gitlab.com",
        "api.bitbucket.org",
        "security.ubuntu.com",
        "cache.nixos.org",
        "search.devbox.sh",
        "get.jetify.com",
    ],
)
def test_iterion_default_allows(host: str) -> None:
    assert ENGINE.decide_text(f"{host}:443").allowed


@pytest.mark.parametrize(
    "host",
    [
        "evil.site",
        "amazonaws.com",
        "s3.amazonaws.com",
        "evil-bedrock-runtime.us-east-1.amazonaws.com",
        "bedrock-runtime.us-east-1.amazonaws.com.evil.site",
        "evilgithub.com",
        "gist.evil.githubusercontent.com",
        "api.anthropic.com.evil.site",
        "statsig.anthropic.com",
        "169.254.169.254",
        "[::1]",
    ],
)
def test_iterion_default_denies(host: str) -> None:
    assert not ENGINE.decide_text(f"{host}:443").allowed


def test_nothing_on_the_silent_list_is_allowed_by_a_preset() -> None:
    for entry in SILENT_DENY:
        name = entry.pattern.replace("**", "intake")
        assert parse_host(name)
        decision = ENGINE.decide_text(f"{name}:443")
        assert not decision.allowed
        assert decision.silent
