"""``iterion run``: run a workflow file."""

from pathlib import Path

import click

__all__ = ["run"]


@click.command()
@click.argument("file", metavar="FLOW.bot", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--sandbox", type=click.Choice(["auto", "none"]), help="Force the sandbox on or off for this run.")
@click.option("--sandbox-driver", "driver_name", metavar="NAME", help="How to isolate: bubblewrap, noop.")
@click.option(
    "--sandbox-default-image", "default_image", metavar="REF", help="The image when `auto` finds no devcontainer.json."
)
@click.option(
    "--sandbox-host-state",
    "host_state",
    type=click.Choice(["auto", "none"]),
    help="Whether state of the host (~/.claude) is visible inside.",
)
@click.option("--var", "variables", metavar="NAME=VALUE", multiple=True, help="Set a variable of the workflow.")
@click.option("--preset", metavar="NAME", help="Take the values of one of the file's presets.")
@click.option(
    "--store-dir", type=click.Path(file_okay=False, path_type=Path), help="Where runs are kept ($ITERION_HOME)."
)
@click.option("--run-id", metavar="ID", help="The run's identifier; a UUIDv7 by default.")
@click.option("--quiet", is_flag=True, help="Nothing on standard error but errors.")
@click.pass_context
def run(
    ctx: click.Context,
    file: Path,
    sandbox: str | None,
    driver_name: str | None,
    default_image: str | None,
    host_state: str | None,
    variables: tuple[str, ...],
    preset: str | None,
    store_dir: Path | None,
    run_id: str | None,
    quiet: bool,
) -> None:
    """Run the workflow FLOW.bot (or .iter) in the current directory.

    Exit code: 0 when it reached `done`, 1 when it failed, 2 for a mistake in the file or the flags, 130 when it was
    interrupted.
    """
    from gateway.flow_run import FlowRequest, run_flow

    request = FlowRequest(
        file=file,
        sandbox=sandbox,
        driver_name=driver_name,
        default_image=default_image,
        host_state=host_state,
        variables=variables,
        preset=preset,
        store_dir=store_dir,
        run_id=run_id,
        quiet=quiet,
    )
    ctx.exit(run_flow(request))
