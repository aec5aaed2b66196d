"""What footers tell of a table, and what is advised about it."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distrain.loader import Dataset
from distrain.loader.tuning import footer_summary, reading_advice
from distrain.schema import ColumnSchema, Schema, Tags

SCHEMA = Schema(
    (
        ColumnSchema("label", "float32", (Tags.TARGET,)),
        ColumnSchema("price", "float32", (Tags.CONTINUOUS,)),
        ColumnSchema("user", "int64", (Tags.CATEGORICAL,), cardinality=100),
        ColumnSchema("item", "int32", (Tags.CATEGORICAL,), cardinality=100),
        ColumnSchema("tags", "int32", (Tags.CATEGORICAL,), cardinality=9, is_list=True),
    )
)


def write(path: Path, rows: int, group_rows: int, codec: str, user: Any = np.int64) -> None:
    numbers = np.arange(rows)
    table = pa.table(
        {
            "label": (numbers % 2).astype(np.float32),
            "price": numbers.astype(np.float64),
            "user": (numbers % 100).astype(user),
            "item": (numbers % 100).astype(np.int32),
            "tags": pa.array([[1, 2]] * rows, pa.list_(pa.int32())),
            "unused": ["x" * 50] * rows,
        }
    )
    pq.write_table(table, path, row_group_size=group_rows, compression=codec)


def test_facts_are_what_the_footers_say(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", 100, 40, "zstd")
    write(tmp_path / "b.parquet", 50, 50, "snappy", np.int32)
    footers = footer_summary(Dataset(tmp_path, SCHEMA))
    assert footers.num_files == 2
    assert footers.group_rows == (40, 40, 20, 50)
    assert footers.decoded_row_bytes == 4 + 8 + 8 + 4  # of the wider file, without lists
    used = {"label", "price", "user", "item", "tags"}
    sizes = {"ZSTD": [], "SNAPPY": []}  # type: dict[str, list[int]]
    for name in ("a", "b"):
        footer = pq.read_metadata(tmp_path / f"{name}.parquet")
        for index in range(footer.num_row_groups):
            group = footer.row_group(index)
            chunks = [group.column(i) for i in range(group.num_columns)]
            kept = [c for c in chunks if c.path_in_schema.split(".")[0] in used]
            sizes[kept[0].compression].append(sum(c.total_compressed_size for c in kept))
    assert footers.codec_bytes == {codec: sum(found) for codec, found in sizes.items()}
    assert footers.compressed_bytes == sum(footers.codec_bytes.values())
    assert footers.largest_group_bytes == max(sizes["ZSTD"] + sizes["SNAPPY"])


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    write(tmp_path / "a.parquet", 200_000, 20_000, "snappy", np.int32)
    return Dataset(tmp_path, Schema(SCHEMA.columns[:4]))


def test_good_files_need_no_advice(dataset: Dataset) -> None:
    assert reading_advice(footer_summary(dataset), 2) == []


def test_files_that_decode_slowly_are_told(dataset: Dataset) -> None:
    footers = footer_summary(dataset)
    small = dataclasses.replace(footers, group_rows=(1000,) * 200)
    (advice,) = reading_advice(small, 2)
    assert "row groups of about 1,000 rows" in advice
    assert "--row-group-rows 65536" in advice
    slow = {"GZIP": footers.compressed_bytes - 10, "SNAPPY": 10}
    (advice,) = reading_advice(dataclasses.replace(footers, codec_bytes=slow), 2)
    assert "100% of the bytes are compressed with GZIP" in advice
