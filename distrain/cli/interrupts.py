"""Ends a command on Ctrl-C or SIGTERM, with a message."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import click

from distrain.cli.output import clean
from distrain.errors import word_and_exit_code

_LEFT = "distrain.left"


class CommandInterrupted(click.ClickException):
    """Raised if Ctrl-C or SIGTERM ends a command.

    `left` is added to the message: what continues or remains, such as "nothing was written".
    """

    def __init__(self, error: KeyboardInterrupt, left: str):
        word, code = word_and_exit_code(error)
        super().__init__(f"{word}: {left}" if left else word)
        self.exit_code = code  # type: ignore[misc]

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(clean(self.message), file=file, err=file is None)


def if_interrupted(left: str) -> None:
    """Set the text that is printed if Ctrl-C or SIGTERM ends the running command from here on.

    `left` says what continues or remains, such as "the job was not started". Does nothing in other
    threads of the command, which have no click context.
    """
    context = click.get_current_context(silent=True)
    if context is not None:
        context.meta[_LEFT] = left


@contextmanager
def interruptible(context: click.Context | None = None) -> Iterator[None]:
    """Raise `CommandInterrupted` if Ctrl-C or SIGTERM ends the block.

    `context` is `None` as long as the command has none.
    """
    try:
        yield
    except KeyboardInterrupt as error:
        raise CommandInterrupted(
            error, "" if context is None else context.meta.get(_LEFT, "")
        ) from None
