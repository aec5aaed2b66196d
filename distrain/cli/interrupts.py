"""Ends a command on Ctrl-C or SIGTERM, with a message."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import click

from distrain.cli.output import clean
from distrain.errors import Terminated

INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM

_LEFT = "distrain.left"


class Ended(click.ClickException):
    """Raised if Ctrl-C ends a command; `left` says what continues or remains, for the message."""

    exit_code = INTERRUPTED
    how = "interrupted"

    def __init__(self, left: str = ""):
        super().__init__(f"{self.how}: {left}" if left else self.how)

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(clean(self.message), file=file, err=file is None)


class EndedBySignal(Ended):
    exit_code = TERMINATED
    how = "terminated"


def if_interrupted(left: str) -> None:
    """Set the message about what remains if the running command is interrupted from here on.

    Does nothing in threads of the command, which have no click context.
    """
    context = click.get_current_context(silent=True)
    if context is not None:
        context.meta[_LEFT] = left


@contextmanager
def ends_in_order(context: click.Context) -> Iterator[None]:
    """Raise `Ended` if Ctrl-C or SIGTERM ends the block."""
    try:
        yield
    except KeyboardInterrupt as error:
        kind = EndedBySignal if isinstance(error, Terminated) else Ended
        raise kind(context.meta.get(_LEFT, "")) from None
