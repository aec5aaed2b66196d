"""Small tables on disk, and a check that no module leaves a thread or an open file behind."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from left_behind import nothing_left_behind as nothing_left_behind

from distrain.schema import ColumnSchema, Schema, Tags

CARDINALITY = 1000


@pytest.fixture
def schema() -> Schema:
    return Schema(
        (
            ColumnSchema("label", "float32", (Tags.TARGET,)),
            ColumnSchema("I1", "float32", (Tags.CONTINUOUS,)),
            ColumnSchema("I2", "float32", (Tags.CONTINUOUS,)),
            ColumnSchema("C1", "int32", (Tags.CATEGORICAL,), cardinality=2**25),
            ColumnSchema("C2", "int32", (Tags.CATEGORICAL,), cardinality=CARDINALITY),
            ColumnSchema("C3", "int32", (Tags.CATEGORICAL,)),
        )
    )


def make_columns(num_rows: int, first_row: int = 0) -> dict[str, Any]:
    """`C3` numbers the rows; `C1` needs more digits than float32 has."""
    rows = np.arange(first_row, first_row + num_rows)
    return {
        "label": (rows % 3 == 0).astype(np.float32),
        "I1": rows.astype(np.float32) / 7,
        "unused": ["text"] * num_rows,
        "I2": -rows.astype(np.float64),
        "C1": (2**24 + 2 * rows + 1).astype(np.int64),
        "C2": (rows * 7 % CARDINALITY).astype(np.int32),
        "C3": rows.astype(np.uint16),
    }


WriteTable = Callable[..., str]


@pytest.fixture
def write_table(tmp_path: Path) -> WriteTable:
    """Write files of the given row-group sizes; return their folder."""

    def write(sizes_of_files: list[list[int]], **changes: Any) -> str:
        first_row = 0
        for number, sizes in enumerate(sizes_of_files):
            path = tmp_path / f"part_{number}.parquet"
            total = pa.table({**make_columns(sum(sizes), first_row), **changes})
            with pq.ParquetWriter(path, total.schema, write_statistics=False) as writer:
                start = 0
                for size in sizes:
                    writer.write_table(total.slice(start, size), row_group_size=max(size, 1))
                    start += size
            first_row += sum(sizes)
        return str(tmp_path)

    return write
