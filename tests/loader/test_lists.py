"""List columns, from real files to values and offsets, against rows kept in Python lists."""

from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from host_work import Far, PlayedDevice
from hypothesis import given, strategies as st
from ragged_rows import ragged, rows_of
from wording import Wording

from distrain.errors import DataError, SpecError
from distrain.loader import Dataset, Loader
from distrain.loader.batch import Batch, Ragged
from distrain.loader.delivery.transfer import map_tensors
from distrain.schema import ColumnSchema, Schema, Tags

ROW = ColumnSchema("row", tags=(Tags.CATEGORICAL,))
TAGS = ColumnSchema("tags", tags=(Tags.CATEGORICAL,), cardinality=1000, is_list=True)
PRICES = ColumnSchema("prices", tags=(Tags.CONTINUOUS,), is_list=True, is_ragged=True)
SCHEMA = Schema((ROW, TAGS, PRICES))
WRITES_NO_GAPS = pytest.mark.skipif(
    pa.__version__.startswith("19."), reason="Arrow 19 writes no nulls among lists of one length"
)


def dataset_of(path: Path | str, schema: Schema = SCHEMA, **options: Any) -> Dataset:
    return Dataset(path, schema, need_label=False, **options)


def batches_of(dataset: Dataset, **options: Any) -> list[Batch]:
    with Loader(dataset, **{"global_batch_size": 8, "lanes": 4, **options}).epoch(0) as batches:
        return list(batches)


def lists_of(column: Ragged) -> list[list[float]]:
    bounds = column.offsets.tolist()
    return [column.values[a:b].tolist() for a, b in pairwise(bounds)]


def in_file_order(dataset: Dataset, name: str) -> list[list[float]]:
    batches = batches_of(dataset, shuffle="none", lanes=1)
    return [row for batch in batches for row in lists_of(batch.lists[name])]


def check(batch: Batch, tags: list[list[int]], prices: list[list[float]]) -> None:
    rows = batch["row"].tolist()
    assert set(batch.lists) == {"tags", "prices"}
    for name, dtype, expected in (("tags", torch.int32, tags), ("prices", torch.float32, prices)):
        column = batch.lists[name]
        assert (column.values.dtype, column.offsets.dtype) == (dtype, torch.int32)
        assert column.offsets.shape == (batch.num_rows + 1,)
        assert len(column.values) == column.offsets[-1]
        assert lists_of(column) == [expected[row] for row in rows]
        assert column.lengths.tolist() == [len(expected[row]) for row in rows]


def list_type(shape: str, item: pa.DataType) -> pa.DataType:
    shapes = {"list": pa.list_(item), "large": pa.large_list(item), "fixed": pa.list_(item, 3)}
    return shapes[shape]


def write(path: Path, **columns: Any) -> str:
    pq.write_table(pa.table(columns), path, row_group_size=4, write_statistics=False)
    return str(path)


@pytest.mark.parametrize(
    "item", [pa.int8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.bool_(), pa.date32()], ids=str
)
def test_items_of_other_types(tmp_path: Path, item: pa.DataType) -> None:
    rows: list[Any] = [[1, 0], [], [1]]
    items = pa.array(rows, pa.list_(pa.int32())).cast(pa.list_(item))
    path = write(tmp_path / "a.parquet", row=[0, 1, 2], tags=items, prices=items)
    assert in_file_order(dataset_of(path), "tags") == rows
    assert in_file_order(dataset_of(path), "prices") == rows


def test_a_table_of_lists_only_and_of_empty_lists_only(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", tags=pa.array([[]] * 9, pa.list_(pa.int32())))
    batches = batches_of(dataset_of(path, Schema((TAGS,))))
    assert [batch.num_rows for batch in batches] == [8, 1]
    for batch in batches:
        assert batch.categorical.shape == (batch.num_rows, 0)
        assert batch.lists["tags"].offsets.tolist() == [0] * (batch.num_rows + 1)
        assert batch.lists["tags"].values.shape == (0,)


@pytest.mark.parametrize("shape", ["list", "large", pytest.param("fixed", marks=WRITES_NO_GAPS)])
@pytest.mark.parametrize(
    "schema", [Schema((ROW, TAGS)), Schema((ROW, PRICES))], ids=["id", "value"]
)
def test_nulls_are_refused_with_their_row_or_filled(
    tmp_path: Path, shape: str, schema: Schema, wording: Wording
) -> None:
    column = schema.names[1]
    item = pa.int8() if column == "tags" else pa.float32()
    good, holed = [1, 2, 3], [1, None, 3]
    kind = list_type(shape, item)
    null_list = pa.array([good] * 6 + [None, good, None], kind)
    null_item = pa.array([good] * 5 + [holed, good, good, holed], kind)
    for values, row in ((null_list, 2), (null_item, 1)):
        path = write(tmp_path / "a.parquet", row=range(9), **{column: values})
        dataset = dataset_of(path, schema)
        caught = wording.refused(DataError, partial(in_file_order, dataset, column))
        where = {"file": path, "row group": 1, "row in the group": row, "column": column}
        assert caught.where == where
        filled = dataset_of(path, schema, fill_null_id=200, fill_null_value=-0.5)
        fill = 200 if column == "tags" else -0.5
        expected = [
            [] if row is None else [fill if value is None else value for value in row]
            for row in values.to_pylist()
        ]
        assert in_file_order(filled, column) == expected


@pytest.mark.parametrize(
    ("schema", "bad"),
    [
        (Schema((ROW, TAGS)), 1000),
        (Schema((ROW, TAGS)), -1),
        (Schema((ROW, TAGS)), 2**32 + 3),
        (Schema((ROW, PRICES)), float("nan")),
        (Schema((ROW, PRICES)), 1e39),
    ],
)
def test_a_bad_item_is_named_with_its_row(
    tmp_path: Path, schema: Schema, bad: float, wording: Wording
) -> None:
    column = schema.names[1]
    values = [[1], [], [2, 3, 4], [5], [], [1, 2], [1, bad], [bad], []]
    path = write(tmp_path / "a.parquet", row=range(9), **{column: values})
    caught = wording.refused(DataError, lambda: in_file_order(dataset_of(path, schema), column))
    where = {"file": path, "row group": 1, "row in the group": 2, "column": column}
    assert caught.where == where


def test_padded() -> None:
    column = Ragged(torch.tensor([7, 8, 9, 5], dtype=torch.int32), torch.tensor([0, 2, 2, 4]))
    assert column.lengths.tolist() == [2, 0, 2]
    assert column.padded(3, -1).tolist() == [[7, 8, -1], [-1, -1, -1], [9, 5, -1]]
    assert column.padded(1).tolist() == [[7], [0], [9]]
    assert column.padded(0).shape == (3, 0)
    assert column.padded(3).dtype == torch.int32
    empty = Ragged(torch.empty(0), torch.zeros(1, dtype=torch.int32))
    assert empty.padded(2).shape == (0, 2)


def test_to_another_device_moves_lists_as_well(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", row=[0, 1], tags=[[1, 2], []], prices=[[], [0.5]])
    (batch,) = batches_of(dataset_of(path))
    moved = batch.to(torch.device("meta"))
    assert moved.categorical.device.type == "meta"
    assert moved.num_rows == 2
    for name, column in moved.lists.items():
        assert (column.values.device.type, column.offsets.device.type) == ("meta", "meta")
        assert column.values.shape == batch.lists[name].values.shape
        assert column.values.dtype == batch.lists[name].values.dtype
    check(batch.to(torch.device("cpu")), [[1, 2], []], [[], [0.5]])


@given(
    rows=st.lists(st.lists(st.integers(0, 99), max_size=5), max_size=8),
    length=st.integers(1, 4),
    ends=st.lists(st.integers(0, 8), min_size=2, max_size=2).map(sorted),
)
def test_lists_from_the_host_are_cut_on_a_device_without_asking_it(
    rows: list[list[int]], length: int, ends: list[int]
) -> None:
    """Also after the host replaced their offsets, and through the loader's way to a device."""
    cut = slice(*(min(end, len(rows)) for end in ends))
    with PlayedDevice() as device:
        there = ragged(rows).to(torch.device("meta"))
        on_host = ragged(rows)
        longer = ragged([[*row, 0] for row in rows])
        changed = replace(on_host.mapped(torch.clone), values=longer.values, offsets=longer.offsets)
        moved = map_tensors(changed, lambda tensor: tensor.to("meta", non_blocking=True))
        newest, part = there.newest(length), there.part(cut)
        assert device.waits == []
    expected = [row[-length:] for row in rows]
    assert near_rows(newest) == expected == rows_of(on_host.newest(length))
    assert near_rows(part) == rows[cut] == rows_of(on_host.part(cut))
    assert near_rows(moved) == [[*row, 0] for row in rows]


def near_rows(column: Ragged) -> list[list[int]]:
    """The rows of a column on a played device, whose host's offsets must be those there."""
    assert isinstance(column.values, Far)
    assert isinstance(column.offsets, Far)
    near = Ragged(column.values.near, column.offsets.near)
    np.testing.assert_array_equal(column.offsets_on_host(), near.offsets.numpy())
    return rows_of(near)


def test_dense(wording: Wording) -> None:
    column = Ragged(torch.tensor([7, 8, 9, 5]), torch.tensor([0, 2, 4], dtype=torch.int32))
    assert column.dense().tolist() == [[7, 8], [9, 5]]
    empty = Ragged(torch.empty(0), torch.zeros(1, dtype=torch.int32))
    assert empty.dense().shape == (0, 0)
    uneven = Ragged(torch.tensor([7, 8]), torch.tensor([0, 0, 2], dtype=torch.int32))
    wording.refused(ValueError, lambda: uneven.dense())


def test_a_list_longer_than_the_schema_allows_is_placed(tmp_path: Path, wording: Wording) -> None:
    tags = ColumnSchema(
        "tags", tags=(Tags.CATEGORICAL,), cardinality=9, is_list=True, value_count=(0, 2)
    )
    rows = pa.table({"tags": pa.array([[1], [], [2, 3], [4, 5, 6]], pa.list_(pa.int32()))})
    pq.write_table(rows, tmp_path / "part.parquet")
    caught = wording.refused(DataError, lambda: batches_of(dataset_of(tmp_path, Schema((tags,)))))
    assert caught.where["row in the group"] == 3


@pytest.mark.parametrize("shuffle", ["none", "full"])
def test_rows_longer_than_max_list_length_are_cut(
    tmp_path: Path, shuffle: str, wording: Wording
) -> None:
    rng = np.random.default_rng(3)
    lengths = rng.integers(0, 9, 50)
    tags = [rng.integers(0, 1000, length).tolist() for length in lengths]
    prices = [rng.integers(0, 9, length).astype(float).tolist() for length in lengths]
    path = write(tmp_path / "a.parquet", row=np.arange(50), tags=tags, prices=prices)
    batches = batches_of(dataset_of(path), shuffle=shuffle, max_list_length={"tags": 3})
    for batch in batches:
        check(batch, [row[:3] for row in tags], prices)
    # What is cut may be longer than the schema allows.
    short = replace(TAGS, value_count=(0, 3))
    dataset = dataset_of(path, Schema((ROW, short, PRICES)))
    wording.refused(DataError, lambda: batches_of(dataset))
    assert len(batches_of(dataset, max_list_length={"tags": 3})) == len(batches)


@pytest.mark.parametrize("limits", [{"row": 3}, {"tag": 3}, {"tags": 0}])
def test_limits_that_cannot_be_used(tmp_path: Path, limits: Any, wording: Wording) -> None:
    path = write(tmp_path / "a.parquet", row=[1], tags=[[1]], prices=[[1.0]])
    wording.refused(
        SpecError, lambda: Loader(dataset_of(path), batch_size=8, max_list_length=limits)
    )


def test_the_schema_may_say_how_many_items_are_kept(tmp_path: Path) -> None:
    tags = [[1, 2, 3], [], [4]]
    path = write(tmp_path / "a.parquet", row=np.arange(3), tags=tags, prices=[[1.0]] * 3)
    short = replace(TAGS, properties={"max_list_length": 2})
    for limits, kept in ((None, 2), ({"tags": 1}, 1)):
        (batch,) = batches_of(
            dataset_of(path, Schema((ROW, short, PRICES))), max_list_length=limits
        )
        check(batch, [row[:kept] for row in tags], [[1.0]] * 3)
