"""Reads row groups of raw parquet files, and prepares them with a fitted workflow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from distrain.loader.partition.table import RowGroup
from distrain.loader.partition.wanted_columns import WantedColumn
from distrain.loader.reading.arrow import ArrowReader
from distrain.loader.reading.reader import DecodedColumns
from distrain.prep.transforming import raw_tables


class RawReader(ArrowReader):
    """Reads raw row groups with Arrow, and returns the columns that the workflow makes of them.

    `workflow` is the workflow's folder; `options` are those of `ArrowReader`. A row group, or a
    slice of a large one, is prepared as a whole in the calling thread.
    """

    def __init__(self, columns: Sequence[WantedColumn], workflow: str, **options: Any):
        super().__init__(columns, **options)
        self._tables = raw_tables(workflow)

    def _columns_in(self, group: RowGroup) -> list[WantedColumn]:
        return [WantedColumn(name, "raw") for name in self._tables.columns_in(group.file)]

    def _parts(self, group: RowGroup, columns: Sequence[WantedColumn]) -> Iterator[DecodedColumns]:
        num_bytes = self._check(group)
        names = [column.name for column in self._columns_in(group)]
        table = pa.table(self._read_arrow(group, names))
        rows = self._tables.prepared(table, group.file, group.index, group.first_row)
        cells = [rows[column.name] for column in columns if not column.is_list]
        lists = [rows[column.name] for column in columns if column.is_list]
        yield DecodedColumns(
            tuple(values.combine_chunks().to_numpy(zero_copy_only=False) for values in cells),
            tuple(_one_array(values) for values in lists),
            num_bytes,
        )


def _one_array(values: pa.ChunkedArray) -> pa.Array:
    rows = values.combine_chunks()
    return rows if pa.types.is_list(rows.type) else rows.cast(pa.list_(rows.type.value_type))
