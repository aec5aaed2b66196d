"""`distrain compare`: figures and specs of runs, side by side."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from distrain.cli.options import PATH, json_option

if TYPE_CHECKING:
    from rich.console import Console


@click.command()
@click.argument("runs", metavar="RUN RUN ...", nargs=-1, required=True, type=PATH)
@click.option(
    "--out",
    metavar="FILE.html",
    type=PATH,
    help="Write the comparison with its curves there, too, as one file that needs no network.",
)
@json_option("Print the tables as JSON.")
def command(runs: tuple[Path, ...], out: Path | None, as_json: bool) -> None:
    """Compare runs: their figures, and the fields of the spec in which they differ.

    Runs that go on are compared by their records so far.

    \b
    Examples:
      distrain compare runs/monday runs/tuesday
      distrain compare runs/monday runs/tuesday runs/today --out week.html
    """
    from distrain.cli.output import print_answer, print_result, result_console
    from distrain.report import compare, write_comparison
    from distrain.runs import read_run_data

    if len(runs) < 2:
        raise click.UsageError("Give two runs or more.")
    data = [read_run_data(run) for run in runs]
    comparison = compare(data)
    console = result_console()
    _print(console, "outcome", comparison.names, comparison.outcomes)
    if comparison.settings:
        _print(console, "differences in the spec", comparison.names, comparison.settings)
    else:
        console.print("the specs are equal")
    if comparison.environment:
        _print(console, "differences in the environment", comparison.names, comparison.environment)
    if out is not None:
        write_comparison(data, out)
        print_result(out)
    if as_json:
        # Each table as an object of rows, which hold a text for each run.
        names = ("outcomes", "settings", "environment")
        tables = {name: {row[0]: row[1:] for row in getattr(comparison, name)} for name in names}
        print_answer(runs=comparison.names, **tables, file=None if out is None else str(out))


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
