"""Decoded columns to their places in batches: converted to 4-byte cells, shuffled, checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distrain.errors import DataError
from distrain.loader import fill_numpy
from distrain.loader.dealing import Deal
from distrain.partition import RowGroup
from distrain.partition.columns import Wanted, value_problem

try:
    from distrain.loader._fill import fill as _fill
except ImportError:  # built without a compiler
    _fill = fill_numpy.fill

Block = NDArray[np.int32]

KERNEL = "C" if _fill is not fill_numpy.fill else "NumPy"
"""Which of the two fills batches here; `distrain doctor` tells."""

_ROLES = {"id": "i", "value": "v", "label": "l", "weight": "w"}


class Filler:
    """Puts rows of flat columns into blocks `[columns, rows]` of 4-byte cells.

    Ids become int32, all else the bits of float32.

    Args:
        columns: The flat columns, in the order of a block.
    """

    def __init__(self, columns: Sequence[Wanted]):
        self._columns = tuple(columns)
        self._roles = "".join(_ROLES[column.kind] for column in columns).encode()
        self._limits = np.array([column.id_limit for column in columns], np.uint64)

    def fill(
        self,
        cells: Sequence[NDArray[Any]],
        deal: Deal,
        blocks: Sequence[Block],
        group: RowGroup,
        *,
        first_column: int = 0,
    ) -> None:
        """Put rows of some columns of a row group to their places.

        Args:
            cells: Neighbouring columns, each `[rows of the row group]`, of any integer, floating
                or boolean type.
            deal: Which rows go where.
            blocks: The block of each run of the deal.
            group: The row group, for errors.
            first_column: The number of the first of these columns in a block.

        Raises:
            DataError: A value among the dealt rows cannot be used: an id out of its range, a label
                other than 0 and 1, a value that is not finite as float32, a negative weight.
        """
        if not cells:
            return
        some = slice(first_column, first_column + len(cells))
        columns = self._columns[some]
        sources = [
            _as_id(column) if wanted.kind == "id" else _as_float(column)
            for wanted, column in zip(columns, cells, strict=True)
        ]
        suspicious = _fill(
            sources,
            [block[some] for block in blocks],
            self._roles[some],
            "".join(source.dtype.char for source in sources).replace("l", "q").encode(),
            self._limits[some],
            deal.rows,
            deal.starts,
            deal.counts,
            deal.places,
        )
        if any(suspicious):
            for wanted, column, flag in zip(columns, cells, suspicious, strict=True):
                if flag:
                    check_values(wanted, column, group, deal.rows)


def _as_id(values: NDArray[Any]) -> NDArray[Any]:
    """As int32 or int64; what is too large for that becomes negative, which is as wrong."""
    if values.dtype in (np.int32, np.int64):
        return values
    if values.dtype == np.uint64:
        return values.view(np.int64)
    return values.astype(np.int64 if values.dtype == np.uint32 else np.int32)


def _as_float(values: NDArray[Any]) -> NDArray[Any]:
    return values if values.dtype in (np.float32, np.float64) else values.astype(np.float32)


def check_values(
    column: Wanted,
    values: NDArray[Any],
    group: RowGroup,
    rows: NDArray[np.int32] | None = None,
    *,
    row_of_value: NDArray[Any] | None = None,
) -> None:
    """Look for values that cannot be used.

    Args:
        column: What the values may be.
        values: A column of a row group, or a list column's items.
        group: The row group, for errors.
        rows: Which of the values to look at; `None` for all.
        row_of_value: For a list column, the row of each item.

    Raises:
        DataError: There is one; the first is named.
    """
    looked_at = values if rows is None else values[rows]
    bad = np.flatnonzero(unusable(column, looked_at))
    if not bad.size:
        return
    place = int((bad if rows is None else rows[bad]).min())
    value = values[place].item()
    message, hint = value_problem(column, value) or (
        f"column {column.name!r} holds {value}, which is not a finite float32 number",
        "Clip or fill it when the table is prepared.",
    )
    row = place if row_of_value is None else int(row_of_value[place])
    where = {"file": group.file, "row group": group.index, "row in the group": row}
    raise DataError(message, where=where | {"column": column.name}, hint=hint)


def unusable(column: Wanted, values: NDArray[Any]) -> NDArray[np.bool_]:
    """Which values training cannot use, `[values]`."""
    bad: NDArray[np.bool_]
    if column.kind == "id":
        bad = (values < 0) | (values >= column.id_limit)
    elif column.kind == "label":
        bad = (values != 0) & (values != 1)
    else:
        with np.errstate(over="ignore"):
            bad = ~np.isfinite(values.astype(np.float32, copy=False))
        if column.kind == "weight":
            bad |= values < 0
    return bad
