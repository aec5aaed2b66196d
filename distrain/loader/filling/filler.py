"""Writes decoded columns to their places in batches: as 4-byte cells, shuffled and checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distrain.errors import DataError
from distrain.loader.filling.batch_memory import TilePool
from distrain.loader.filling.kernel import fill as _fill
from distrain.loader.filling.schedule import RowAssignment
from distrain.loader.partition.table import RowGroup
from distrain.loader.partition.wanted_columns import WantedColumn, value_problem

Block = NDArray[np.int32]

# A column's role by its kind. It determines what the kernels check: ids (`i`) are below a limit,
# values (`v`) are finite, labels (`l`) are 0 or 1, weights (`w`) are finite and 0 or more.
_ROLES = {"id": "i", "value": "v", "label": "l", "weight": "w", "task_weight": "w"}
# The types that the kernels read, in native byte order, and their letters.
_ID_TYPES = {np.dtype(np.int32): b"i", np.dtype(np.int64): b"q"}
_ID_TYPES |= {np.dtype(np.uint8): b"B", np.dtype(np.uint16): b"H"}
_FLOAT_TYPES = {np.dtype(np.float32): b"f", np.dtype(np.float64): b"d"}
_TYPES = _ID_TYPES | _FLOAT_TYPES


class _Part(NamedTuple):
    columns: tuple[WantedColumn, ...]
    roles: bytes
    limits: NDArray[np.uint64]
    has_classes: bool


class Filler:
    """Writes flat columns to the memory of batches, which are blocks `[columns, rows]`, int32.

    Ids are stored as int32, other values as the bits of float32.
    """

    def __init__(self, columns: Sequence[WantedColumn], tiles: TilePool | None = None):
        self._columns = tuple(columns)
        self._parts: dict[tuple[int, int], _Part] = {}
        self._tiles = tiles or TilePool()

    def fill(
        self,
        cells: Sequence[NDArray[Any]],
        assignment: RowAssignment,
        blocks: Sequence[Block],
        group: RowGroup,
        *,
        first_column: int = 0,
    ) -> None:
        """Write rows of some columns of a row group to their places, and check the values.

        Args:
            cells: Consecutive columns, each `[rows of the row group]`, of any integer, floating or
                boolean type.
            assignment: The rows and their places.
            blocks: The block of each run of `assignment`.
            first_column: The number in a block of the first of these columns.

        Raises:
            DataError: A value cannot be used; see `check_values`.
        """
        if not cells:
            return
        part = self._part(first_column, len(cells))
        sources = list(map(source_of, part.columns, cells))
        with self._tiles.allocate(len(cells[0]), len(cells)) as tile:
            suspicious = _fill(
                sources,
                blocks,
                part.roles,
                b"".join(map(type_letter, sources)),
                part.limits,
                assignment.rows,
                assignment.starts,
                assignment.counts,
                assignment.places,
                first_column,
                len(self._columns),
                tile,
            )
        if any(suspicious) or part.has_classes:
            for wanted, column, flag in zip(part.columns, cells, suspicious, strict=True):
                if flag or has_classes(wanted):
                    check_values(wanted, column, group, assignment.rows)

    def _part(self, first: int, count: int) -> _Part:
        known = self._parts.get((first, count))
        if known is None:
            columns = self._columns[first : first + count]
            known = self._parts[first, count] = _Part(
                columns,
                "".join(map(_role, columns)).encode(),
                np.array([column.id_limit for column in columns], np.uint64),
                any(map(has_classes, columns)),
            )
        return known

    def copy(self, cells: Block, assignment: RowAssignment, blocks: Sequence[Block]) -> None:
        """Write rows of `cells` to their places, without checking values.

        `cells` has all columns, `[columns, rows]`, in the format of blocks.
        """
        if not len(cells):
            return
        count = len(cells)
        with self._tiles.allocate(cells.shape[1], count) as tile:
            _fill(
                list(cells),
                blocks,
                b"i" * count,
                b"i" * count,
                np.full(count, 2**31, np.uint64),
                assignment.rows,
                assignment.starts,
                assignment.counts,
                assignment.places,
                0,
                count,
                tile,
            )


def has_classes(column: WantedColumn) -> bool:
    """Return True if a column has multiclass labels, whose range the kernels do not check."""
    return column.kind == "label" and column.target_kind == "multiclass"


def _role(column: WantedColumn) -> str:
    is_number = column.kind == "label" and column.target_kind != "binary"
    return "v" if is_number else _ROLES[column.kind]


def source_of(column: WantedColumn, values: NDArray[Any]) -> NDArray[Any]:
    """Return a column's values in a type that the kernels (`fill`) can read."""
    return _as_id(values) if column.kind == "id" else _as_float(values)


def type_letter(source: NDArray[Any]) -> bytes:
    return _TYPES[source.dtype]


def _as_id(values: NDArray[Any]) -> NDArray[Any]:
    """Return ids in a type that the kernels (`fill`) can read.

    Ids that do not fit int64 become negative, which is invalid as well.
    """
    if values.dtype in _ID_TYPES:
        return values
    if values.dtype == np.uint64:
        return values.view(np.int64)
    return values.astype(np.int64 if values.dtype == np.uint32 else np.int32)


def _as_float(values: NDArray[Any]) -> NDArray[Any]:
    return values if values.dtype in _FLOAT_TYPES else values.astype(np.float32)


def check_values(
    column: WantedColumn,
    values: NDArray[Any],
    group: RowGroup,
    rows: NDArray[np.int32] | None = None,
    *,
    row_of_value: NDArray[Any] | None = None,
) -> None:
    """Raise a `DataError` for the first value that cannot be used.

    Args:
        values: The values of a row group's rows, or all items of a list column.
        rows: The indices of the values to check; `None` checks all.
        row_of_value: The row of each item of a list column; `None` for a flat column.
    """
    checked = values if rows is None else values[rows]
    bad = np.flatnonzero(unusable(column, checked))
    if not bad.size:
        return
    place = int((bad if rows is None else rows[bad]).min())
    value = values[place].item()
    message, hint = value_problem(column, value) or (
        f"column {column.name!r} holds {value}, which is not a finite float32 number",
        "Clip or fill it when the table is prepared.",
    )
    row = group.row_in_file(place if row_of_value is None else int(row_of_value[place]))
    where = group.where | {"row in the group": row, "column": column.name}
    raise DataError(message, where=where, hint=hint)


def unusable(column: WantedColumn, values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return a mask, `[values]`, of the values that training cannot use.

    Ids must be from 0 to below the limit, binary labels 0 or 1, and multiclass labels integers
    below the number of classes. Other values must be finite as float32, and weights not negative.
    """
    bad: NDArray[np.bool_]
    if column.kind == "id":
        bad = (values < 0) | (values >= column.id_limit)
    elif has_classes(column):
        with np.errstate(invalid="ignore"):
            bad = ~((values >= 0) & (values < column.id_limit) & (values == np.floor(values)))
    elif column.kind == "label" and column.target_kind == "binary":
        bad = (values != 0) & (values != 1)
    else:
        with np.errstate(over="ignore"):
            bad = ~np.isfinite(values.astype(np.float32, copy=False))
        if column.is_weight:
            bad |= values < 0
    return bad
