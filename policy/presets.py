"""Presets and the silent-deny list: data, one host a line, each with its purpose.

A preset is never applied unless a policy names it. Entries are in the pattern language of `policy.pattern`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True)
class PresetEntry:
    """One pattern of a preset and what it is there for."""

    pattern: str
    purpose: str


_E = PresetEntry

# AWS regions with a Bedrock runtime endpoint (AWS General Reference, "Amazon Bedrock endpoints and quotas"). Listed,
# because one wildcard for all of them would have to be `**.amazonaws.com`: anybody's bucket, queue or function.
BEDROCK_REGIONS: Final = (
    "af-south-1",
    "ap-east-2",
    "ap-northeast-1",
    "ap-northeast-2",
    "ap-northeast-3",
    "ap-south-1",
    "ap-south-2",
    "ap-southeast-1",
    "ap-southeast-2",
    "ap-southeast-3",
    "ap-southeast-4",
    "ap-southeast-5",
    "ap-southeast-7",
    "ca-central-1",
    "ca-west-1",
    "eu-central-1",
    "eu-central-2",
    "eu-north-1",
    "eu-south-1",
    "eu-south-2",
    "eu-west-1",
    "eu-west-2",
    "eu-west-3",
    "il-central-1",
    "me-central-1",
    "me-south-1",
    "mx-central-1",
    "sa-east-1",
    "us-east-1",
    "us-east-2",
    "us-gov-east-1",
    "us-gov-west-1",
    "us-west-1",
    "us-west-2",
)

_LLM: Final = (
    _E("api.anthropic.com", "Anthropic API"),
    _E("api.openai.com", "OpenAI API"),
    _E("openrouter.ai", "OpenRouter API"),
    _E("**.bedrock.amazonaws.com", "Amazon Bedrock, names below the service"),
    *(_E(f"bedrock-runtime.{region}.amazonaws.com", f"Amazon Bedrock in {region}") for region in BEDROCK_REGIONS),
    *(
        _E(f"bedrock-runtime-fips.{region}.amazonaws.com", f"Amazon Bedrock in {region}, FIPS endpoint")
        for region in ("ca-central-1", "us-east-1", "us-east-2", "us-gov-east-1", "us-gov-west-1", "us-west-2")
    ),
    _E("**.googleapis.com", "Gemini and Vertex AI; Google APIs and their token exchange"),
    _E("**.openai.azure.com", "Azure OpenAI resources"),
    _E("api.mistral.ai", "Mistral API"),
    _E("api.z.ai", "Z.ai API"),
    _E("api.x.ai", "xAI (Grok) API"),
)

_REGISTRIES: Final = (
    _E("registry.npmjs.org", "npm packages"),
    _E("**.npmjs.org", "npm: replicas, audit and scoped services"),
    _E("pypi.org", "Python package index"),
    _E("files.pythonhosted.org", "Python packages: the files"),
    _E("proxy.golang.org", "Go module proxy"),
    _E("sum.golang.org", "Go checksum database"),
)

_CODE_HOSTS: Final = (
    _E("github.com", "GitHub: git over https, release pages"),
    _E("**.github.com", "GitHub: API, uploads, and the services below"),
    _E("codeload.github.com", "GitHub: source archives"),
    _E("objects.githubusercontent.com", "GitHub: release assets and Git LFS"),
    _E("release-assets.githubusercontent.com", "GitHub: release assets, the redirect target since 2025"),
    _E("github-releases.githubusercontent.com", "GitHub: release assets, older redirect target"),
    _E("raw.githubusercontent.com", "GitHub: raw files"),
    _E("media.githubusercontent.com", "GitHub: raw files kept in Git LFS"),
    _E("gist.githubusercontent.com", "GitHub: raw gists"),
    _E("avatars.githubusercontent.com", "GitHub: images that its API answers point to"),
    _E("github-cloud.githubusercontent.com", "GitHub: Git LFS"),
    _E("github-cloud.s3.amazonaws.com", "GitHub: Git LFS uploads and downloads"),
    _E("gitlab.com", "GitLab: git over https, API, archives"),
    _E("**.gitlab.com", "GitLab: registry and packages"),
    _E("bitbucket.org", "Bitbucket: git over https"),
    _E("**.bitbucket.org", "Bitbucket: API and downloads"),
)

_SYSTEM: Final = (
    _E("deb.debian.org", "Debian packages"),
    _E("security.debian.org", "Debian security updates"),
    _E("archive.ubuntu.com", "Ubuntu packages"),
    _E("security.ubuntu.com", "Ubuntu security updates"),
    _E("cache.nixos.org", "Nix binary cache"),
    _E("channels.nixos.org", "Nix channels"),
    _E("releases.nixos.org", "Nix releases"),
    _E("nix-community.cachix.org", "Nix community binary cache"),
    _E("devbox.sh", "Devbox"),
    _E("**.devbox.sh", "Devbox: package search and cache"),
    _E("get.jetify.com", "Devbox installer"),
)

PRESETS: Final[Mapping[str, tuple[PresetEntry, ...]]] = MappingProxyType(
    {"iterion-default": _LLM + _REGISTRIES + _CODE_HOSTS + _SYSTEM}
)
"""Preset name to its entries, in the order in which they are evaluated."""

SILENT_DENY: Final[tuple[PresetEntry, ...]] = (
    _E("statsig.anthropic.com", "Claude Code feature flags and telemetry"),
    _E("statsig.com", "Statsig: feature flags"),
    _E("**.statsig.com", "Statsig: feature flags, events"),
    _E("**.statsigapi.net", "Statsig: event intake"),
    _E("statsigapi.net", "Statsig: event intake"),
    _E("featureassets.org", "Statsig: configuration CDN"),
    _E("prodregistryv2.org", "Statsig: event intake"),
    _E("api.statsigcdn.com", "Statsig: configuration CDN"),
    _E("sentry.io", "Sentry: error reports"),
    _E("**.sentry.io", "Sentry: error report intake (o<number>.ingest.<region>.sentry.io)"),
    _E("http-intake.logs.us5.datadoghq.com", "Datadog: log intake of Claude Code"),
    _E("**.logs.datadoghq.com", "Datadog: log intake"),
    _E("**.logs.us3.datadoghq.com", "Datadog: log intake, US3"),
    _E("**.logs.us5.datadoghq.com", "Datadog: log intake, US5"),
    _E("**.logs.datadoghq.eu", "Datadog: log intake, EU"),
    _E("browser-intake-datadoghq.com", "Datadog: browser event intake"),
    _E("browser-intake-us5-datadoghq.com", "Datadog: browser event intake, US5"),
    _E("mcp-proxy.anthropic.com", "Claude Code: probes for hosted MCP servers"),
)
"""Hosts whose denial is counted but gives no `network_blocked` line. What denies them is the policy, not this list."""
