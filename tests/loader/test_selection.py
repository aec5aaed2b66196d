"""Rows left out of row groups: the batches of files that never had them, by every reader."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from same_batches import assert_same

from distrain.errors import DataError
from distrain.jobs.spec.data import RowsSpec
from distrain.loader import Dataset, Loader
from distrain.loader.batch import Batch
from distrain.loader.options import checked
from distrain.loader.partition.table import Table
from distrain.schema import ColumnSchema, Schema, Tags

SIZES = (90, 61, 20, 70, 5)
SCHEMA = Schema(
    (
        ColumnSchema("label", "float32", (Tags.TARGET,)),
        ColumnSchema("x", "float32", (Tags.CONTINUOUS,)),
        ColumnSchema("id", "int32", (Tags.CATEGORICAL,), cardinality=1000),
        ColumnSchema("tags", "int32", (Tags.CATEGORICAL,), cardinality=50, is_list=True),
    )
)
FLAT = SCHEMA.remove(["tags"])


def make_rows(num_rows: int) -> pa.Table:
    numbers = np.arange(num_rows)
    return pa.table(
        {
            "label": (numbers % 3 == 0).astype(np.float32),
            "x": numbers.astype(np.float32) / 7,
            "id": pa.array(numbers.astype(np.int32)),
            "tags": pa.array([list(range(row % 4)) for row in numbers], pa.list_(pa.int32())),
        }
    )


def write(path: Path, rows: pa.Table, sizes: list[int]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(path, rows.schema) as writer:
        start = 0
        for size in sizes:
            if size:
                writer.write_table(rows.slice(start, size), row_group_size=size)
            start += size
    return str(path)


def both(
    folder: Path, is_taken: np.ndarray, schema: Schema = SCHEMA, **more: Any
) -> tuple[Dataset, Dataset]:
    """The taken rows of a file, and a file of the taken rows in the same row groups."""
    rows = make_rows(sum(SIZES))
    bounds = np.cumsum([0, *SIZES])
    counts = [int(is_taken[a:b].sum()) for a, b in pairwise(bounds)]
    filtered = write(folder / "filtered" / "rows.parquet", rows.filter(is_taken), counts)
    whole = Dataset(write(folder / "whole" / "rows.parquet", rows, list(SIZES)), schema)
    return chosen(whole, is_taken, **more), Dataset(filtered, schema, **more)


def chosen(whole: Dataset, is_taken: np.ndarray, **more: Any) -> Dataset:
    starts = np.cumsum([0, *SIZES])
    groups = [
        group.taking(is_taken[start : start + group.num_rows])
        for group, start in zip(whole.table.row_groups, starts, strict=False)
    ]
    table = Table([group for group in groups if group], whole.table.fingerprint)
    return Dataset.of(Table.from_bytes(table.to_bytes()), whole.schema, checked(RowsSpec, more))


def batches(dataset: Dataset, epoch: int = 0, **options: Any) -> list[Batch]:
    settings = {"global_batch_size": 16, "lanes": 12, "seed": 3, **options}
    with Loader(dataset, **settings) as loader, loader.epoch(epoch) as found:
        return list(found)


MASKS = st.integers(0, 2**32 - 1).map(
    lambda seed: np.random.default_rng(seed).random(sum(SIZES)) < (seed % 10 + 1) / 11
)


@pytest.mark.parametrize("shuffle", ["chunk", "full", "none"])
@pytest.mark.parametrize("large", [24, 10**6])
@settings(
    deadline=None, max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(is_taken=MASKS.filter(np.any), data=st.data())
def test_a_selection_gives_the_batches_of_files_with_its_rows_alone(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    large: int,
    shuffle: str,
    is_taken: np.ndarray,
    data: st.DataObject,
) -> None:
    monkeypatch.setattr("distrain.loader.dataset.LARGE_ROWS", large)
    folder = tmp_path_factory.mktemp("both")
    schema = data.draw(st.sampled_from([SCHEMA, FLAT]))
    some, filtered = both(
        folder, is_taken, schema, part_size=data.draw(st.sampled_from([None, "400"]))
    )
    ranks = data.draw(st.sampled_from([1, 2, 4]))
    for rank in range(ranks):
        options = {
            "rank": rank,
            "num_ranks": ranks,
            "shuffle": shuffle,
            "decode_threads": data.draw(st.sampled_from([1, 2])),
            "parts_per_chunk": data.draw(st.sampled_from([1, 3])),
        }
        assert_same(batches(some, **options), batches(filtered, **options))


@pytest.mark.parametrize("large", [24, 10**6])
def test_the_cache_gives_a_selection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: int
) -> None:
    monkeypatch.setattr("distrain.loader.dataset.LARGE_ROWS", large)
    is_taken = np.random.default_rng(0).random(sum(SIZES)) < 0.4
    flat, without = both(tmp_path / "flat", is_taken, FLAT)
    cache = str(tmp_path / "cache")
    for _ in range(2):
        assert_same(batches(flat, cache=cache), batches(without))
    other = chosen(Dataset(str(tmp_path / "flat" / "whole"), FLAT), ~is_taken)
    assert_same(batches(other, cache=cache), batches(other))


@pytest.mark.parametrize("large", [24, 10**6])
def test_nulls_and_bad_values_of_rows_that_are_left_out_do_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: int
) -> None:
    monkeypatch.setattr("distrain.loader.dataset.LARGE_ROWS", large)
    rows = make_rows(sum(SIZES))
    is_taken = np.arange(sum(SIZES)) % 3 != 1
    places = np.flatnonzero(~is_taken)
    columns = {name: rows[name].to_pylist() for name in rows.column_names}
    for name, bad in (("x", None), ("id", 5000), ("label", 7.0), ("tags", None)):
        for place in places:
            columns[name][place] = bad
    broken = pa.table(columns, schema=rows.schema)
    sizes = list(SIZES)
    fine = Dataset(write(tmp_path / "fine" / "rows.parquet", rows, sizes), SCHEMA)
    path = write(tmp_path / "broken" / "rows.parquet", broken, sizes)
    names = {group.file: path for group in fine.table.row_groups}
    assert len(names) == 1

    def moved(dataset: Dataset) -> Dataset:
        groups = [
            group.__class__(path, group.index, group.num_rows, selection=group.selection)
            for group in dataset.table.row_groups
        ]
        return Dataset.of(Table(groups, "moved"), SCHEMA)

    expected = chosen(fine, is_taken)
    assert_same(batches(moved(expected)), batches(expected))
    is_taken[places[40]] = True
    with pytest.raises(DataError) as error:
        batches(moved(chosen(fine, is_taken)), shuffle="none", lanes=1)
    starts = np.cumsum([0, *SIZES])
    group = int(np.searchsorted(starts, places[40], side="right")) - 1
    assert error.value.where["row group"] == group
    assert error.value.where["row in the group"] == places[40] - starts[group]
