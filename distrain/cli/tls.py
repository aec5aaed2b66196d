"""The options that say which certificate a command shows to a Dask scheduler at `tls://`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def tls_options(command: Command) -> Command:
    """Add `--tls-ca-file`, `--tls-cert` and `--tls-key`, named as those of `dask scheduler`.

    They go into Dask's configuration of this process, where every connection finds them, so the
    command itself takes no arguments for them.
    """
    for name, key, text in reversed(_OPTIONS):
        command = click.option(
            name,
            metavar="FILE",
            type=click.Path(path_type=Path, exists=True, dir_okay=False),
            expose_value=False,
            callback=_setter(key),
            help=text,
        )(command)
    return command


_OPTIONS = (
    ("--tls-ca-file", "ca-file", "For a scheduler at tls://: PEM file of the cluster's authority."),
    ("--tls-cert", "client.cert", "PEM file of the certificate to show to that scheduler."),
    ("--tls-key", "client.key", "PEM file of that certificate's key."),
)


def _setter(key: str) -> Callable[[click.Context, click.Parameter, Path | None], None]:
    def keep(context: click.Context, parameter: click.Parameter, value: Path | None) -> None:
        if value is not None:
            import dask

            dask.config.set({f"distributed.comm.tls.{key}": str(value)})

    return keep
