"""What commands print, in one place: cleaned of control characters, and on the right stream.

With `--json`, standard output holds JSON alone, and what is meant for people goes to standard
error. With `--quiet`, progress and remarks are left out; results, warnings and errors stay.
"""

import json
import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from distrain.cli.text import clean

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

_JSON, _QUIET = "distrain.json", "distrain.quiet"
_PIPE_COLUMNS = 10_000
"""The width of what is no terminal: whoever reads it can cut lines, and cannot restore them."""

VERSION = 1
"""Of the JSON documents: fields are added, not renamed."""


def json_wanted() -> bool:
    """Whether the command that runs was called with `--json`."""
    return _flag(_JSON)


def quiet_wanted() -> bool:
    """Whether `--quiet` was given."""
    return _flag(_QUIET)


def take_json(context: click.Context, _: click.Parameter, value: bool) -> bool:
    """The callback of `--json`."""
    context.meta[_JSON] = value
    return value


def take_quiet(context: click.Context, _: click.Parameter, value: bool) -> bool:
    """The callback of `--quiet`, which may stand before the command and after it."""
    context.meta[_QUIET] = value or context.meta.get(_QUIET, False)
    return value


def say(text: object, *, bold: bool = False) -> None:
    """Print progress, or a remark; nothing with `--quiet`."""
    if not quiet_wanted():
        _echo(text, bold=bold, err=json_wanted())


def tell(text: object, *, bold: bool = False) -> None:
    """Print a line of the result for people; nothing with `--json`, where `document` has it."""
    if not json_wanted():
        _echo(text, bold=bold, err=False)


def warn(text: object) -> None:
    """Print a warning, an error or a note to standard error."""
    _echo(text, bold=False, err=True)


def document(values: Mapping[str, Any] | list[Any]) -> None:
    """Print one JSON document on a line of its own."""
    click.echo(json.dumps(values))


def answer(**values: Any) -> None:
    """Print a command's result as JSON, with the version of these documents."""
    document({"version": VERSION, **values})


def result_console() -> "Console":
    """A console for tables and other drawings of results."""
    return _console(err=False, quiet=json_wanted())


def progress_console() -> "Console":
    """A console for bars and lines of progress."""
    return _console(err=json_wanted(), quiet=quiet_wanted())


def warning_console() -> "Console":
    """A console for what is said whatever was asked for."""
    return _console(err=True, quiet=False)


def log_to_stderr(level: str) -> None:
    """Print what distrain logs in this process from a level on, to standard error.

    Args:
        level: `debug`, `info`, `warning` or `error`.
    """
    logger = logging.getLogger("distrain")
    for handler in [h for h in logger.handlers if isinstance(h, _LogHandler)]:
        logger.removeHandler(handler)
    handler = _LogHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(level.upper())


class _LogHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        warn(self.format(record))


def _flag(name: str) -> bool:
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(name, False))


def _echo(text: object, *, bold: bool, err: bool) -> None:
    words = clean(text)
    click.echo(click.style(words, bold=True) if bold else words, err=err)


def _console(*, err: bool, quiet: bool) -> "Console":
    from rich.console import Console
    from rich.segment import Segment

    class CleanConsole(Console):
        """A console that cleans text, and leaves the codes alone that it makes itself."""

        def render(
            self, renderable: "RenderableType", options: "ConsoleOptions | None" = None
        ) -> Iterator["Segment"]:
            for segment in super().render(renderable, options):
                words = segment.text if segment.control else clean(segment.text)
                same = words == segment.text
                yield segment if same else Segment(words, segment.style)

    console = CleanConsole(stderr=err, quiet=quiet)
    if not console.is_terminal:
        console.width = _PIPE_COLUMNS
    return console
