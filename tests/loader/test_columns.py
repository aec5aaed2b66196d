"""Flat columns of every type, from real files to batches."""

import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from wording import Wording

from distrain.errors import DataError
from distrain.loader import Dataset, Loader
from distrain.loader.batch import Batch
from distrain.schema import ColumnSchema, Schema, Tags

ROWS = 60
TRUTHS = np.arange(ROWS) % 3 == 0


def write(path: Path, columns: Mapping[str, Any], row_group_size: int = 25, **options: Any) -> str:
    """A file; columns are arrays, with nulls where they are masked or `None`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(dict(columns)), path, row_group_size=row_group_size, **options)
    return str(path)


def schema_of(**tags: str) -> Schema:
    return Schema(tuple(ColumnSchema(name, tags=(tag,)) for name, tag in tags.items()))


def batches_of(dataset: Dataset, **options: Any) -> list[Batch]:
    options = {"global_batch_size": 16, "lanes": 4, **options}
    with Loader(dataset, **options).epoch(0) as batches:
        return list(batches)


def in_file_order(dataset: Dataset, name: str) -> list[Any]:
    batches = batches_of(dataset, shuffle="none", lanes=1)
    return torch.cat([batch[name] for batch in batches]).tolist()


NUMBER_TYPES = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(),
                pa.uint64(), pa.bool_(), pa.float16(), pa.float32(), pa.float64()]  # fmt: skip


def test_ids_values_labels_and_weights_of_every_type(tmp_path: Path) -> None:
    columns: dict[str, Any] = {"row": np.arange(ROWS, dtype=np.int16)}
    tags = {"row": Tags.CATEGORICAL}
    for kind in NUMBER_TYPES:
        numbers = TRUTHS if kind == pa.bool_() else np.arange(ROWS) * 2
        if not pa.types.is_floating(kind):
            columns[f"id_{kind}"] = pa.array(numbers).cast(kind)
            tags[f"id_{kind}"] = Tags.CATEGORICAL
        columns[f"value_{kind}"] = pa.array(numbers).cast(kind)
        columns[f"label_{kind}"] = pa.array(TRUTHS.astype(np.uint8)).cast(kind)
        tags[f"value_{kind}"], tags[f"label_{kind}"] = Tags.CONTINUOUS, Tags.TARGET
    write(tmp_path / "a.parquet", dict(reversed(columns.items())))
    batches = batches_of(Dataset(tmp_path, schema_of(**tags)))
    assert sum(batch.num_rows for batch in batches) == ROWS
    for batch in batches:
        rows = batch["row"].numpy()
        assert batch.labels is not None
        assert batch.labels.shape == (batch.num_rows, len(NUMBER_TYPES))
        assert batch.label_names == tuple(f"label_{kind}" for kind in NUMBER_TYPES)
        for number, name in enumerate(batch.label_names):
            assert torch.equal(batch.labels[:, number], batch[name])
        assert batch.label is not None
        assert torch.equal(batch.label, batch.labels[:, 0])
        for name, column in columns.items():
            dtype = torch.float32 if name.startswith(("value", "label")) else torch.int32
            assert batch[name].dtype == dtype
            expected = pa.array(column).to_numpy(zero_copy_only=False)[rows].astype(np.float64)
            assert np.array_equal(batch[name].numpy(), expected), name


@pytest.mark.parametrize("kind", [pa.date32(), pa.date64()])
def test_dates_are_days(tmp_path: Path, kind: pa.DataType, wording: Wording) -> None:
    days = [datetime.date(1970, 1, 1) + datetime.timedelta(days=n * 300) for n in range(ROWS)]
    path = write(tmp_path / "a.parquet", {
        "day": pa.array(days, kind), "when": pa.array(days, kind),
    })  # fmt: skip
    dataset = Dataset(path, schema_of(day=Tags.CATEGORICAL, when=Tags.CONTINUOUS), need_label=False)
    assert in_file_order(dataset, "day") == [n * 300 for n in range(ROWS)]
    assert in_file_order(dataset, "when") == [float(n * 300) for n in range(ROWS)]
    early = pa.array([datetime.date(1969, 12, 31)] * 2, kind)
    path = write(tmp_path / "b.parquet", {"day": early}, write_statistics=False)
    old = Dataset(path, schema_of(day=Tags.CATEGORICAL), need_label=False)
    wording.refused(DataError, lambda: batches_of(old))


@pytest.mark.parametrize("kind", NUMBER_TYPES)
def test_nulls_are_filled_whatever_the_type(tmp_path: Path, kind: pa.DataType) -> None:
    """With ids and numbers, too, that the column's own type does not hold."""
    numbers = pa.array([1, None, 0, 1, None]).cast(pa.bool_() if kind == pa.bool_() else kind)
    is_id = not pa.types.is_floating(kind)
    path = write(tmp_path / "a.parquet", {"user": numbers, "age": numbers}, row_group_size=3)
    tags = {"age": Tags.CONTINUOUS} | ({"user": Tags.CATEGORICAL} if is_id else {})
    dataset = Dataset(
        path, schema_of(**tags), need_label=False, fill_null_id=70_000, fill_null_value=-0.5
    )
    assert in_file_order(dataset, "age") == [1, -0.5, 0, 1, -0.5]
    if is_id:
        assert in_file_order(dataset, "user") == [1, 70_000, 0, 1, 70_000]


@pytest.mark.parametrize("group", [1, 25])
def test_columns_of_nothing_but_nulls_are_filled_whatever_their_type(
    tmp_path: Path, group: int, wording: Wording
) -> None:
    nulls = {
        "user": pa.nulls(3),
        "price": pa.nulls(3),
        "ids": pa.array([[], None, [None]], pa.list_(pa.null())),
    }
    full = {"user": pa.array([4, 5, 6]), "price": [1.0, 2.0, 3.0], "ids": [[7], [], [8, 7]]}
    schema = Schema(
        (
            ColumnSchema("user", tags=(Tags.CATEGORICAL,), cardinality=10),
            ColumnSchema("price", tags=(Tags.CONTINUOUS,)),
            ColumnSchema("ids", tags=(Tags.CATEGORICAL,), cardinality=10, is_list=True),
        )
    )
    write(tmp_path / "a.parquet", nulls, group)
    write(tmp_path / "b.parquet", full, group)
    fills = {"fill_null_id": 9, "fill_null_value": 0.5}
    dataset = Dataset(tmp_path, schema, need_label=False, **fills)
    assert in_file_order(dataset, "user") == [9, 9, 9, 4, 5, 6]
    assert in_file_order(dataset, "price") == [0.5, 0.5, 0.5, 1, 2, 3]
    lists = [batch.lists["ids"] for batch in batches_of(dataset, shuffle="none", lanes=1)]
    assert torch.cat([part.values for part in lists]).tolist() == [9, 7, 8, 7]
    wording.refused(DataError, lambda: Dataset(tmp_path, schema, need_label=False))
    empty = write(tmp_path / "c.parquet", {**full, "ids": pa.array([[]] * 3, pa.list_(pa.null()))})
    (found,) = batches_of(Dataset(empty, schema, need_label=False), shuffle="none", lanes=1)
    assert found.lists["ids"].values.tolist() == []
