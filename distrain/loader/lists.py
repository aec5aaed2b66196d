"""List columns: dealt row by row with Arrow, joined to values and offsets when a batch is whole."""

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
from distrain.loader.dealing import Deal
from distrain.loader.fill import check_values
from distrain.loader.open_batches import OpenBatch
from distrain.loader.options import whole_number
from distrain.partition import RowGroup
from distrain.partition.columns import Wanted


def list_limits(columns: Sequence[Wanted], given: Mapping[str, int] | None) -> dict[str, int]:
    """How many items lists keep at most, by column; what is given outranks the schema.

    Raises:
        SpecError: A column is none of lists, or a number is below 1.
    """
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


def cut_lists(rows: pa.Array, most: int | None) -> pa.Array:
    """The first `most` items of each list; `None` keeps all.

    >>> cut_lists(pa.array([[1, 2, 3], [], [4]]), 2).to_pylist()
    [[1, 2], [], [4]]
    """
    if most is None:
        return rows
    return pc.list_slice(rows, 0, most, return_fixed_size_list=False)


def check_lists(column: Wanted, rows: pa.Array, group: RowGroup) -> None:
    """Look at a row group's lists.

    Raises:
        DataError: An item cannot be used, or a list is longer than the schema allows; it is named
            with its row.
    """
    lengths = np.diff(rows.offsets.to_numpy())
    if column.max_length and lengths.size and lengths.max() > column.max_length:
        row = int(np.argmax(lengths > column.max_length))
        raise DataError(
            f"a list of column {column.name!r} has {lengths[row]} items, more than the schema's "
            f"{column.max_length}",
            where={
                "file": group.file,
                "row group": group.index,
                "row in the group": row,
                "column": column.name,
            },
            hint="Cut them (max_list_length), or raise value_count in the schema.",
        )
    items = rows.flatten().to_numpy(zero_copy_only=False)
    row_of_item = np.repeat(np.arange(len(rows)), lengths)
    check_values(column, items, group, row_of_value=row_of_item)


def deal_list(number: int, rows: pa.Array, deal: Deal, batches: Sequence[OpenBatch[Any]]) -> None:
    """Hand a row group's rows of the list column `number` to the batches of a deal's runs."""
    first = 0
    for batch, start, count in zip(batches, deal.starts, deal.counts, strict=True):
        run = slice(first, first + int(count))
        places = start + (deal.places[run] if len(deal.places) else np.arange(count))
        batch.lists[number].append((places, rows.take(pa.array(deal.rows[run]))))
        first += int(count)


def joined(column: Wanted, parts: Sequence[tuple[NDArray[np.int64], pa.Array]]) -> Ragged:
    """A batch's list column from the rows that have come, in whatever order they came."""
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
