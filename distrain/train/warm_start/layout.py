"""Where the rows of each table lie in the canonical form. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from distrain.embeddings import TableColumn
from distrain.embeddings.columns import first_of_tables


@dataclass(frozen=True)
class TablePlace:
    """A table in the canonical form of its group (`embeddings/canonical.py`).

    Attributes:
        name: The table's.
        columns: The columns that are looked up in it.
        tensor: The group's tensor.
        first: The table's first row there.
        cardinality: Its rows.
        dim: Its width.
    """

    name: str
    columns: tuple[str, ...]
    tensor: str
    first: int
    cardinality: int
    dim: int


def table_places(columns: Sequence[TableColumn]) -> list[TablePlace]:
    """The places of all tables, group by group.

    >>> columns = [TableColumn("a", 3, 4), TableColumn("b", 5, 2), TableColumn("c", 9, 4)]
    >>> [(place.name, place.tensor, place.first) for place in table_places(columns)]
    [('b', 'embeddings.weights.0', 0), ('a', 'embeddings.weights.1', 0), \
('c', 'embeddings.weights.1', 3)]
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
