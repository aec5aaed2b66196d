"""`distrain schema`: shows or converts a schema."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from distrain.cli.options import PATH, json_option
from distrain.cli.output import (
    print_json,
    print_remark,
    print_result,
    print_warning,
)

if TYPE_CHECKING:
    from distrain.schema.column import ColumnSchema
    from distrain.schema.schema import Schema

TITLES = ("column", "dtype", "tags", "cardinality", "embedding dim", "list")
NUMBERS = ("cardinality", "embedding dim")


@click.command("schema")
@click.argument("path")
@click.option("--out", type=PATH, help="Write to *.pbtxt or *.json.")
@json_option("Print JSON instead of a table.")
def command(path: str, out: Path | None) -> None:
    """Show or convert a schema.

    PATH is a schema.pbtxt or schema.json (Merlin's, or in the format of --json), a folder with one,
    or the word `criteo` for the columns of prepared Criteo rows.

    \b
    Examples:
      distrain schema criteo
      distrain schema data/ --json
      distrain schema data/schema.pbtxt --out schema.json
    """
    schema = _load(path)
    if out is not None:
        schema.save(out)
        print_remark(f"Wrote {out}: {len(schema)} columns.")
    print_json(schema.to_json())
    if out is None:
        _print_table(schema)


def _load(path: str) -> "Schema":
    from distrain.schema.criteo import criteo_schema
    from distrain.schema.schema import Schema

    if path == "criteo":
        if Path(path).is_dir():
            print_warning("note: this is the preset; write criteo/ for the folder of that name")
        return criteo_schema()
    return Schema.load(path)


def _print_table(schema: "Schema") -> None:
    """Print a schema as a table. rich is not used, since it takes a millisecond for each row."""
    rows = [TITLES, *map(_cells, schema)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (
            cell.rjust(width) if title in NUMBERS else cell.ljust(width)
            for title, cell, width in zip(TITLES, row, widths, strict=True)
        )
        print_result("  ".join(cells).rstrip())
    print_result(f"{len(schema)} columns")


def _cells(column: "ColumnSchema") -> tuple[str, ...]:
    return (
        column.name if column.name.isprintable() else repr(column.name),
        column.dtype or "",
        ", ".join(column.tags),
        "" if column.cardinality is None else f"{column.cardinality:,}",
        "" if column.embedding_dim is None else str(column.embedding_dim),
        _list_cell(column),
    )


def _list_cell(column: "ColumnSchema") -> str:
    """Describe a list column's lengths, such as `ragged 2..20` or `fixed 4`; "" for other columns.

    An unknown bound is left out: `ragged ..20`.
    """
    if not column.is_list:
        return ""
    least, greatest = column.value_count or (None, None)
    bounds = (
        str(least)
        if least == greatest
        else f"{'' if least is None else least}..{'' if greatest is None else greatest}"
    )
    has_bounds = least is not None or greatest is not None
    return ("ragged" if column.is_ragged else "fixed") + (f" {bounds}" if has_bounds else "")
