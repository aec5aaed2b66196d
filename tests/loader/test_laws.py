"""The loader's promises about the stream of rows, kept with real files."""

import json
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st
from wording import Wording

from distrain.errors import SpecError
from distrain.jobs.spec.data import WindowsSpec
from distrain.loader import Dataset, Loader
from distrain.loader.batch import Batch
from distrain.loader.partition.slices import LARGE_ROWS
from distrain.schema import ColumnSchema, Schema, Tags

SCHEMA = Schema(
    (
        ColumnSchema("row", tags=(Tags.CATEGORICAL,)),
        ColumnSchema("tags", tags=(Tags.CATEGORICAL,), is_list=True),
        ColumnSchema("age", tags=(Tags.CONTINUOUS,)),
        ColumnSchema("y", tags=(Tags.TARGET,)),
    )
)

# A cell of the global batch: everything that is known of one row.
Row = tuple[int, float, float, tuple[int, ...]]
Steps = list[list[Row]]


def row_of(number: int) -> Row:
    return number, number / 4, float(number % 3 == 0), (number,) * (number % 4)


@contextmanager
def table(
    sizes_of_files: list[list[int]],
    part_size: int | None = None,
    large_rows: int = LARGE_ROWS,
    windows: WindowsSpec | None = None,
    read: str = "",
) -> Iterator[Dataset]:
    """Files of row groups of these sizes, empty ones among them; all are read, or one of them."""
    with tempfile.TemporaryDirectory() as folder:
        first = 0
        for file, sizes in enumerate(sizes_of_files):
            path = f"{folder}/{file}.parquet"
            rows = [row_of(number) for number in range(first, first + sum(sizes))]
            types = {"row": pa.int64(), "age": pa.float64(), "y": pa.float32()}
            columns = {
                name: pa.array([row[place] for row in rows], kind)
                for place, (name, kind) in enumerate(types.items())
            }
            columns["tags"] = pa.array([row[3] for row in rows], pa.list_(pa.int32()))
            whole = pa.table(columns)
            with pq.ParquetWriter(path, whole.schema) as writer:
                start = 0
                for size in sizes:
                    writer.write_table(whole.slice(start, size), row_group_size=max(size, 1))
                    start += size
            assert pq.read_metadata(path).num_row_groups == len(sizes)
            first += sum(sizes)
        with patch("distrain.loader.dataset.LARGE_ROWS", large_rows):
            paths = f"{folder}/{read}"
            dataset = Dataset(paths, SCHEMA, part_size=part_size, windows=windows)
        yield dataset


def rows_of(batch: Batch) -> list[Row]:
    bounds, values = batch.lists["tags"].offsets.tolist(), batch.lists["tags"].values.tolist()
    flat = (batch[name].tolist() for name in ("row", "age", "y"))
    return [
        (row, age, y, tuple(values[bounds[i] : bounds[i + 1]]))
        for i, (row, age, y) in enumerate(zip(*flat, strict=True))
    ]


def rows_in(steps: Iterable[list[Row]]) -> list[Row]:
    return list(chain.from_iterable(steps))


def loaders(dataset: Dataset, num_ranks: int, **options: Any) -> list[Loader]:
    return [Loader(dataset, rank=rank, num_ranks=num_ranks, **options) for rank in range(num_ranks)]


def global_steps(ranks: list[Loader], steps: int | None = None) -> Steps:
    """The next epoch's global batches, or the first few of them."""
    streams = [iter(loader) for loader in ranks]
    per_rank: list[list[list[Row]]] = []
    for stream in streams:
        taken = [rows_of(batch) for _, batch in zip(range(steps or 10**9), stream, strict=False)]
        per_rank.append(taken)
        stream.close()  # type: ignore[attr-defined]
    assert len({len(batches) for batches in per_rank}) == 1  # every rank takes as many steps
    return [rows_in(parts) for parts in zip(*per_rank, strict=True)]


FILES = st.lists(
    st.lists(st.integers(0, 30), min_size=1, max_size=5), min_size=1, max_size=3
).filter(lambda files: sum(map(sum, files)) > 0)
LANES = st.sampled_from([1, 2, 4, 6, 12])
ORDER = st.fixed_dictionaries(
    {
        "lanes": LANES,
        "shuffle": st.sampled_from(["none", "chunk", "full"]),
        "seed": st.integers(0, 2**40),
        "parts_per_chunk": st.integers(1, 3),
        "global_batch_size": st.integers(1, 40),
    }
)
PART_SIZE = st.sampled_from([None, 400])
LARGE = st.sampled_from([LARGE_ROWS, 8, 20])  # else slices of at most 2, or 5, rows


@settings(deadline=None, max_examples=10)
@given(files=FILES, order=ORDER, part_size=PART_SIZE, large_rows=LARGE)
def test_every_row_comes_once_in_the_same_global_batches_for_any_number_of_ranks(
    files: list[list[int]], order: dict[str, Any], part_size: int | None, large_rows: int
) -> None:
    with table(files, part_size, large_rows) as dataset:
        one = global_steps(loaders(dataset, 1, **order))
        size = order["global_batch_size"]
        num_rows = sum(map(sum, files))
        assert [len(step) for step in one[:-1]] == [size] * (len(one) - 1)
        assert len(one) == -(-num_rows // size)
        assert sorted(rows_in(one)) == [row_of(number) for number in range(num_rows)]
        for num_ranks in range(2, order["lanes"] + 1):
            if order["lanes"] % num_ranks == 0:
                assert global_steps(loaders(dataset, num_ranks, **order)) == one


@settings(deadline=None, max_examples=8)
@given(
    files=FILES, order=ORDER, part_size=PART_SIZE, large_rows=LARGE, percent=st.integers(0, 100),
    data=st.data(),
)  # fmt: skip
def test_a_resumed_stream_equals_the_uninterrupted_one(
    files: list[list[int]], order: dict[str, Any], part_size: int | None, large_rows: int,
    percent: int, data: st.DataObject,
) -> None:  # fmt: skip
    divisors = st.sampled_from([n for n in range(1, 7) if order["lanes"] % n == 0])
    with table(files, part_size, large_rows) as dataset:
        (whole,) = loaders(dataset, 1, **order)
        uninterrupted = global_steps([whole]) + global_steps([whole])
        stop = max(1, whole.num_steps * percent // 100)
        first = loaders(dataset, data.draw(divisors), decode_threads=1, **order)
        found = global_steps(first, stop)
        states = [json.dumps(loader.state_dict()) for loader in first]
        assert len(set(states)) == 1  # any rank's state will do
        second = loaders(dataset, data.draw(divisors), decode_threads=3, **order)
        for loader in second:
            loader.load_state_dict(json.loads(states[0]))
            assert json.dumps(loader.state_dict()) == states[0]
        while len(found) < len(uninterrupted):
            found += global_steps(second)
        assert found == uninterrupted


BY_FILE = WindowsSpec(by="file")


@pytest.mark.slow
@settings(deadline=None, max_examples=10)
@given(files=FILES, order=ORDER, part_size=PART_SIZE, large_rows=LARGE, data=st.data())
def test_windows_are_tables_of_their_own_one_after_another_for_any_number_of_ranks(
    files: list[list[int]], order: dict[str, Any], part_size: int | None, large_rows: int,
    data: st.DataObject,
) -> None:  # fmt: skip
    files = [sizes for sizes in files if sum(sizes)]
    num_ranks = data.draw(st.sampled_from([n for n in range(1, 13) if order["lanes"] % n == 0]))
    expected: list[Steps] = [[], []]
    for number in range(len(files)):
        with table(files, part_size, large_rows, read=f"{number}.parquet") as one:
            alone = loaders(one, 1, **order)
            for epoch in expected:
                epoch += global_steps(alone)
    with table(files, part_size, large_rows, BY_FILE) as dataset:
        ranks = loaders(dataset, num_ranks, **order)
        assert [global_steps(ranks), global_steps(ranks)] == expected
        sizes = [ranks[0].rows_in_step(step) for step in range(ranks[0].num_steps)]
        assert sizes == [len(step) for step in expected[0]]
        stop = data.draw(st.integers(1, ranks[0].num_steps))
        first = loaders(dataset, num_ranks, **order)
        found = global_steps(first, stop)
        (second,) = loaders(dataset, 1, **order)
        second.load_state_dict(json.loads(json.dumps(first[0].state_dict())))
        while len(found) < len(expected[0]):
            found += global_steps([second])
        assert found[: len(expected[0])] == expected[0]


def test_windows_without_a_full_batch_have_no_steps_where_the_last_is_dropped() -> None:
    with table([[4], [25], [3], [10, 1], [2]], windows=BY_FILE) as dataset:
        options: dict[str, Any] = {"lanes": 2, "batch_size": 10, "shuffle": "none"}
        (loader,) = loaders(dataset, 1, drop_last=True, **options)
        found = [sorted(row[0] for row in step) for step in global_steps([loader])]
        assert [len(step) for step in found] == [10, 10, 10]
        assert set(rows_in([found[2]])) <= set(range(32, 43))  # type: ignore[arg-type]
        assert (loader.num_rows, loader.num_steps) == (45, 3)


def test_a_state_of_other_windows_is_refused(wording: Wording) -> None:
    with table([[20], [11]], windows=BY_FILE) as dataset, table([[20], [11]]) as whole:
        (loader,) = loaders(dataset, 1, lanes=1, batch_size=10)
        (other,) = loaders(whole, 1, lanes=1, batch_size=10)
        for mine, others in ((loader, other), (other, loader)):
            wording.refused(SpecError, partial(mine.load_state_dict, others.state_dict()))
