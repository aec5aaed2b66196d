"""Categorical columns with their embedding tables, and kinds of placement; without torch."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from distrain.errors import SchemaError
from distrain.jobs.spec.fields import Pooling

Combiner = Literal[Pooling, "sequence"]
"""How the embeddings of a row's ids are combined; "sequence" keeps them separate."""


@dataclass(frozen=True)
class PlacementFacts:
    is_dealt: bool  # whether each row is on one rank (`row_owners.py`), not on all
    on_host: bool = False  # rows are on the host, recently used ones also on the device


PLACEMENTS = {
    "replicated": PlacementFacts(is_dealt=False),
    "row_wise": PlacementFacts(is_dealt=True),
    "host_cached": PlacementFacts(is_dealt=True, on_host=True),
}


@dataclass(frozen=True)
class TableColumn:
    """One categorical column, and the table of its embeddings."""

    name: str
    cardinality: int  # its ids are in `0 .. cardinality-1`, which is also the table's row count
    dim: int  # the width of its embeddings
    # for a list column, how the embeddings of a row's ids are combined; a row without ids gets
    # zeros. `None` for a column with one id per row
    combiner: Combiner | None = None
    # the table's name; columns with the same table share it. `None`: the table has the column's
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
    """Return the first column of each table, in the order of the columns.

    Raises:
        SchemaError: Two columns share a table and differ in cardinality or width.

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
                hint="Columns of one table must have the same cardinality and width: give them "
                "one vocabulary, or separate tables.",
            )
    return tuple(first.values())


@dataclass(frozen=True)
class TablePlace:
    """The position of a table in the canonical tensor of its group.

    A group is all tables of one width. Its canonical tensor, which a checkpoint saves under the
    name `tensor`, has their rows one after another (`models/embeddings/canonical_state.py`). The
    table has `cardinality` of these rows, beginning with row `first`. `columns` are the names of
    all columns that share the table.
    """

    name: str
    columns: tuple[str, ...]
    tensor: str
    first: int
    cardinality: int
    dim: int


def table_places(columns: Sequence[TableColumn]) -> list[TablePlace]:
    """Return the position of each table in its group's canonical tensor, group by group.

    >>> columns = [TableColumn("a", 3, 4), TableColumn("b", 5, 2), TableColumn("c", 9, 4)]
    >>> [(place.name, place.tensor[-1], place.first) for place in table_places(columns)]
    [('b', '0', 0), ('a', '1', 0), ('c', '1', 3)]
    """
    places = []
    for group, dim in enumerate(sorted({column.dim for column in columns})):
        first = 0
        for table in first_of_tables(column for column in columns if column.dim == dim):
            name = table.table_name
            own = tuple(column.name for column in columns if column.table_name == name)
            tensor = f"embeddings.weights.{group}"
            places.append(TablePlace(name, own, tensor, first, table.cardinality, dim))
            first += table.cardinality
    return places
