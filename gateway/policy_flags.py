"""The network block that ``--policy`` and ``--allow`` describe: one reading for the run and for the checker."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from drivers.spec import NetworkSpec
from gateway.errors import ConfigError
from policy.rules import RuleSource, RuleText

__all__ = ["network_from_flags"]


def network_from_flags(policy_file: Path | None, allow: Sequence[str]) -> NetworkSpec:
    """Return the block of a policy file with the ``--allow`` rules after its own; without a file, an allowlist.

    Args:
        policy_file: a YAML file with the keys of a `network:` block, or None.
        allow: patterns in the order of the command line; the last match wins.

    Raises:
        PolicyFileError: the file cannot be used.
        ConfigError: it sets no mode, so nothing would be enforced.
        PolicyError: a rule cannot be used; each problem names its place.
    """
    network = NetworkSpec(mode="allowlist")
    if policy_file is not None:
        from gateway.policy_file import load_network_file  # the YAML library costs every start 10 ms

        network = load_network_file(policy_file)
    if network.mode is None:
        raise ConfigError(
            f"{policy_file}: no mode, so nothing would be enforced",
            cure="write `mode: allowlist` (or `mode: denylist`, or `mode: open` to run without the proxy)",
        )
    rules = tuple(RuleText(text=text, source=RuleSource(origin="cli", file="--allow", line=None)) for text in allow)
    network = replace(network, rules=(*network.rules, *rules))
    network.build_policy()  # says what is wrong with a rule in fewer words than the whole block would
    return network
