"""Prints all output of commands: without control characters, and to the right stream.

With `--json`, standard output has only JSON, and text for people goes to standard error.
With `--quiet`, progress and remarks are omitted; results, warnings and errors stay.
"""

import json
import logging
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment
    from rich.table import Table

_JSON, _QUIET = "distrain.json", "distrain.quiet"
_PIPE_COLUMNS = 10_000
"""The width of output into a pipe or a file, so that long lines are neither wrapped nor cut."""
_UNUSUAL = re.compile(r"[^\x20-\x7e\t\n]")

VERSION = 1
"""Version of the JSON documents: fields are added, not renamed."""

STATE_STYLES = {"running": "green", "succeeded": "blue", "failed": "red", "restarting": "yellow"}
"""Colours of jobs' states in tables."""


def clean(text: object) -> str:
    r"""Replace control characters, and those that reorder or hide text, with question marks.

    Line ends and tabs are kept; a carriage return becomes a line end.

    >>> clean("title\x1b]0;x\x07, \u202eright to left\r\nnext line")
    'title?]0;x?, ?right to left\nnext line'
    """
    text = str(text)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _UNUSUAL.sub(lambda match: match[0] if _is_harmless(match[0]) else "?", text)


def clean_line(text: object) -> str:
    r"""Return the first line of a text, cleaned as by `clean`, with a space for each tab.

    >>> clean_line("killed\x1b[2J\nits last lines")
    'killed?[2J'
    """
    lines = str(text).splitlines()
    return clean(lines[0]).replace("\t", " ") if lines else ""


def _is_harmless(character: str) -> bool:
    # Python counts the wide and narrow spaces of other scripts as unprintable.
    return character.isprintable() or unicodedata.category(character) == "Zs"


def json_wanted() -> bool:
    """Return True if the running command has `--json`."""
    return _flag(_JSON)


def quiet_wanted() -> bool:
    """Return True if the running command has `--quiet`."""
    return _flag(_QUIET)


def keep_json_option(context: click.Context, _: click.Parameter, value: bool) -> bool:
    """Store the value of `--json` for `json_wanted`, and return it."""
    context.meta[_JSON] = value
    return value


def keep_quiet_option(context: click.Context, _: click.Parameter, value: bool) -> bool:
    """Store the value of `--quiet`, which is allowed before and after the command; return it."""
    context.meta[_QUIET] = value or context.meta.get(_QUIET, False)
    return value


def print_remark(text: object) -> None:
    """Print progress or a remark; with `--quiet` nothing, with `--json` to standard error."""
    if not quiet_wanted():
        _echo(text, bold=False, err=json_wanted())


def print_result(text: object, *, bold: bool = False) -> None:
    """Print a line of the result for people; print nothing with `--json`."""
    if not json_wanted():
        _echo(text, bold=bold, err=False)


def print_facts(facts: Mapping[str, str], width: int) -> None:
    """Print named results, one per line; the names are padded to `width` characters."""
    for name, value in facts.items():
        print_result(f"{name:{width}}{value}")


def print_warning(text: object) -> None:
    """Print a warning, an error or a note to standard error."""
    _echo(text, bold=False, err=True)


def print_json(values: Mapping[str, Any] | list[Any]) -> None:
    """Print one JSON document as one line; print nothing without `--json`."""
    if json_wanted():
        click.echo(json.dumps(values))


def print_answer(**values: Any) -> None:
    """Print a JSON object: a command's result, and `version`. Print nothing without `--json`."""
    print_json({"version": VERSION, **values})


def result_console() -> "Console":
    """Return a console for results, which prints nothing with `--json`."""
    return _console(err=False, quiet=json_wanted())


def table_of(
    columns: Iterable[tuple[str, Mapping[str, Any]]], rows: Iterable[Sequence[object]], **style: Any
) -> "Table":
    """Return a table to print on a console; brackets in titles and cells are not markup.

    Args:
        columns: The title of each column, and its options in rich.
        rows: A cell for each column: a rich `Text`, or any value, which is shown as text.
        style: rich's options of the table.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table(**style)
    for title, options in columns:
        table.add_column(Text(title), **options)
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(str(cell)) for cell in row))
    return table


def progress_console() -> "Console":
    """Return a console for progress: standard error with `--json`, silent with `--quiet`."""
    return _console(err=json_wanted(), quiet=quiet_wanted())


def warning_console() -> "Console":
    """Return a console for warnings, which `--json` and `--quiet` do not silence."""
    return _console(err=True, quiet=False)


def log_to_stderr(level: str) -> None:
    """Print distrain's log of this process, from a level up, to standard error."""
    logger = logging.getLogger("distrain")
    for handler in [h for h in logger.handlers if isinstance(h, _LogHandler)]:
        logger.removeHandler(handler)
    handler = _LogHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(level.upper())


class _LogHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        print_warning(self.format(record))


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
        """A console that cleans text, but keeps its own control codes."""

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
