"""Parameter types and options that several commands share."""

import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

from distrain.cli.output import log_to_stderr, take_json, take_quiet

Function = TypeVar("Function", bound=Callable[..., Any])

SCHEDULER_VARIABLE = "DISTRAIN_SCHEDULER"

_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}


class Count(click.ParamType):  # type: ignore[type-arg]
    """A whole number with an optional suffix: k, M or G for thousands, millions, billions.

    >>> COUNT.convert("1.5M", None, None)
    1500000
    """

    name = "count"

    def convert(
        self,
        value: str | int,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> int:
        """The number that `value` says."""
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"(\d[\d_]*)(?:\.(\d+))?([kmg]?)", value.strip().lower())
        if match:
            whole, fraction, suffix = match[1].replace("_", ""), match[2] or "", match[3]
            # In whole numbers: 1.1M is 1,100,000 and not a float beside it.
            number, rest = divmod(
                int(whole + fraction) * _FACTORS[suffix], int("1" + "0" * len(fraction))
            )
            if not rest:
                return number
        self.fail(f"{value!r} is not a count such as 250000, 100k, 1.5M or 4G", param, ctx)


COUNT = Count()


def json_option(help_text: str) -> Callable[[Function], Function]:
    """`--json`: standard output is JSON alone, and what people read goes to standard error.

    Args:
        help_text: What is printed.
    """
    return click.option("--json", "as_json", is_flag=True, callback=take_json, help=help_text)


def checkpoint_option(function: Function) -> Function:
    """`--checkpoint`: one of a run's checkpoints in the place of its model."""
    return click.option(
        "--checkpoint",
        metavar="WHICH",
        help="Take a checkpoint of the run, not its model: a number of steps, best or newest.",
    )(function)


def scheduler_options(help_text: str) -> Callable[[Function], Function]:
    """How to reach a Dask cluster that runs already: `--scheduler`, or the environment.

    Args:
        help_text: What the cluster is for.
    """
    return click.option(
        "--scheduler",
        metavar="ADDRESS",
        envvar=SCHEDULER_VARIABLE,
        callback=_address,
        help=f"{help_text} Default: {SCHEDULER_VARIABLE}.",
    )


def global_options(*, hidden: bool) -> list[click.Option]:
    """What every command takes, before its name and after it.

    Args:
        hidden: Whether help leaves them out.
    """
    quiet = click.Option(
        ["--quiet", "-q"],
        is_flag=True,
        expose_value=False,
        callback=take_quiet,
        hidden=hidden,
        help="Print results, warnings and errors only.",
    )
    level = click.Option(
        ["--log-level"],
        type=click.Choice(["debug", "info", "warning", "error"]),
        expose_value=False,
        callback=_take_level,
        hidden=hidden,
        help="Print what this command logs, from this level on, to standard error.",
    )
    return [quiet, level]


def _address(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    return value or None  # `--scheduler ''` takes the environment's away


def _take_level(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        log_to_stderr(value)
