"""What tables take of a rank's memory: weights and the optimizer's state for them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from distrain.embeddings.columns import TableColumn, first_of_tables
from distrain.embeddings.costs import expected_unique

STATE_BYTES_PER_VALUE = 4
WEIGHT_BYTES = {"fp32": 4, "bf16": 2}
_STATE_VALUES = {"sgd": (0, 0), "adagrad": (1, 0), "rowwise_adagrad": (0, 1), "adam": (2, 0)}


@dataclass(frozen=True)
class TableSize:
    """One table as the plan sees it.

    Attributes:
        name: Of the table: its column, if it is of one alone.
        rows: Of the table.
        dim: Width of a row.
        expected_unique: Distinct rows that a rank's batch touches; `None`: `expected_unique` of
            its rows and of one lookup for each row of the batch and column.
        columns: Those that are looked up in it; none stands for one column of the table's name.
    """

    name: str
    rows: int
    dim: int
    expected_unique: float | None = None
    columns: tuple[str, ...] = ()

    def unique(self, batch_rows_per_rank: int) -> float:
        """Distinct rows that a rank's batch touches."""
        if self.expected_unique is not None:
            return min(float(self.rows), self.expected_unique)
        return expected_unique(self.rows, batch_rows_per_rank * max(1, len(self.columns)))

    @property
    def names(self) -> tuple[str, ...]:
        """What it goes by: its own name and those of its columns."""
        return tuple(dict.fromkeys((self.name, *self.columns)))


def table_sizes(columns: Sequence[TableColumn]) -> list[TableSize]:
    """The tables of columns, each once, in the order of their first columns.

    >>> columns = [TableColumn("bought", 9, 4, table="item"), TableColumn("shop", 3, 4)]
    >>> columns.append(TableColumn("seen", 9, 4, "mean", table="item"))
    >>> [(table.name, table.rows, table.columns) for table in table_sizes(columns)]
    [('item', 9, ('bought', 'seen')), ('shop', 3, ('shop',))]
    """
    return [
        TableSize(
            first.table_name,
            first.cardinality,
            first.dim,
            columns=tuple(c.name for c in columns if c.table_name == first.table_name),
        )
        for first in first_of_tables(columns)
    ]


@dataclass(frozen=True)
class RowBytes:
    """What a row takes.

    Attributes:
        optimizer: "sgd", "adagrad", "rowwise_adagrad" or "adam".
        weight_bytes_per_value: 4 for fp32, 2 for bf16.
    """

    optimizer: str
    weight_bytes_per_value: int = 4

    def weight(self, dim: int) -> int:
        """Bytes of a row's weights."""
        return self.weight_bytes_per_value * dim

    def state(self, dim: int) -> int:
        """Bytes of the optimizer's state for a row, which is fp32 whatever the weights are.

        >>> [RowBytes(kind).state(16) for kind in ("sgd", "adagrad", "rowwise_adagrad", "adam")]
        [0, 64, 4, 128]
        """
        per_value, per_row = _STATE_VALUES[self.optimizer]
        return STATE_BYTES_PER_VALUE * (per_value * dim + per_row)

    def both(self, dim: int) -> int:
        """Bytes of a row's weights and state."""
        return self.weight(dim) + self.state(dim)


def rows_held(table: TableSize, placement: str, num_ranks: int, unique: float) -> tuple[int, int]:
    """Rows of a table in the memory that the budget is for, and in the host's beside it.

    A rank owns at most `ceil(rows / num_ranks)` rows of a table that is dealt by `key % num_ranks`,
    wherever the table begins. Of a host-cached table the device must hold a step's rows at least.
    """
    owned = -(-table.rows // num_ranks)
    match placement:
        case "replicated":
            return table.rows, 0
        case "row_wise":
            return owned, 0
        case _:
            return min(owned, -int(-unique // 1)), owned


def bytes_taken(
    tables: Iterable[tuple[TableSize, str, float]], num_ranks: int, row: RowBytes
) -> int:
    """What tables take of the budget on a rank.

    Args:
        tables: Each with its placement and its distinct rows of a step.
        num_ranks: Ranks that share them.
        row: What a row takes.
    """
    return sum(
        rows_held(table, placement, num_ranks, unique)[0] * row.both(table.dim)
        for table, placement, unique in tables
    )
