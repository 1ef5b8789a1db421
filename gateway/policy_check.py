"""Would this be allowed, and by which rule? The engine of the proxy, asked about hosts without a connection."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Any, Final

from drivers.spec import NetworkSpec, SpecError
from gateway.egress.interfaces import host_addresses
from gateway.errors import UsageError
from gateway.policy_flags import network_from_flags
from policy.engine import Engine
from policy.host import parse_host, shown
from policy.lint import Finding, lint
from policy.rules import Decision, Judgement, Policy, Rule

__all__ = ["Checked", "Report", "check_hosts", "load_network"]

DEFAULT_PORT: Final = 443
"""The port of a host that is asked about without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The answer on one host; `judgement` is there where the policy gives the host static addresses."""

    target: str
    decision: Decision
    judgement: Judgement | None = None

    @property
    def allowed(self) -> bool:
        """Whether a connection would be let through."""
        return self.decision.allowed if self.judgement is None else self.judgement.allowed

    @property
    def rule(self) -> Rule | None:
        """The rule that fired."""
        return self.decision.rule if self.judgement is None else self.judgement.rule

    def line(self) -> str:
        """Return the answer without its verdict, for people."""
        decision, rule = self.decision, self.rule
        reason = decision.reason if self.judgement is None else self.judgement.reason
        target = shown(self.target) if decision.authority is None else str(decision.authority)
        text = f"{target}  {decision.detail or reason.message}"
        if rule is not None:
            return f"{text}: {rule} ({rule.source})"
        fired = decision.rule
        return f"{text} ({reason}" + (f"; the host matched {fired}, {fired.source})" if fired is not None else ")")

    def as_json(self) -> dict[str, Any]:
        """Return the answer for programs."""
        decision, authority = self.decision, self.decision.authority
        reason = decision.reason if self.judgement is None else self.judgement.reason
        result: dict[str, Any] = {
            "target": self.target,
            "host": str(authority.host) if authority else None,
            "port": authority.port if authority else None,
            "allowed": self.allowed,
            "code": reason.value,
            "reason": decision.detail or reason.message,
            "silent": decision.silent,
            **_rule_as_json(self.rule),
        }
        if self.judgement is not None:
            result["addresses"] = [str(address) for address in self.judgement.survivors]
            result["dropped"] = [
                {"address": str(drop.address), "code": drop.reason.value, **_rule_as_json(drop.rule)}
                for drop in self.judgement.dropped
            ]
        return result


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The answers on all hosts, and what is wrong with the policy itself."""

    policy: Policy
    checked: tuple[Checked, ...]
    findings: tuple[Finding, ...]

    @property
    def allowed(self) -> bool:
        """Whether every host is allowed."""
        return all(each.allowed for each in self.checked)

    def as_json(self) -> dict[str, Any]:
        """Return the report for programs."""
        return {
            "allowed": self.allowed,
            "mode": self.policy.mode.value,
            "presets": list(self.policy.presets),
            "results": [each.as_json() for each in self.checked],
            "findings": [
                {"code": each.code, "message": each.message, **_rule_as_json(each.rule)} for each in self.findings
            ],
        }


def load_network(policy_file: Path | None, allow: Sequence[str]) -> NetworkSpec:
    """Return the network block of a policy file with `--allow` rules after its own; without a file, an allowlist.

    Raises `PolicyFileError`, `PolicyError`, `SpecError`, `ConfigError` if no mode is set, `UsageError` if there is no
    policy at all.
    """
    if policy_file is None and not allow:
        raise UsageError("no policy to check against", cure="add --policy FILE or --allow PATTERN")
    network = network_from_flags(policy_file, allow)
    problems = tuple(network.problems())
    if problems:
        raise SpecError(problems)
    return network


def check_hosts(network: NetworkSpec, targets: Sequence[str]) -> Report:
    """Return what the policy says on each `HOST[:PORT]`, in order. Args: `network`, as `load_network` returns it."""
    policy = network.build_policy()
    engine = Engine(policy, own_addresses=_own_addresses())
    return Report(policy=policy, checked=tuple(_check(engine, network, targets)), findings=lint(policy))


def _own_addresses() -> frozenset[IPv4Address | IPv6Address]:
    """Return the addresses that the proxy refuses as its own, so that the checker does; none where nobody can tell."""
    try:
        return host_addresses()
    except (OSError, AttributeError):  # no rtnetlink: this is not Linux
        return frozenset()


def _check(engine: Engine, network: NetworkSpec, targets: Sequence[str]) -> Iterator[Checked]:
    static = {str(parse_host(name)): addresses for name, addresses in network.hosts.items()}
    for target in targets:
        decision = engine.decide_text(_bracketed(target), DEFAULT_PORT)
        host = str(decision.authority.host) if decision.authority else ""
        judgement = None
        if decision.allowed and host in static:
            judgement = engine.judge(decision, [ip_address(address) for address in static[host]])
        yield Checked(target=target, decision=decision, judgement=judgement)


def _bracketed(target: str) -> str:
    """Return a target with brackets round a bare IPv6 address, which a person may leave out and a proxy request not."""
    try:
        return f"[{IPv6Address(target)}]"
    except ValueError:
        return target


def _rule_as_json(rule: Rule | None) -> dict[str, str | None]:
    return {"rule": str(rule) if rule else None, "source": str(rule.source) if rule else None}
