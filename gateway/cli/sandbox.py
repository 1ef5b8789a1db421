"""``iterion sandbox``: run one command in a sandbox."""

from pathlib import Path

import click

__all__ = ["sandbox"]


@click.group()
def sandbox() -> None:
    """Run a command in a sandbox, and look after what sandboxes leave behind."""


@sandbox.command("run", context_settings={"allow_interspersed_args": False})
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
@click.option(
    "--resolve",
    metavar="HOST=ADDRESS",
    multiple=True,
    help="Answer for a host without asking DNS; the address is judged like any other.",
)
@click.option("--driver", "driver_name", metavar="NAME", help="How to isolate: bubblewrap, noop.")
@click.option("--image", metavar="REF", help="The image of a container driver.")
@click.option(
    "--enforcement",
    type=click.Choice(["enforced", "cooperative"]),
    help="cooperative: the proxy is advice only.",
)
@click.option(
    "--host-state",
    type=click.Choice(["auto", "none"]),
    default="none",
    show_default=True,
    help="auto: ~/.claude is visible and writable inside.",
)
@click.option("--env", "env", metavar="NAME=VALUE", multiple=True, help="Set a variable for the command.")
@click.option(
    "--store-dir", type=click.Path(file_okay=False, path_type=Path), help="Where runs are kept ($ITERION_HOME)."
)
@click.option("--run-id", metavar="ID", help="The run's identifier; a UUIDv7 by default.")
@click.option("--quiet", is_flag=True, help="No notices and no summary on standard error.")
@click.argument("command", nargs=-1, required=True, metavar="-- COMMAND [ARG]...")
@click.pass_context
def run_command(
    ctx: click.Context,
    policy_file: Path | None,
    allow: tuple[str, ...],
    resolve: tuple[str, ...],
    driver_name: str | None,
    image: str | None,
    enforcement: str | None,
    host_state: str,
    env: tuple[str, ...],
    store_dir: Path | None,
    run_id: str | None,
    quiet: bool,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND where the network policy is the only way out.

    The current directory is writable, the rest of the host is read-only, credentials are not there. Without
    --policy and --allow every connection is blocked. The exit code is the command's own.

    \b
    iterion sandbox run --allow pypi.org --allow '**.pythonhosted.org:443' -- pip download requests
    """
    from gateway.command_run import CommandRequest, run_in_sandbox

    request = CommandRequest(
        command=command,
        policy_file=policy_file,
        allow=allow,
        resolve=resolve,
        driver_name=driver_name,
        image=image,
        enforcement=enforcement,
        host_state=host_state,
        env=env,
        store_dir=store_dir,
        run_id=run_id,
        quiet=quiet,
    )
    ctx.exit(run_in_sandbox(request))


@sandbox.command("reap")
@click.option(
    "--store-dir", type=click.Path(file_okay=False, path_type=Path), help="Where runs are kept ($ITERION_HOME)."
)
def reap(store_dir: Path | None) -> None:
    """Clean up after runs whose process is gone; live runs are never touched."""
    from gateway.command_run import reap_runs

    for line in reap_runs(store_dir):
        click.echo(line)
