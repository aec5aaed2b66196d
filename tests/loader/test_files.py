"""Tables of several files that differ: order of columns, missing columns, folders, small groups."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from wording import Wording

from distrain.errors import DataError
from distrain.loader import Dataset, Loader
from distrain.schema import ColumnSchema, Schema, Tags

SCHEMA = Schema(
    (
        ColumnSchema("row", tags=(Tags.CATEGORICAL,)),
        ColumnSchema("age", tags=(Tags.CONTINUOUS,)),
        ColumnSchema("y", tags=(Tags.TARGET,)),
    )
)


def write(path: Path, first: int, rows: int, names: list[str], group: int = 10) -> str:
    numbers = np.arange(first, first + rows)
    all_columns: dict[str, Any] = {
        "row": numbers, "age": numbers / 4, "y": numbers % 2, "other": ["text"] * rows,
    }  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({n: all_columns[n] for n in names}), path, row_group_size=group)
    return str(path)


def rows_and_columns(dataset: Dataset, **options: Any) -> dict[str, list[float]]:
    """A whole epoch's columns by name."""
    with Loader(dataset, **{"global_batch_size": 7, "lanes": 2, **options}).epoch(0) as batches:
        parts = list(batches)
    names = (*parts[0].categorical_names, *parts[0].continuous_names, *parts[0].label_names)
    return {name: torch.cat([part[name] for part in parts]).tolist() for name in names}


def test_columns_may_have_another_type_in_another_file(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", 0, 23, ["row", "age", "y"])
    table = pa.table({
        "row": np.arange(23, 40, dtype=np.uint8), "age": np.arange(23, 40, dtype=np.float32) / 4,
        "y": np.arange(23, 40) % 2 == 1,
    })  # fmt: skip
    pq.write_table(table, tmp_path / "b.parquet")
    found = rows_and_columns(Dataset(tmp_path, SCHEMA), parts_per_chunk=4)
    assert sorted(found["row"]) == list(range(40))
    assert found["age"] == [row / 4 for row in found["row"]]
    assert found["y"] == [row % 2 for row in found["row"]]


def test_folders_give_columns(tmp_path: Path, wording: Wording) -> None:
    write(tmp_path / "day=3" / "temp=0.5" / "a.parquet", 0, 23, ["row", "age", "y"])
    write(tmp_path / "day=4" / "temp=-1" / "a.parquet", 23, 19, ["y", "row", "age"])
    schema = Schema(
        (
            ColumnSchema("day", tags=(Tags.CATEGORICAL,), cardinality=5),
            *SCHEMA,
            ColumnSchema("temp", tags=(Tags.CONTINUOUS,)),
        )
    )
    dataset = Dataset(tmp_path / "*" / "*", schema, hive=True)
    for options in ({"shuffle": "full"}, {"num_ranks": 2, "rank": 1}):
        found = rows_and_columns(dataset, **options)
        assert found["day"] == [3 if row < 23 else 4 for row in found["row"]]
        assert found["temp"] == [0.5 if row < 23 else -1 for row in found["row"]]
        assert found["age"] == [row / 4 for row in found["row"]]
    wording.refused(DataError, lambda: Dataset(tmp_path / "*" / "*", schema))


def test_parts_keep_small_row_groups_of_a_file_together(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", 0, 50, ["row", "age", "y"], group=5)
    write(tmp_path / "b.parquet", 50, 20, ["row", "age", "y"], group=5)
    dataset = Dataset(tmp_path, SCHEMA, part_size=20 * 3 * 4)  # 20 rows of 3 cells of 4 bytes
    assert dataset.part_rows == 20
    assert [len(part) for part in dataset.parts] == [4, 4, 2, 4]
    whole = rows_and_columns(dataset, lanes=1, global_batch_size=10)["row"]
    assert sorted(whole) == list(range(70))
    # With one lane, the rows of a part follow each other, in a random order.
    parts = [{row // 20 if row < 50 else 3 for row in whole[i : i + 10]} for i in range(0, 70, 10)]
    assert all(len(part) == 1 for part in parts)
    assert whole != rows_and_columns(Dataset(tmp_path, SCHEMA), lanes=1)["row"]


def test_names_may_hold_dots(tmp_path: Path) -> None:
    numbers = np.arange(12)
    table = {
        "a.b": numbers,
        "a": numbers + 100,
        "a.b.c": numbers / 4,
        "l.x": [[n] for n in numbers],
    }
    pq.write_table(pa.table(table), tmp_path / "a.parquet", row_group_size=5)
    schema = Schema(
        (
            ColumnSchema("a.b", tags=(Tags.CATEGORICAL,)),
            ColumnSchema("a", tags=(Tags.CATEGORICAL,)),
            ColumnSchema("a.b.c", tags=(Tags.CONTINUOUS,)),
            ColumnSchema("l.x", tags=(Tags.CATEGORICAL,), is_list=True),
        )
    )
    loader = Loader(Dataset(tmp_path, schema, need_label=False), batch_size=12)
    with loader.epoch(0) as batches:
        (batch,) = batches
    assert sorted(batch["a.b"].tolist()) == list(range(12))
    assert batch["a"].tolist() == [row + 100 for row in batch["a.b"].tolist()]
    assert batch["a.b.c"].tolist() == [row / 4 for row in batch["a.b"].tolist()]
    assert batch.lists["l.x"].values.tolist() == batch["a.b"].tolist()
    metadata = pq.read_metadata(tmp_path / "a.parquet")
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    sizes = [g.column(i).total_compressed_size for g in groups for i in range(g.num_columns)]
    assert loader.stats.bytes_read == sum(sizes)
