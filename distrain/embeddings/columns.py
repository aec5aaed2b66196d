"""What a categorical column needs of its table."""

from dataclasses import dataclass
from typing import Literal

Combiner = Literal["sum", "mean", "sqrtn"]
"""How the embeddings of a row's n ids become one: their sum, `sum / n`, or `sum / sqrt(n)`."""


@dataclass(frozen=True)
class TableColumn:
    """One categorical column's table.

    Attributes:
        name: The column.
        cardinality: Its ids lie in `0 .. cardinality-1`, which is also the table's row count.
        dim: The width of its embeddings.
        combiner: For a column of lists, how the embeddings of a row's ids become one; a row
            without ids gets zeros. `None` for a column with one id per row.
    """

    name: str
    cardinality: int
    dim: int
    combiner: Combiner | None = None

    def __post_init__(self) -> None:
        if self.cardinality < 1 or self.dim < 1:
            raise ValueError(f"a table needs at least one row and one value per row: {self}")
