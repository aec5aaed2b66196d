"""The `distrain` command: finds a command's file, runs it, and prints expected errors."""

import errno
import os
import signal
import sys
import threading
from contextlib import suppress
from importlib import import_module
from io import StringIO, TextIOWrapper
from typing import Any, NoReturn

import click
from click.shell_completion import get_completion_class

from distrain.cli.interrupts import INTERRUPTED, ends_in_order
from distrain.cli.options import global_options
from distrain.cli.output import print_result, print_warning
from distrain.errors import DistrainError, on_sigterm
from distrain.version import build

# By name the module below `distrain.cli`, with the function if that is not `command`; and the line
# of the list of commands.
COMMANDS = {
    "demo": ("training.demo", "Generate data, prepare it and train on it, in a few minutes."),
    "synth": ("data.synth", "Generate Criteo-shaped rows with a known best AUC."),
    "prep": ("data.prep", "Turn raw files into training parquet."),
    "pack": ("data.pack", "Fill a cache folder with training parquet, decoded."),
    "init": ("training.init", "Write a job spec to begin with."),
    "plan": ("training.plan", "Show what a job's ranks will read and hold; start nothing."),
    "train": ("training.train", "Train a model as a job spec says."),
    "tune": ("training.tune", "Search for better values of a job spec."),
    "login": ("login", "Store the address of a job service, and a token for it."),
    "submit": ("jobs.submit", "Give a job to a service or a scheduler, and leave it there."),
    "jobs": ("jobs.list", "List the jobs of a service or a scheduler."),
    "status": ("jobs.show:status", "Show the state of one job."),
    "wait": ("jobs.show:wait", "Wait for a job's end."),
    "attach": ("jobs.show:attach", "Follow a job that runs without its command."),
    "cancel": ("jobs.change:cancel", "Stop a job."),
    "resume": ("jobs.change:resume", "Let a job that has ended go on."),
    "clone": ("jobs.change:clone", "Submit a job's spec again, as a new job."),
    "priority": ("jobs.change:priority", "Change the place of a job in the queue."),
    "open": ("jobs.show:open_page", "Show a job's page in the browser."),
    "top": ("top.command", "Show the jobs of a scheduler and their ranks as they run."),
    "report": ("runs.report", "Write one HTML page about a run."),
    "compare": ("runs.report:compare", "Compare the figures and specs of runs."),
    "logs": ("runs.logs", "Print the logs of a job's ranks, or their first error."),
    "audit": ("runs.audit", "Prove that a run trained every row once."),
    "evaluate": (
        "models.evaluate",
        "Score labelled rows with a saved model and print its metrics.",
    ),
    "ensemble": ("models.ensemble", "Write the mean of several runs' models as a run."),
    "predict": ("models.predict", "Write a saved model's scores of rows, raw or prepared."),
    "export": ("models.export", "Write a saved model for torch alone, or for ONNX runtimes."),
    "schema": ("data.schema", "Show, select from or convert a schema."),
    "serve": ("service.serve", "Run the job service: jobs of many users, over HTTP."),
    "bench": ("training.bench", "Measure a cluster, and say what limits training on it."),
    "doctor": ("doctor", "Check versions, devices, cluster and write access."),
    "completion": ("main:completion", "Print the script that completes commands in your shell."),
}


class LazyGroup(click.Group):
    """Imports a command's file only when the command is used: the rest stays unloaded."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, with the options that all commands take."""
        if cmd_name not in COMMANDS:
            return None
        module, _, function = COMMANDS[cmd_name][0].partition(":")
        loaded = import_module(f"distrain.cli.{module}")
        command: click.Command = getattr(loaded, function or "command")
        own = {option for parameter in command.params for option in parameter.opts}
        command.params += [p for p in global_options(hidden=True) if not own & {*p.opts}]
        return command

    def invoke(self, ctx: click.Context) -> Any:
        with ends_in_order(ctx):
            return super().invoke(ctx)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Replace a leading `~` in each word, as the shell does where it may, and parse."""
        return super().parse_args(ctx, [_with_home(word) for word in args])

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

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


def _with_home(word: str) -> str:
    """A word with the home for a leading `~`, also of an option's value.

    >>> _with_home("--set"), _with_home("name=~")
    ('--set', 'name=~')
    """
    option, sign, value = word.partition("=") if word.startswith("--") else ("", "", word)
    if not value.startswith("~"):
        return word
    from distrain.jobs.spec.paths import with_home  # late: most words need no pydantic

    try:
        return f"{option}{sign}{with_home(value)}"
    except ValueError as error:
        raise click.UsageError(f"{error}. Write ./~NAME for a file of that name.") from None


def _tell_version(context: click.Context, _: click.Parameter, is_asked: bool) -> None:
    if is_asked:
        print_result(f"distrain, version {build()}")
        context.exit()


@click.group(
    cls=LazyGroup,
    params=global_options(hidden=False),
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_tell_version,
    help="Show the version, with a digest of the code, and exit.",
)
def cli() -> None:
    """Train click-through-rate models on tables, on a Dask cluster.

    Any table of rows with a target will do (docs/any-table.md), as do Criteo's files.

    \b
    Begin with:
      distrain demo                    the whole way on generated data
      distrain COMMAND --help          a command, with examples

    \b
    Where a Dask cluster runs, DISTRAIN_SCHEDULER may name it in place of --scheduler, and
    DISTRAIN_SERVER a job service in place of --server.
    --quiet and --log-level may stand before the command's name or after it.

    Exit codes: 0 ok, 1 bad input or output, 2 usage, 69 no cluster or no service, 77 not allowed,
    100 the job failed, 101 the job has not ended, 102 no such job (or file, project, ...),
    103 the job was stopped, 104 waited in vain, 130 Ctrl-C, 143 SIGTERM.
    """


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes `distrain` commands in SHELL.

    \b
    Examples:
      eval "$(distrain completion bash)"                    this shell
      distrain completion zsh  > ~/.zfunc/_distrain         every new zsh
      distrain completion fish > ~/.config/fish/completions/distrain.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    print_result(kind(cli, {}, "distrain", "_DISTRAIN_COMPLETE").source())


_SURROUNDINGS = {
    "A dask config file at": "Mend or remove that file; DASK_CONFIG names another folder.",
    "Could not determine home dir": "This user has no entry in /etc/passwd: set HOME to a folder.",
}
"""How to mend what libraries say of the user's environment, by how that begins."""


def main(args: list[str] | None = None) -> Any:
    """Run the command line, and exit with an error's exit code."""
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        # A terminal that lacks a letter must not end a command, which may have a job to follow.
        sys.stdout.reconfigure(errors="replace")
    if args is None:
        # Processes that this one starts import nothing from the current folder, Dask's included.
        os.environ["PYTHONSAFEPATH"] = "1"
    try:
        with on_sigterm():  # outputs are whole or absent then, too
            ended = cli.main(args=args, prog_name="distrain", standalone_mode=False)
    except DistrainError as error:
        print_warning(f"error: {error}")
        _exit(args is None, error.exit_code)
    except click.ClickException as error:
        error.show(text := StringIO())
        print_warning(text.getvalue().rstrip("\n"))
        _exit(args is None, error.exit_code)
    except click.Abort:  # Ctrl-C before the command had begun
        print_warning("interrupted")
        _exit(args is None, INTERRUPTED)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "distrain"):
            raise
        print_warning(
            f"error: a package that this version of distrain needs is not installed: {package}\n"
            "  hint: Install distrain again with its dependencies: pip install -c constraints.txt ."
        )
        _exit(args is None, 1)
    except (ValueError, RuntimeError) as error:  # of whatever looks first
        said = " ".join(str(error).split())
        hint = next((hint for begin, hint in _SURROUNDINGS.items() if said.startswith(begin)), None)
        if hint is None:
            raise
        print_warning(f"error: {said}\n  hint: {hint}")
        _exit(args is None, 1)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        # Files have an error of their own (`OutputError`): this was standard output, into a file.
        sys.stdout = None  # or Python tries once more, with a traceback
        print_warning(f"error: could not write the output: {error.strerror}")
        print_warning("  hint: The disk is full: free some space.")
        _exit(args is None, 1)
    _exit(args is None, ended if isinstance(ended, int) else 0)


def _exit(is_process: bool, code: int) -> NoReturn:
    """Exit; where this process is the command, a SIGTERM while Python ends keeps the exit code."""

    def end(_signal: int, _frame: object) -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()
        os._exit(code)

    if is_process and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, end)
    sys.exit(code)


if __name__ == "__main__":
    main()
