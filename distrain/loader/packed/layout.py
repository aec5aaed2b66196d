"""Where the values of a packed file's row group lie.

Behind a short header, each column chunk ends with the raw values. Before the first chunk lie the
lengths of each list column's rows, int32, which no other reader sees. The offsets of the chunks
come from parquet's footer; with the lengths they must tile the row group's bytes without a gap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from distrain.errors import DataError
from distrain.loader.packed.mark import DAMAGED, GroupMark, Mark
from distrain.loader.partition.wanted_columns import WantedColumn

_LONGEST_PAGE_HEADER_BYTES = 1024
_DTYPES = {"INT32": np.dtype("<i4"), "FLOAT": np.dtype("<f4")}


@dataclass(frozen=True)
class Values:
    """Values `<i4` or `<f4`, in the cache also `u1` and `<u2`, from byte `start` of a file."""

    name: str
    dtype: np.dtype[Any]
    count: int
    start: int
    checksum: int

    @property
    def num_bytes(self) -> int:
        return self.dtype.itemsize * self.count


@dataclass(frozen=True)
class ListValues:
    lengths: Values
    items: Values


@dataclass(frozen=True)
class GroupLayout:
    num_rows: int
    cells: tuple[Values, ...]  # the wanted flat columns, in their order
    lists: tuple[ListValues, ...]  # the wanted list columns, in their order

    @property
    def num_bytes(self) -> int:
        return sum(values.num_bytes for values in self.values)

    @property
    def values(self) -> Iterator[Values]:
        yield from self.cells
        for column in self.lists:
            yield column.lengths
            yield column.items


def group_layout(
    metadata: pq.FileMetaData, mark: Mark, index: int, wanted: Sequence[WantedColumn], file: str
) -> GroupLayout:
    where = {"file": file, "row group": index}
    group = mark.groups[index]
    lengths = _lengths(mark, group)
    chunks = _chunks(metadata, mark, index, sum(v.num_bytes for v in lengths.values()), where)
    found = [_chunk_of(column, mark, chunks, where) for column in wanted]
    return GroupLayout(
        group.num_rows,
        tuple(values for values in found if values.name not in lengths),
        tuple(ListValues(lengths[v.name], v) for v in found if v.name in lengths),
    )


def _lengths(mark: Mark, group: GroupMark) -> dict[str, Values]:
    size = 4 * group.num_rows
    sums = group.checksums[len(mark.columns) :]
    return {
        name: Values(name, _DTYPES["INT32"], group.num_rows, group.start + number * size, sum_)
        for number, (name, sum_) in enumerate(zip(mark.lists, sums, strict=True))
    }


def _chunks(
    metadata: pq.FileMetaData, mark: Mark, index: int, before: int, where: dict[str, object]
) -> dict[str, Values]:
    """The column chunks, which with `before` bytes before them tile the row group's."""
    group = mark.groups[index]
    items = dict(zip(mark.lists, group.items, strict=True))
    row_group = metadata.row_group(index)
    found: dict[str, Values] = {}
    next_start = group.start + before
    for number, name in enumerate(mark.columns):
        chunk = row_group.column(number)
        start, length = chunk.data_page_offset, chunk.total_compressed_size
        count = items.get(name, group.num_rows)
        dtype = _DTYPES.get(chunk.physical_type)
        # Before a list column's items lie levels, two bits a row or item, or some more.
        most = _LONGEST_PAGE_HEADER_BYTES + (name in items) * (group.num_rows + count)
        good = start == next_start and 0 < length - 4 * count <= most
        # Not its codec: pyarrow ends the process where a damaged footer gives one that is none.
        if not good or dtype is None or chunk.total_uncompressed_size != length:
            message = "the footer does not describe a packed column chunk"
            raise DataError(message, where={**where, "column": number}, hint=DAMAGED)
        first = start + length - 4 * count
        found[name] = Values(name, dtype, count, first, group.checksums[number])
        next_start += length
    if next_start != group.start + group.length or row_group.num_rows != group.num_rows:
        message = "the footer's row group is not the one that its key distrain.packed names"
        raise DataError(message, where=where, hint=DAMAGED)
    return found


def _chunk_of(
    column: WantedColumn, mark: Mark, chunks: dict[str, Values], where: dict[str, object]
) -> Values:
    place = {**where, "column": column.name}
    values = chunks.get(column.name)
    if values is None:
        raise DataError(
            f"column {column.name!r} is missing",
            where=place,
            hint="Pack the source again, with a schema that has the column.",
        )
    holds = f"column {column.name!r} holds"
    if column.is_list != (column.name in mark.lists):
        kinds = ("lists", "one value per row") if not column.is_list else ("no lists", "lists")
        message = f"{holds} {kinds[0]}, but {kinds[1]} is needed"
        hint = "It was packed with another schema: pack the source again."
        raise DataError(message, where=place, hint=hint)
    if column.kind == "id" and values.dtype.kind != "i":
        message = f"{holds} float, but integer ids are needed"
        hint = "It was packed with a schema that calls it continuous: pack the source again."
        raise DataError(message, where=place, hint=hint)
    return values
