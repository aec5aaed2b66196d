"""`distrain compare`: runs side by side."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from distrain.cli.params import json_option

if TYPE_CHECKING:
    from rich.console import Console

    from distrain.report.compare import Comparison


@click.command()
@click.argument(
    "runs", metavar="RUN RUN ...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.option(
    "--out",
    metavar="FILE.html",
    type=click.Path(path_type=Path),
    help="Write the comparison with its curves there, too, as one file that needs no network.",
)
@json_option("Print the tables as JSON.")
def command(runs: tuple[Path, ...], out: Path | None, as_json: bool) -> None:
    """Lay runs side by side: their figures, and in which fields of the spec they differ.

    Runs that go on are compared by their records so far.

    \b
    Examples:
      distrain compare runs/monday runs/tuesday
      distrain compare runs/monday runs/tuesday runs/today --out week.html
    """
    from distrain.cli.output import answer, result_console, tell
    from distrain.report.compare import compare, read_runs, write_comparison

    if len(runs) < 2:
        raise click.UsageError("Give two runs or more.")
    found = read_runs(runs)
    comparison = compare(found)
    console = result_console()
    _print(console, "outcome", comparison.names, comparison.outcomes)
    if comparison.settings:
        _print(console, "differences in the spec", comparison.names, comparison.settings)
    else:
        console.print("the specs are equal")
    if comparison.environment:
        _print(console, "differences in the environment", comparison.names, comparison.environment)
    if out is not None:
        write_comparison(found, out)
        tell(out)
    if as_json:
        answer(**_as_json(comparison, out))


def _as_json(comparison: "Comparison", out: Path | None) -> dict[str, Any]:
    """Each table as an object of rows, which hold a text for each run."""
    tables = ("outcomes", "settings", "environment")
    return {
        "runs": list(comparison.names),
        **{name: {row[0]: list(row[1:]) for row in getattr(comparison, name)} for name in tables},
        "file": None if out is None else str(out),
    }


def _print(
    console: "Console", title: str, names: Sequence[str], rows: Iterable[Sequence[str]]
) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left")
    table.add_column("", style="bold", overflow="fold")
    for name in names:
        table.add_column(Text(name), overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table, highlight=False)
