"""Columns of any source as the 4-byte values that are packed, with the checks of training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from distrain.errors import DataError
from distrain.partition import RowGroup
from distrain.partition.columns import Wanted, type_hint, type_problem, value_problem


def checked_cells(column: pa.ChunkedArray, wanted: Wanted, group: RowGroup) -> NDArray[Any]:
    """A column of a row group as int32 ids or float32 numbers, `[rows]`.

    Args:
        column: As it was read.
        wanted: What it is, and what its nulls become.
        group: Where it was read, for errors.

    Raises:
        DataError: A null without a policy, or a value that training could not use.
    """
    mismatch = type_problem(wanted, column.type)
    if mismatch:
        where = {"file": group.file, "row group": group.index, "column": wanted.name}
        raise DataError(mismatch, where=where, hint=type_hint(wanted, column.type))
    values = _numpy(_filled(column, wanted, group))
    cells = exact_cells(values, wanted)
    if cells is None:
        bad = _bad_rows(values, wanted)
        row = int(np.argmax(bad))
        message, hint = _problem(wanted, values[row].item())
        raise DataError(message, where=_place(group, row, wanted), hint=hint)
    return cells


def exact_cells(values: NDArray[Any], wanted: Wanted) -> NDArray[Any] | None:
    """Values as int32 ids or float32 numbers, `[rows]`; `None` if one cannot be used.

    Args:
        values: Of any integer, floating or bool type, `[rows]`, of any alignment.
        wanted: What they are.
    """
    if wanted.kind == "id" and values.dtype.kind == "f":
        return None
    if _any_bad(values, wanted):
        return None
    return values.astype(np.int32 if wanted.kind == "id" else np.float32, copy=False)


def _any_bad(values: NDArray[Any], wanted: Wanted) -> bool:
    if not values.size:
        return False
    if wanted.kind == "id" and values.dtype.kind in "iu":
        # Seen as unsigned, a negative id is larger than any allowed one: one pass for both ends.
        return int(_unsigned(values).max()) >= _unsigned_limit(values, wanted)
    return bool(_bad_rows(values, wanted).any())


def _bad_rows(values: NDArray[Any], wanted: Wanted) -> NDArray[np.bool_]:
    if wanted.kind == "id":
        if values.dtype.kind == "b":
            values = values.astype(np.uint8)
        bad: NDArray[np.bool_] = _unsigned(values) >= _unsigned_limit(values, wanted)
        return bad
    if wanted.kind == "label":
        bad = (values != 0) & (values != 1)
        return bad
    with np.errstate(over="ignore"):  # what overflows float32 is told, with its value
        bad = ~np.isfinite(values.astype(np.float32, copy=False))
    if wanted.kind == "weight":
        bad |= values < 0
    return bad


def _unsigned(values: NDArray[Any]) -> NDArray[Any]:
    return values.view(f"u{values.itemsize}")


def _unsigned_limit(values: NDArray[Any], wanted: Wanted) -> int:
    sign_bit = 1 << (8 * values.itemsize - 1)
    return min(sign_bit, wanted.id_limit) if values.dtype.kind == "i" else wanted.id_limit


def _problem(wanted: Wanted, value: float | int) -> tuple[str, str]:
    hint = "Clip or fill it when the table is prepared."
    beyond = f"column {wanted.name!r} holds {value}, which is not a finite float32 number"
    return value_problem(wanted, value) or (beyond, hint)


def _filled(column: pa.ChunkedArray, wanted: Wanted, group: RowGroup) -> pa.ChunkedArray:
    if not column.null_count:
        return column
    if wanted.fill is None:
        row = int(np.flatnonzero(column.is_null().to_numpy())[0])
        message = f"column {wanted.name!r} holds a null"
        hint = "Fill the missing values when the table is prepared, or say what nulls become."
        raise DataError(message, where=_place(group, row, wanted), hint=hint)
    column = _days(column)
    if not pa.types.is_floating(column.type) and wanted.kind != "id":
        column = column.cast(pa.float64())  # the fill may have a fraction
    elif wanted.kind == "id":
        # Nor may it fit the source's type; what wraps around is out of range, and refused as such.
        column = column.cast(pa.int64(), safe=False)
    return column.fill_null(pa.scalar(wanted.fill, column.type))


def _numpy(column: pa.ChunkedArray) -> NDArray[Any]:
    column = _days(column)
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    values: NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return values


def _days(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Dates as days since 1970; anything else as it is."""
    if pa.types.is_date64(column.type):
        column = column.cast(pa.date32())
    return column.cast(pa.int32()) if pa.types.is_date32(column.type) else column


def _place(group: RowGroup, row: int, wanted: Wanted) -> dict[str, object]:
    return {
        "file": group.file,
        "row group": group.index,
        "row in the group": row,
        "column": wanted.name,
    }
