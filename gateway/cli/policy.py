"""``iterion policy``: ask a policy."""

import json
import sys
from pathlib import Path

import click

__all__ = ["policy"]

_MAX_FINDINGS_SHOWN = 20


@click.group()
def policy() -> None:
    """Check what a network policy allows and denies, and by which rule."""


@policy.command("check")
@click.option(
    "--policy",
    "policy_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A YAML file with the keys of a `network:` block.",
)
@click.option(
    "--allow",
    "allow",
    metavar="PATTERN",
    multiple=True,
    help="Allow hosts: pypi.org, '*.example.com:443', 10.0.0.0/8; '!pattern' denies. The last match wins.",
)
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object.")
@click.argument("targets", nargs=-1, required=True, metavar="HOST[:PORT]...")
@click.pass_context
def check(
    ctx: click.Context, policy_file: Path | None, allow: tuple[str, ...], as_json: bool, targets: tuple[str, ...]
) -> None:
    """Say for each HOST whether the policy allows it, and the rule that decides. The port is 443 unless it is given.

    Nothing is resolved or contacted. The exit code is 0 if every host is allowed, 1 if one is not, 2 if the policy
    cannot be used.

    \b
    iterion policy check --policy policy.yaml api.github.com 169.254.169.254:80
    """
    from gateway.policy_check import check_hosts, load_network

    report = check_hosts(load_network(policy_file, allow), targets)
    for finding in report.findings[:_MAX_FINDINGS_SHOWN]:
        click.echo(f"{click.style('warning', fg='yellow')}: {finding}", err=True)
    if len(report.findings) > _MAX_FINDINGS_SHOWN:
        click.echo(f"and {len(report.findings) - _MAX_FINDINGS_SHOWN} more; --json has all", err=True)
    if as_json:
        json.dump(report.as_json(), sys.stdout, indent=2)
        click.echo()
    else:
        for each in report.checked:
            verdict = click.style("allowed", fg="green") if each.allowed else click.style("denied ", fg="red")
            click.echo(f"{verdict}  {each.line()}")
    ctx.exit(0 if report.allowed else 1)
