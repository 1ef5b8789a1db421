"""The ``iterion`` command. Commands are imported when they are called, so that ``--help`` stays fast."""

import gc
import importlib
import os
import sys
from typing import Final, NoReturn

import click

from gateway.version import __version__

__all__ = ["cli", "main"]

PROGRAM: Final = "iterion"

COMMANDS: Final = {
    "policy": ("gateway.cli.policy", "policy", "Check what a policy decides."),
    "run": ("gateway.cli.run", "run", "Run a workflow in its sandbox."),
    "sandbox": ("gateway.cli.sandbox", "sandbox", "Run a command in a sandbox."),
}
"name -> (module, attribute, one line of help)"


class LazyGroup(click.Group):
    """A group that knows its commands' names and help without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names for ``--help``."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command that is called."""
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands from the table."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in sorted(COMMANDS.items())])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name=PROGRAM)
def cli() -> None:
    """Run coding agents in a throwaway sandbox whose only way out is a policy-enforcing gateway."""


def main() -> NoReturn:
    """Run the command line and exit: 0 done, 1 failed, 2 usage or configuration.

    The process ends without taking the interpreter apart, which would cost a tenth of a short run. By then every
    file, process and thread of a command has been ended by the command itself.
    """
    gc.disable()  # a start would spend a tenth of its time looking for garbage in imports; `conduct_run` enables it
    _open_standard_streams()
    code = _run()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:  # nobody reads any more
        code = code or 1
    os._exit(code)


def _open_standard_streams() -> None:
    """Open what the caller closed of the standard streams: another file would get its number, and go to a sandbox."""
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != fd:
                os.dup2(opened, fd)
                os.close(opened)
            setattr(sys, name, open(fd, "r" if fd == 0 else "w", closefd=False))  # noqa: SIM115 - for good


def _run() -> int:
    try:
        code = cli.main(prog_name=PROGRAM, standalone_mode=False)
    except click.exceptions.Abort:
        code = 130
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except BrokenPipeError:
        code = 1  # nobody reads any more
    except Exception as error:
        code = _report(error)
    return code or 0


def _report(error: Exception) -> int:
    from gateway.errors import exit_code_of, is_expected, primary_error
    from gateway.notices import show_error

    primary = primary_error(error)
    if not is_expected(primary):
        raise error
    show_error(str(primary))
    return exit_code_of(primary)
