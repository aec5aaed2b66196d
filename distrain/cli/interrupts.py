"""How a command ends that is told to: by Ctrl-C, or by SIGTERM."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, NoReturn

import click

from distrain.cli.text import clean
from distrain.errors import Terminated

INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM

_LEFT = "distrain.left"


class Ended(click.ClickException):
    """A command was told to end by Ctrl-C, and has.

    Args:
        left: What it leaves behind, in words.
    """

    exit_code = INTERRUPTED
    how = "interrupted"

    def __init__(self, left: str = ""):
        super().__init__(f"{self.how}: {left}" if left else self.how)

    def show(self, file: IO[Any] | None = None) -> None:
        """Print it in one line."""
        click.echo(clean(self.message), file=file, err=file is None)


class EndedBySignal(Ended):
    """The same by SIGTERM."""

    exit_code = TERMINATED
    how = "terminated"


def if_interrupted(left: str) -> None:
    """Say what the command that runs leaves behind if it is told to end from here on.

    Threads that the command has started have no context of it: from there this does nothing.

    Args:
        left: In words, such as "nothing was written to OUT".
    """
    context = click.get_current_context(silent=True)
    if context is not None:
        context.meta[_LEFT] = left


@contextmanager
def ends_in_order(context: click.Context) -> Iterator[None]:
    """Raise `Ended` where Ctrl-C or SIGTERM ends the block."""
    try:
        yield
    except KeyboardInterrupt as error:
        kind = EndedBySignal if isinstance(error, Terminated) else Ended
        raise kind(context.meta.get(_LEFT, "")) from None


@contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """Take SIGTERM as Ctrl-C is taken, so that outputs are whole or absent then, too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(number: int, frame: object) -> NoReturn:
    raise Terminated
