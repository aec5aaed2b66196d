"""Fills list columns: collects the items of each run of rows, and joins a batch's runs at the end.

A run is consecutive rows of one batch (see `schedule.RowAssignment`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray

from distrain.errors import DataError, SpecError
from distrain.loader.batch import Ragged
from distrain.loader.filling.batch_memory import ListRun, OpenBatch
from distrain.loader.filling.filler import check_values, source_of, type_letter
from distrain.loader.filling.kernel import (
    gather_lists as _gather,
    measure_lists as _measure,
    place_lists as _place,
)
from distrain.loader.filling.schedule import RowAssignment
from distrain.loader.partition.table import RowGroup
from distrain.loader.partition.wanted_columns import WantedColumn

_MOST_ITEMS = 2**31 - 1  # maximum items of a list column in a batch: offsets are int32


def list_limits(columns: Sequence[WantedColumn], given: Mapping[str, int] | None) -> dict[str, int]:
    """Return the maximum list length by column; `given` takes precedence over the schema.

    Columns without a limit are missing. Raises a `SpecError` if `given` names another column.
    """
    limits = {c.name: c.keep_length for c in columns if c.is_list and c.keep_length}
    lists = [column.name for column in columns if column.is_list]
    for name, most in (given or {}).items():
        if name not in lists:
            raise SpecError(
                f"max_list_length names {name!r}, which is not a list column",
                hint=f"There are: {', '.join(lists) or 'none'}.",
            )
        limits[name] = most
    return limits


def cut_lists(rows: pa.Array, most: int | None) -> pa.Array:
    """Return the first `most` items of each list; `None` keeps all.

    >>> cut_lists(pa.array([[1, 2, 3], [], [4]]), 2).to_pylist()
    [[1, 2], [], [4]]
    """
    if most is None:
        return rows
    return pc.list_slice(rows, 0, most, return_fixed_size_list=False)


def check_lists(column: WantedColumn, rows: pa.Array, group: RowGroup) -> None:
    """Raise a `DataError` for the first list that is too long, or else the first invalid item."""
    lengths = np.diff(rows.offsets.to_numpy())
    if column.max_length and lengths.size and lengths.max() > column.max_length:
        row = int(np.argmax(lengths > column.max_length))
        raise DataError(
            f"a list of column {column.name!r} has {lengths[row]} items, more than the schema's "
            f"{column.max_length}",
            where=group.where | {"row in the group": group.row_in_file(row), "column": column.name},
            hint="Cut them (max_list_length), or raise value_count in the schema.",
        )
    items = rows.flatten().to_numpy(zero_copy_only=False)
    row_of_item = np.repeat(np.arange(len(rows)), lengths)
    check_values(column, items, group, row_of_value=row_of_item)


def deal_lists(
    column: WantedColumn,
    number: int,
    rows: pa.ListArray,
    most: int | None,
    assignment: RowAssignment,
    batches: Sequence[OpenBatch[Any]],
    group: RowGroup,
) -> None:
    """Distribute a column's lists, without nulls, to batches, cut to `most` items (`None`: all).

    `number` is the column's number among the list columns. `batches` has the batch of each run of
    `assignment`. Raises a `DataError` for a list that is too long, or an invalid item.
    """
    items = source_of(column, rows.values.to_numpy(zero_copy_only=False))
    offsets = rows.offsets.to_numpy()
    kept = _MOST_ITEMS if most is None else most
    lengths = np.empty(len(assignment.rows), np.int32)
    totals = np.empty(len(assignment.counts), np.int64)
    longest = _measure(
        offsets, len(items), assignment.rows, assignment.counts, kept, lengths, totals
    )
    if column.max_length and longest > column.max_length:
        check_lists(column, cut_lists(rows, most), group)
    blocks = [np.empty(total, np.int32) for total in totals.tolist()]
    role = b"i" if column.kind == "id" else b"v"
    if _gather(
        offsets,
        items,
        role,
        type_letter(items),
        column.id_limit,
        assignment.rows,
        assignment.counts,
        kept,
        blocks,
    ):
        check_lists(column, cut_lists(rows, most), group)
    first = 0
    for batch, start, count, block in zip(
        batches, assignment.starts.tolist(), assignment.counts.tolist(), blocks, strict=True
    ):
        run = slice(first, first + count)
        places = start + assignment.places[run] if len(assignment.places) else None
        where = slice(start, start + count) if places is None else places
        batch.lengths[number, where] = lengths[run]
        batch.lists[number].append(ListRun(start, start + count, places, block))
        first += count


def check_total(column: WantedColumn, num_items: int) -> None:
    """Raise a `DataError` if a list column has more items in a batch than int32 offsets allow."""
    if num_items > _MOST_ITEMS:
        raise DataError(
            f"the lists of column {column.name!r} in a batch have {num_items} items, which is more "
            f"than {_MOST_ITEMS}",
            hint="Choose a smaller batch size, or cut the lists (max_list_length).",
        )


def join_lists(column: WantedColumn, lengths: NDArray[np.int32], runs: Sequence[ListRun]) -> Ragged:
    """Return a batch's list column. `lengths` is the list length of each row, int32 `[rows]`.

    `runs`, each with the items of some rows, must cover all rows; they may be in any order. Raises
    the `DataError` of `check_total`.
    """
    total = sum(len(run.items) for run in runs)
    check_total(column, total)
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    values = np.empty(total, np.int32)
    for run in runs:
        if run.places is None:
            values[offsets[run.start] : offsets[run.stop]] = run.items
        else:
            _place(run.items, run.places, offsets, values)
    dtype = torch.int32 if column.kind == "id" else torch.float32
    return Ragged(torch.from_numpy(values).view(dtype), torch.from_numpy(offsets))
