"""Columns that share their operators."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from distrain.errors import InputError
from distrain.etl.operators import Categorify, Operator
from distrain.etl.operators.base import concrete


@dataclass(frozen=True)
class ColumnGroup:
    """Columns that go through the same operators.

    A group that ends in Categorify gives int32 ids; any other gives float32.
    """

    columns: tuple[str, ...]
    operators: tuple[Operator, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        object.__setattr__(self, "operators", tuple(self.operators))
        if any(isinstance(operator, Categorify) for operator in self.operators[:-1]):
            raise InputError(
                "Categorify must be the last operator of its group",
                where={"columns": ", ".join(self.columns)},
            )

    @property
    def is_categorical(self) -> bool:
        """Whether the group gives ids."""
        return bool(self.operators) and isinstance(self.operators[-1], Categorify)

    def transform(
        self, column: str, values: pa.Array, num_operators: int | None = None
    ) -> pa.Array:
        """One column's values after the first `num_operators` operators (all if `None`)."""
        values = concrete(values)
        for operator in self.operators[:num_operators]:
            values = operator.transform(column, values)
        return values
