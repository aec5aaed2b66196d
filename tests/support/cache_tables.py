"""A small table to cache, and a reader of it that is too simple to be wrong."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from distrain.loader.partition.wanted_columns import wanted_columns
from distrain.loader.reading.reader import DecodedColumns, Reader
from distrain.schema import ColumnSchema, Schema

SCHEMA = Schema(
    (
        ColumnSchema("row_key"),  # has no role, so that it is not cached
        ColumnSchema("price", tags=("continuous",)),
        ColumnSchema("user", tags=("categorical",), cardinality=1000),
        ColumnSchema("item.id", tags=("categorical",), cardinality=50),
        ColumnSchema("clicked", tags=("target",)),
        ColumnSchema("importance", tags=("weight",)),
    )
)
COLUMNS = wanted_columns(SCHEMA, need_label=True)


def make_table(num_rows, seed=0):
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "row_key": [f"r{i}" for i in range(num_rows)],
            "price": random.normal(size=num_rows),
            "user": random.integers(0, 1000, num_rows),
            "item.id": random.integers(0, 50, num_rows).astype(np.uint8),
            "clicked": random.random(num_rows) < 0.3,
            "importance": random.random(num_rows).astype(np.float32),
        }
    )


class PlainReader(Reader):
    """Reads with pyarrow alone, and counts how often."""

    def __init__(self):
        self.reads = 0
        self.closed = False

    def read(self, group, columns):
        self.reads += 1
        with pq.ParquetFile(group.file) as parquet:
            table = parquet.read_row_group(group.index)
        cells = [table[c.name].to_numpy(zero_copy_only=False) for c in columns]
        yield DecodedColumns(tuple(cells), bytes_read=1)

    def close(self):
        self.closed = True


def read_group(cache, group, reader):
    """A row group's cells through a cache, copied."""
    parts = cache.read(group, 0, reader)
    return [np.array(cells) for part in parts for cells in part.cells]


def float32_cells(table, columns=COLUMNS):
    """What a loader must see of a table: ids as int32, all else as float32."""
    kinds = {"id": np.int32}
    return [table[c.name].to_numpy().astype(kinds.get(c.kind, np.float32)) for c in columns]


def assert_same_cells(cells, expected):
    assert len(cells) == len(expected)
    for got, want in zip(cells, expected, strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)
