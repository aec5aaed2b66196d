"""Columns as the 4-byte values that are packed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from distrain.loader.fill import unusable
from distrain.partition.columns import Wanted


def cells_of(column: Wanted, values: NDArray[Any]) -> NDArray[Any]:
    """Values that can be used as int32 ids or float32 numbers, `[rows]`."""
    return values.astype(np.int32 if column.kind == "id" else np.float32, copy=False)


def exact_cells(values: NDArray[Any], column: Wanted) -> NDArray[Any] | None:
    """Values as int32 ids or float32 numbers, `[rows]`; `None` if one cannot be used.

    Args:
        values: Of any integer, floating or bool type, `[rows]`, of any alignment.
        column: What they are.
    """
    return None if unusable(column, values).any() else cells_of(column, values)
