"""List columns: rows dealt with Arrow, joined to values and offsets when a batch is whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray

from distrain.batch import Ragged
from distrain.errors import DataError, SpecError
from distrain.loader.filling.batch_memory import OpenBatch
from distrain.loader.filling.filler import check_values
from distrain.loader.filling.schedule import Deal
from distrain.loader.options import whole_number
from distrain.partition import RowGroup, WantedColumn


def list_limits(columns: Sequence[WantedColumn], given: Mapping[str, int] | None) -> dict[str, int]:
    """The most items that lists keep, by column; `given` outranks the schema."""
    limits = {c.name: c.keep_length for c in columns if c.is_list and c.keep_length}
    lists = [column.name for column in columns if column.is_list]
    for name, most in (given or {}).items():
        if name not in lists:
            raise SpecError(
                f"max_list_length names {name!r}, which is no column of lists",
                hint=f"There are: {', '.join(lists) or 'none'}.",
            )
        limits[name] = whole_number(f"max_list_length of {name!r}", most, 1)
    return limits


def _cut_lists(rows: pa.Array, most: int | None) -> pa.Array:
    """The first `most` items of each list; `None` keeps all.

    >>> _cut_lists(pa.array([[1, 2, 3], [], [4]]), 2).to_pylist()
    [[1, 2], [], [4]]
    """
    if most is None:
        return rows
    return pc.list_slice(rows, 0, most, return_fixed_size_list=False)


def check_lists(column: WantedColumn, rows: pa.Array, group: RowGroup) -> None:
    """Raise a `DataError` that names the first list or item of a row group that cannot be used."""
    lengths = np.diff(rows.offsets.to_numpy())
    if column.max_length and lengths.size and lengths.max() > column.max_length:
        row = int(np.argmax(lengths > column.max_length))
        raise DataError(
            f"a list of column {column.name!r} has {lengths[row]} items, more than the schema's "
            f"{column.max_length}",
            where=group.where | {"row in the group": group.first_row + row, "column": column.name},
            hint="Cut them (max_list_length), or raise value_count in the schema.",
        )
    items = rows.flatten().to_numpy(zero_copy_only=False)
    row_of_item = np.repeat(np.arange(len(rows)), lengths)
    check_values(column, items, group, row_of_value=row_of_item)


def deal_lists(
    column: WantedColumn,
    number: int,
    rows: pa.Array,
    most: int | None,
    deal: Deal,
    batches: Sequence[OpenBatch[Any]],
    group: RowGroup,
) -> None:
    """Give a row group's lists, cut to `most` items, to the batches of a deal's runs.

    `number` is the column's place in `OpenBatch.lists`. A `DataError` names the row whose list is
    longer than the schema allows, or holds an item that cannot be used.
    """
    rows = _cut_lists(rows, most)
    check_lists(column, rows, group)
    first = 0
    for batch, start, count in zip(batches, deal.starts, deal.counts, strict=True):
        run = slice(first, first + int(count))
        places = start + (deal.places[run] if len(deal.places) else np.arange(count))
        batch.lists[number].append((places, rows.take(pa.array(deal.rows[run]))))
        first += int(count)


def join_lists(column: WantedColumn, parts: Sequence[tuple[NDArray[np.int64], pa.Array]]) -> Ragged:
    """A batch's list column from its rows in any order."""
    kind = pa.int32() if column.kind == "id" else pa.float32()
    if not parts:
        empty = torch.empty(0, dtype=torch.int32 if column.kind == "id" else torch.float32)
        return Ragged(empty, torch.zeros(1, dtype=torch.int32))
    places = np.concatenate([places for places, _ in parts])
    rows = pa.concat_arrays([rows.cast(pa.list_(kind), safe=False) for _, rows in parts])
    rows = rows.take(pa.array(np.argsort(places)))
    lengths = rows.value_lengths().to_numpy()
    offsets = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    values = rows.flatten().to_numpy(zero_copy_only=False)
    return Ragged(torch.from_numpy(values.copy()), torch.from_numpy(offsets))
