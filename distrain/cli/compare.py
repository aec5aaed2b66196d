"""`distrain compare`: runs side by side."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console


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
def command(runs: tuple[Path, ...], out: Path | None) -> None:
    """Lay runs side by side: their figures, and in which fields of the spec they differ.

    Runs that go on are compared by their records so far.

    \b
    Examples:
      distrain compare runs/monday runs/tuesday
      distrain compare runs/monday runs/tuesday runs/today --out week.html
    """
    from rich.console import Console

    from distrain.report.compare import compare, read_runs, write_comparison

    if len(runs) < 2:
        raise click.UsageError("Give two runs or more.")
    found = read_runs(runs)
    comparison = compare(found)
    console = Console()
    if not console.is_terminal:
        console.width = 10_000  # as wide as it takes: whoever reads it can cut lines
    _print(console, "outcome", comparison.names, comparison.outcomes)
    if comparison.settings:
        _print(console, "differences in the spec", comparison.names, comparison.settings)
    else:
        console.print("the specs are equal")
    if comparison.environment:
        _print(console, "differences in the environment", comparison.names, comparison.environment)
    if out is not None:
        write_comparison(found, out)
        click.echo(out)


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
