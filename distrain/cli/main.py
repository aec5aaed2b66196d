"""The `distrain` command: finds a command's file, runs it, and tells errors on one screen."""

import errno
import sys
from importlib import import_module
from io import StringIO, TextIOWrapper
from typing import Any

import click

from distrain.cli.home import with_homes
from distrain.cli.interrupts import INTERRUPTED, ends_in_order, terminated_like_interrupted
from distrain.cli.output import warn
from distrain.cli.params import global_options
from distrain.errors import DistrainError
from distrain.version import __version__

COMMANDS = {
    "demo": "See the whole way on generated data, in a few minutes.",
    "synth": "Generate Criteo-shaped rows with a known best AUC.",
    "prep": "Turn raw Criteo files into training parquet.",
    "pack": "Write training parquet in the layout that is read fastest.",
    "init": "Write a job spec to begin with.",
    "plan": "Say what a job's ranks will read and hold, and start nothing.",
    "train": "Train a model as a job spec says.",
    "jobs": "List the jobs of a scheduler.",
    "status": "Say how one job stands.",
    "attach": "Follow a job that goes on without you.",
    "cancel": "Stop a job.",
    "top": "Show what the jobs of a scheduler do.",
    "report": "Write a run on one HTML page.",
    "compare": "Lay runs side by side.",
    "logs": "Print what a run's ranks printed, or their first error.",
    "audit": "Prove that a run trained every row once.",
    "evaluate": "Score labelled rows with a saved model and tell its metrics.",
    "predict": "Write a saved model's scores of parquet files.",
    "export": "Write a saved model for torch alone, or for ONNX runtimes.",
    "schema": "Show, select from or convert a schema.",
    "doctor": "Check versions, devices, cluster and write access.",
    "completion": "Print the script that completes commands in your shell.",
}

_MODULES = {
    "jobs": "jobs.list",
    "status": "jobs.status",
    "attach": "jobs.attach",
    "cancel": "jobs.cancel",
    "top": "top.command",
}
"""Where a command lies whose file has another name than it."""


class LazyGroup(click.Group):
    """Imports a command's file only when the command is used: the rest stays unloaded."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands, in the order that people meet them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, or none."""
        if cmd_name not in COMMANDS:
            return None
        module = _MODULES.get(cmd_name, cmd_name)
        command: click.Command = import_module(f"distrain.cli.{module}").command
        known = {option for parameter in command.params for option in parameter.opts}
        command.params += [p for p in global_options(hidden=True) if not known & {*p.opts}]
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; Ctrl-C and SIGTERM end it in one line."""
        with ends_in_order(ctx):
            return super().invoke(ctx)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the words apart, once `~` is a folder in each of them."""
        return super().parse_args(ctx, with_homes(args))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or name the nearest one."""
        from difflib import get_close_matches

        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            near = get_close_matches(name, COMMANDS, n=1)
            guess = f" Did you mean '{near[0]}'?" if near else ""
            ctx.fail(f"No such command '{name}'.{guess}")
        return super().resolve_command(ctx, args)


@click.group(
    cls=LazyGroup,
    params=global_options(hidden=False),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="distrain")
def cli() -> None:
    """Train click-through-rate models on Criteo-format tables, on a Dask cluster.

    \b
    Begin with:
      distrain demo                    the whole way on generated data
      distrain COMMAND --help          a command, with examples

    \b
    Where a Dask cluster runs, DISTRAIN_SCHEDULER may name it in place of --scheduler.
    --quiet and --log-level may stand before the command's name or after it.

    Exit codes: 0 ok, 1 bad input or output, 2 usage, 69 no cluster, 100 the job failed,
    103 the job was stopped, 130 Ctrl-C, 143 SIGTERM.
    """


def main(args: list[str] | None = None) -> Any:
    """Run the command line; the process ends with the error's exit code."""
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        # A terminal that lacks a letter must not end a command, which may have a job to follow.
        sys.stdout.reconfigure(errors="replace")
    try:
        with terminated_like_interrupted():
            ended = cli.main(args=args, prog_name="distrain", standalone_mode=False)
    except DistrainError as error:
        warn(f"error: {error}")
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show(text := StringIO())
        warn(text.getvalue().rstrip("\n"))
        sys.exit(error.exit_code)
    except click.Abort:  # Ctrl-C before the command had begun
        warn("interrupted")
        sys.exit(INTERRUPTED)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        # Files have an error of their own (`OutputError`): this was standard output, into a file.
        sys.stdout = None  # or Python tries once more, with a traceback
        warn(f"error: could not write the output: {error.strerror}")
        warn("  hint: The disk is full: free some space.")
        sys.exit(1)
    sys.exit(ended if isinstance(ended, int) else 0)


if __name__ == "__main__":
    main()
