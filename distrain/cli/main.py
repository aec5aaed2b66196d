"""The `distrain` command: imports the module of a subcommand, runs it, and prints its errors."""

import errno
import gc
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

from distrain.cli.interrupts import interruptible
from distrain.cli.options import global_options, with_suggestion
from distrain.cli.output import print_result, print_warning
from distrain.errors import DistrainError, on_sigterm, word_and_exit_code
from distrain.version import build

# By the command's name: its module in `distrain.cli` (with its function, if that is not `command`),
# and its line in the list of commands.
COMMANDS = {
    "demo": ("training.demo", "Generate data, prepare it and train on it, in a few minutes."),
    "synth": ("data.synth", "Generate Criteo-shaped rows with a known best AUC."),
    "prep": ("data.prep", "Turn raw files into training parquet."),
    "pack": ("data.pack", "Fill a cache folder with decoded training rows."),
    "init": ("training.init", "Write a job spec to start with."),
    "plan": ("training.plan", "Show what a job's ranks will read and need; start nothing."),
    "train": ("training.train", "Train a model from a job spec."),
    "tune": ("training.tune", "Search for better values of a job spec."),
    "login": ("login", "Store the address of a job service, and a token for it."),
    "submit": ("jobs.submit", "Submit a job to a service or a scheduler, and return."),
    "jobs": ("jobs.list", "List the jobs of a service or a scheduler."),
    "status": ("jobs.show:status", "Show the state of one job."),
    "wait": ("jobs.show:wait", "Wait for a job's end."),
    "attach": ("jobs.show:attach", "Follow a running job."),
    "cancel": ("jobs.change:cancel", "Stop a job."),
    "resume": ("jobs.change:resume", "Resume a job that has ended."),
    "clone": ("jobs.change:clone", "Submit a job's spec again, as a new job."),
    "priority": ("jobs.change:priority", "Change a job's priority in the queue."),
    "top": ("top.command", "Show jobs, and the ranks of one of them, as they run."),
    "report": ("runs.report", "Write one HTML page about a run."),
    "compare": ("runs.report:compare", "Compare the metrics and specs of runs."),
    "logs": ("runs.logs", "Print the logs of a job's ranks."),
    "audit": ("runs.audit", "Prove that a run trained every row once."),
    "evaluate": (
        "models.evaluate",
        "Score labelled rows with a saved model and print its metrics.",
    ),
    "ensemble": ("models.ensemble", "Combine several runs into one that predicts their mean."),
    "predict": ("models.predict", "Write a saved model's scores of rows, raw or prepared."),
    "export": ("models.export", "Write a saved model for plain torch or ONNX runtimes."),
    "schema": ("data.schema", "Show, filter or convert a schema."),
    "serve": ("service.serve", "Run the job service for many users, over HTTP."),
    "bench": ("training.bench", "Measure a cluster, and find the bottleneck of training."),
    "doctor": (
        "doctor",
        "Check this machine, or all processes of a cluster.",
    ),
    "completion": ("main:completion", "Print the script that completes commands in your shell."),
}


class LazyGroup(click.Group):
    """Imports a command's module only when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of that name, with the global options added; `None` if unknown."""
        if cmd_name not in COMMANDS:
            return None
        module, _, function = COMMANDS[cmd_name][0].partition(":")
        loaded = import_module(f"distrain.cli.{module}")
        command: click.Command = getattr(loaded, function or "command")
        own = {option for parameter in command.params for option in parameter.opts}
        command.params += [p for p in global_options(hidden=True) if not own & {*p.opts}]
        return command

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        with interruptible():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with interruptible(ctx):
            return super().invoke(ctx)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Expand a leading `~` in each argument, as the shell does, and parse."""
        return super().parse_args(ctx, [_with_home(word) for word in args])

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command's name, the command, and the arguments after its name.

        For an unknown name, fail with the most similar name as a hint.
        """
        from difflib import get_close_matches

        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            near = get_close_matches(name, COMMANDS, n=1)
            guess = f" Did you mean '{near[0]}'?" if near else ""
            ctx.fail(f"No such command '{name}'.{guess}")
        return super().resolve_command(ctx, args)


def _with_home(word: str) -> str:
    """Expand a leading `~` of an argument, or of the value in `--option=value`, to the home folder.

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


def _print_version(context: click.Context, _: click.Parameter, requested: bool) -> None:
    if requested:
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
    callback=_print_version,
    help="Show the version, with a digest of the code, and exit.",
)
def cli() -> None:
    """Train click-through-rate models on tables, on a Dask cluster.

    Works with any table of rows with a target (docs/any-table.md), and with Criteo's files.

    \b
    Start with:
      distrain demo                    all steps on generated data
      distrain COMMAND --help          a command, with examples

    \b
    With a running Dask cluster, set DISTRAIN_SCHEDULER instead of --scheduler; with a job service,
    DISTRAIN_SERVER instead of --server.
    --quiet and --log-level are allowed before and after the command's name.

    Exit codes: 0 ok, 1 bad input or output, 2 usage, 69 no cluster or no service, 77 not allowed,
    100 the job failed, 101 the job has not ended, 102 no such job (or file, project, ...),
    103 the job was stopped, 104 timeout, 130 Ctrl-C, 143 SIGTERM.
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
    "A dask config file at": "Correct or remove that file; DASK_CONFIG sets another folder.",
    "Could not determine home dir": "This user has no entry in /etc/passwd: set HOME to a folder.",
}
"""Hints for library errors about the user's environment, by the beginning of the message."""


def main(args: list[str] | None = None) -> Any:
    """Run the command line, print expected errors, and exit with the command's exit code.

    `args` are the arguments without the program's name; `None`: those of this process.
    """
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        # An encoding that lacks a letter must not end a command that follows a job.
        sys.stdout.reconfigure(errors="replace")
    if args is None:
        # Child processes, Dask's included, must not import from the current folder.
        os.environ["PYTHONSAFEPATH"] = "1"
        gc.set_threshold(50_000)  # imports make many objects and leave no garbage
    try:
        with on_sigterm():  # so that outputs stay complete or absent
            ended = cli.main(args=args, prog_name="distrain", standalone_mode=False)
    except DistrainError as error:
        print_warning(f"error: {error}")
        _exit(args is None, error.exit_code)
    except click.ClickException as error:
        if isinstance(error, click.NoSuchOption):
            error = with_suggestion(error)
        error.show(text := StringIO())
        print_warning(text.getvalue().rstrip("\n"))
        _exit(args is None, error.exit_code)
    except click.Abort as error:  # Ctrl-C or SIGTERM between the calls of `LazyGroup`
        word, code = word_and_exit_code(error.__cause__)
        print_warning(word)
        _exit(args is None, code)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "distrain"):
            raise
        print_warning(
            f"error: a package that this version of distrain needs is not installed: {package}\n"
            "  hint: Install distrain again with its dependencies: pip install -c constraints.txt ."
        )
        _exit(args is None, 1)
    except (ValueError, RuntimeError) as error:  # of a library that reads the environment
        message = " ".join(str(error).split())
        hint = next(
            (hint for begin, hint in _SURROUNDINGS.items() if message.startswith(begin)), None
        )
        if hint is None:
            raise
        print_warning(f"error: {message}\n  hint: {hint}")
        _exit(args is None, 1)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        # Files raise `OutputError`, so this was standard output redirected to a file.
        sys.stdout = None  # or Python flushes again, with a traceback
        print_warning(f"error: could not write the output: {error.strerror}")
        print_warning("  hint: The disk is full: free some space.")
        _exit(args is None, 1)
    _exit(args is None, ended if isinstance(ended, int) else 0)


def _exit(is_process: bool, code: int) -> NoReturn:
    """Exit with a code. With `is_process`, SIGTERM during the exit does not change the code."""

    def end(_signal: int, _frame: object) -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()
        os._exit(code)

    if is_process and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, end)
        gc.freeze()  # or the exit searches all of torch's objects for garbage, for half a second
    sys.exit(code)
