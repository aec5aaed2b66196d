"""What a categorical column needs of its table, and what placements mean. No torch in here."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from distrain.errors import SchemaError
from distrain.jobs.spec.fields import Pooling

Combiner = Literal[Pooling, "sequence"]
"""How the embeddings of a row's ids become one; "sequence" leaves them one by one."""


@dataclass(frozen=True)
class PlacementFacts:
    is_dealt: bool  # whether each row lies on one rank (`dealing.py`), not on all
    on_host: bool = False  # rows lie on the host, recently used ones on the device, too


PLACEMENTS = {
    "replicated": PlacementFacts(is_dealt=False),
    "row_wise": PlacementFacts(is_dealt=True),
    "host_cached": PlacementFacts(is_dealt=True, on_host=True),
}


@dataclass(frozen=True)
class TableColumn:
    """One categorical column, and the table that it is looked up in."""

    name: str
    cardinality: int  # its ids lie in `0 .. cardinality-1`, which is also the table's row count
    dim: int  # the width of its embeddings
    # for a column of lists, how the embeddings of a row's ids become one; a row without ids gets
    # zeros. `None` for a column with one id per row
    combiner: Combiner | None = None
    # names the table; columns that name the same one share it. `None`: the table has the column's
    # name
    table: str | None = None

    def __post_init__(self) -> None:
        if self.cardinality < 1 or self.dim < 1:
            raise ValueError(f"a table needs at least one row and one value per row: {self}")

    @property
    def is_sequence(self) -> bool:
        return self.combiner == "sequence"

    @property
    def table_name(self) -> str:
        return self.name if self.table is None else self.table


def first_of_tables(columns: Iterable[TableColumn]) -> tuple[TableColumn, ...]:
    """Of each table the first column that is looked up in it, in the order of the columns.

    `SchemaError`: two columns share a table and differ in cardinality or width.

    >>> columns = [TableColumn("bought", 9, 4, table="item"), TableColumn("shop", 3, 4)]
    >>> columns.append(TableColumn("seen", 9, 4, "mean", table="item"))
    >>> [column.name for column in first_of_tables(columns)]
    ['bought', 'shop']
    """
    first: dict[str, TableColumn] = {}
    for column in columns:
        other = first.setdefault(column.table_name, column)
        if (column.cardinality, column.dim) != (other.cardinality, other.dim):
            raise SchemaError(
                f"the columns {other.name!r} and {column.name!r} share the table "
                f"{column.table_name!r} and differ in its size",
                where={
                    c.name: f"{c.cardinality:,} rows, embeddings of width {c.dim}"
                    for c in (other, column)
                },
                hint="Columns of one table have one cardinality and one width: give them one "
                "vocabulary, or tables of their own.",
            )
    return tuple(first.values())
