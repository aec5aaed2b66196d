"""Options and parameter types shared by several commands."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

from distrain.cli.output import keep_json_option, keep_quiet_option, log_to_stderr

Function = TypeVar("Function", bound=Callable[..., Any])

SCHEDULER_VARIABLE = "DISTRAIN_SCHEDULER"

_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}


class CountType(click.ParamType):  # type: ignore[type-arg]
    """An integer with an optional suffix: k, M or G for thousands, millions, billions.

    >>> COUNT.convert("1.5M", None, None)
    1500000
    """

    name = "count"

    def convert(
        self, value: str | int, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"(\d[\d_]*)(?:\.(\d+))?([kmg]?)", value.strip().lower())
        if match:
            whole, fraction, suffix = match[1].replace("_", ""), match[2] or "", match[3]
            # In integers, so that 1.1M is exactly 1,100,000.
            number, rest = divmod(
                int(whole + fraction) * _FACTORS[suffix], int("1" + "0" * len(fraction))
            )
            if not rest:
                return number
        self.fail(f"{value!r} is not a count such as 250000, 100k, 1.5M or 4G", param, ctx)


class PlaceType(click.Path):
    """A path or URL; the command gets a `Path` for a path, and a string for a URL."""

    name = "place"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from distrain.storage.urls import path_or_url

        return path_or_url(str(super().convert(value, param, ctx)))


class ShareType(click.ParamType):  # type: ignore[type-arg]
    """A share between 0 and 1, or a percentage.

    >>> SHARE.convert("1%", None, None), SHARE.convert("0.5", None, None)
    (0.01, 0.5)
    """

    name = "share"

    def convert(
        self, value: str | float, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        text = str(value).strip()
        try:
            share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            share = -1.0
        if not 0 <= share <= 1:
            self.fail(f"{value!r} is not a share such as 0.01 or 1%", param, ctx)
        return share


COUNT = CountType()
SHARE = ShareType()
PLACE = PlaceType()
PATH = click.Path(path_type=Path)
EXISTING_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
POSITIVE = click.IntRange(min=1)

row_group_option = click.option(
    "--row-group-rows", type=COUNT, default=65536, help="Rows per row group."
)
overrides_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="SECTION.FIELD=VALUE",
    help="Set one field of the spec; may be repeated. The value is read as YAML.",
)


def json_option(help_text: str) -> Callable[[Function], Function]:
    """Add `--json`: standard output has only JSON; text for people goes to standard error."""
    return click.option(
        "--json", is_flag=True, expose_value=False, callback=keep_json_option, help=help_text
    )


def table_options(function: Function) -> Function:
    """Add `--target`, `--task`, `--weight` and `--time`, which describe a table's columns."""
    options = (
        click.option(
            "--target",
            multiple=True,
            metavar="COLUMN",
            help="The column to predict; may be repeated.",
        ),
        click.option(
            "--task",
            type=click.Choice(["binary", "regression", "multiclass"]),
            help="The kind of the targets. Default: inferred from their values.",
        ),
        click.option("--weight", metavar="COLUMN", help="The column of the rows' weights."),
        click.option(
            "--time",
            metavar="COLUMN",
            help="A column of times: the latest rows are for validation.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def bad_lines_options(function: Function) -> Function:
    """Add `--bad-lines` and `--max-bad`: how to treat lines that are not valid rows."""
    lines = click.option(
        "--bad-lines",
        type=click.Choice(["stop", "skip"]),
        default="stop",
        is_eager=True,  # before --max-bad, which needs it
        help="Stop at a bad line, or skip and count bad lines.",
    )
    share = click.option(
        "--max-bad",
        type=SHARE,
        default="1%",
        show_default=True,
        callback=_check_max_bad,
        help="With --bad-lines skip: the largest share of lines that may be skipped.",
    )
    return lines(share(function))


def _check_max_bad(context: click.Context, parameter: click.Parameter, share: float) -> float:
    if given_options(context, ["max_bad"]) and context.params["bad_lines"] != "skip":
        raise click.UsageError("--max-bad is for --bad-lines skip.")
    return share


def given_options(context: click.Context, names: Iterable[str]) -> list[str]:
    """Return those of the parameters `names` that the user has set, as options: `--max-size`.

    A value from an environment variable counts as set.
    """
    return [
        f"--{name.replace('_', '-')}"
        for name in names
        if context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT
    ]


def keep_option(help_text: str) -> Callable[[Function], Function]:
    """Add `--keep`: a column of the input to copy to the output."""
    return click.option("--keep", multiple=True, metavar="COLUMN", help=help_text)


def ranks_option(default: int) -> Callable[[Function], Function]:
    """Add `--ranks`: the number of ranks of a new job."""
    return click.option(
        "--ranks", type=POSITIVE, default=default, help="The number of ranks (model replicas)."
    )


def scheduler_option(help_text: str) -> Callable[[Function], Function]:
    """Add `--scheduler`: the address of a running Dask cluster; default: DISTRAIN_SCHEDULER."""
    return click.option(
        "--scheduler",
        metavar="ADDRESS",
        envvar=SCHEDULER_VARIABLE,
        callback=lambda context, parameter, value: value or None,  # '' overrides the environment
        help=f"{help_text} Default: {SCHEDULER_VARIABLE}.",
    )


def connection_options(help_text: str) -> Callable[[Function], Function]:
    """Add `--scheduler` and the TLS options, for commands that connect to a scheduler."""
    return lambda function: scheduler_option(help_text)(tls_options(function))


def workers_options(function: Function) -> Function:
    """Add `--workers` for a new local cluster, and `connection_options` for an existing one."""
    return click.option(
        "--workers", type=POSITIVE, default=2, help="The number of workers of a local cluster."
    )(connection_options("Use this Dask cluster instead of a local one.")(function))


def threads_options(function: Function) -> Function:
    """Add `--workers` for threads of this process, and `connection_options` for a cluster."""
    return click.option(
        "--workers",
        type=POSITIVE,
        default=2,
        help="The number of threads of this process; not used with --scheduler.",
    )(connection_options("Use this Dask cluster instead of threads.")(function))


def tls_options(function: Function) -> Function:
    """Add `--tls-ca-file`, `--tls-cert` and `--tls-key`, named as those of `dask scheduler`.

    The options set this process's Dask configuration, which every connection reads, so commands
    get no arguments for them.
    """
    for name, key, help_text in reversed(_TLS_OPTIONS):
        function = click.option(
            name,
            metavar="FILE",
            type=EXISTING_FILE,
            expose_value=False,
            callback=_dask_setter(f"distributed.comm.tls.{key}"),
            help=help_text,
        )(function)
    return function


_TLS_OPTIONS = (
    ("--tls-ca-file", "ca-file", "For a scheduler at tls://: PEM file of the cluster's CA."),
    ("--tls-cert", "client.cert", "PEM file of the client certificate for that scheduler."),
    ("--tls-key", "client.key", "PEM file of that certificate's key."),
)


def _dask_setter(key: str) -> Callable[[click.Context, click.Parameter, Path | None], None]:
    def keep(context: click.Context, parameter: click.Parameter, value: Path | None) -> None:
        if value is not None:
            import dask

            dask.config.set({key: str(value)})

    return keep


def global_options(*, hidden: bool) -> list[click.Option]:
    """Return the options that every command accepts, before and after its name."""
    quiet = click.Option(
        ["--quiet", "-q"],
        is_flag=True,
        expose_value=False,
        callback=keep_quiet_option,
        hidden=hidden,
        help="Print only results, warnings and errors.",
    )
    level = click.Option(
        ["--log-level"],
        type=click.Choice(["debug", "info", "warning", "error"]),
        expose_value=False,
        callback=_set_level,
        hidden=hidden,
        help="Print this command's log, from this level up, to standard error.",
    )
    return [quiet, level]


def with_suggestion(error: click.NoSuchOption) -> click.UsageError:
    """Return the error with the option, or the field of the spec, that has another name here."""
    command = None if error.ctx is None else error.ctx.command
    known = {option for one in (command.params if command else ()) for option in one.opts}
    from distrain.jobs.spec.explain import ARGUMENTS_OF_OTHER_TOOLS, spec_field

    name = error.option_name.lstrip("-").replace("-", "_")
    meant = f"--{ARGUMENTS_OF_OTHER_TOOLS.get(name)}"
    if meant not in known:
        field = spec_field(name) if "--set" in known else None
        if field is None:
            return error
        meant = f"--set {field}=VALUE"
    return click.UsageError(f"{error.message} Did you mean {meant!r}?", error.ctx)


def _set_level(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        log_to_stderr(value)
