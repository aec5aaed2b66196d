"""Full shuffles through buckets: the batches of one permutation, from memory and from a file."""

import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from wording import Wording

from distrain.errors import DataError, OutputError, SpecError
from distrain.loader import Dataset, Loader
from distrain.loader.bucketing.bucket_file import BucketFile
from distrain.loader.bucketing.first_pass import Buckets, bucket_rows_bound
from distrain.loader.partition.epoch_plan import EpochPlan
from distrain.loader.partition.row_order import chunk_order, lane_pieces, row_keys, row_permutation
from distrain.schema import ColumnSchema, Schema, Tags


@pytest.fixture(autouse=True)
def small_buckets() -> Iterator[None]:
    """Some 50 rows a bucket, and of a file's segments 7."""
    with (
        patch("distrain.loader.bucketing.first_pass.LEAST_BUCKET_ROWS", 8),
        patch("distrain.loader.bucketing.bucket_store._SEGMENT_BYTES", 7 * 32),
        patch("distrain.loader.bucketing.bucket_store._LEAST_SEGMENT_BYTES", 7 * 32),
    ):
        yield


def expected_rows(rows: int, seed: int, epoch: int, **options: Any) -> list[list[int]]:
    """The rows of each global step, from the permutation of the whole table."""
    plan = EpochPlan(rows, options["lanes"], options["global_batch_size"], options["drop_last"])
    line = row_permutation(rows, seed, epoch, 0)
    chunks = chunk_order([rows], seed, epoch, "full")
    lanes = [
        np.concatenate(
            [line[p.start : p.stop] for p in lane_pieces(plan, chunks, lane)] or [line[:0]]
        )
        for lane in range(plan.lanes)
    ]
    steps = []
    for step in range(plan.num_steps):
        of_lanes = []
        for lane, taken in enumerate(lanes):
            start, stop = (plan.lane_rows_before(lane, at) for at in (step, step + 1))
            of_lanes.append(taken[start:stop])
        steps.append(np.concatenate(of_lanes).tolist())
    return steps


@settings(
    deadline=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    sizes=st.lists(
        st.lists(st.integers(0, 90), min_size=1, max_size=5), min_size=1, max_size=3
    ).filter(lambda files: sum(map(sum, files)) > 60),
    seed=st.integers(0, 3),
    epoch=st.integers(0, 2),
    batch=st.integers(1, 60),
    lanes_and_ranks=st.sampled_from([(1, 1), (4, 2), (6, 3), (24, 1)]),
    drop_last=st.booleans(),
    threads=st.sampled_from([1, 3]),
    in_file=st.booleans(),
    data=st.data(),
)
def test_every_step_has_the_rows_of_one_permutation(
    write_table: Any, schema: Schema, tmp_path: Path, sizes: list[list[int]], seed: int, epoch: int,
    batch: int, lanes_and_ranks: tuple[int, int], drop_last: bool, threads: int, in_file: bool,
    data: st.DataObject,
) -> None:  # fmt: skip
    folder = Path(write_table(sizes))
    dataset = Dataset([folder / f"part_{number}.parquet" for number in range(len(sizes))], schema)
    lanes, ranks = lanes_and_ranks
    order = {"lanes": lanes, "global_batch_size": batch, "drop_last": drop_last}
    expected = expected_rows(len(dataset), seed, epoch, **order)
    start = data.draw(st.integers(0, len(expected)))
    found: list[list[int]] = [[] for _ in expected[start:]]
    for rank in range(ranks):
        loader = Loader(
            dataset, shuffle="full", seed=seed, rank=rank, num_ranks=ranks, decode_threads=threads,
            shuffle_dir=str(tmp_path / "shuffle") if in_file else None, **order,
        )  # fmt: skip
        with loader, loader.epoch(epoch, start_step=start) as batches:
            for rows, one in zip(found, batches, strict=True):
                numbers = one["C3"].numpy()
                rows += numbers.tolist()
                assert (one["C1"].numpy() == 2**24 + 2 * numbers + 1).all()
                assert (one["I1"].numpy() == numbers.astype(np.float32) / 7).all()
                assert (one["I2"].numpy() == -numbers.astype(np.float32)).all()
                assert (one.label.numpy() == (numbers % 3 == 0)).all()
    assert found == expected[start:]
    if in_file and (tmp_path / "shuffle").exists():
        assert os.listdir(tmp_path / "shuffle") == []


@given(rows=st.integers(1, 400), seed=st.integers(0, 9), epoch=st.integers(0, 9), data=st.data())
def test_buckets_cut_the_line(rows: int, seed: int, epoch: int, data: st.DataObject) -> None:
    keys = row_keys(rows, seed, epoch, 0, rows)
    buckets = Buckets(rows, seed, epoch, data.draw(st.integers(1, 30)))
    numbers = buckets.numbers(keys)
    assert (np.diff(numbers[np.argsort(keys)].astype(np.int64)) >= 0).all()
    assert (
        np.bincount(numbers.astype(int), minlength=buckets.count).tolist()
        == buckets.sizes().tolist()
    )
    plan = EpochPlan(rows, lanes=3, global_batch_size=7)
    chunks = buckets.chunks(buckets.sizes(), plan)
    assert sum(chunk.num_rows for chunk in chunks) == buckets.expected_sizes().sum() == rows


def test_no_bucket_exceeds_its_bound() -> None:
    for rows in (1_000, 20_000, 300_000):
        for seed in range(5):
            assert Buckets.of(rows, seed, 0).sizes().max() <= bucket_rows_bound(rows)


@pytest.mark.parametrize("nameless", [True, False], ids=["O_TMPFILE", "unlinked"])
def test_a_file_is_reserved_at_once_and_leaves_no_name(
    tmp_path: Path, nameless: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not nameless:  # as a filesystem answers that has no such files
        monkeypatch.setattr(tempfile, "_O_TMPFILE_WORKS", False)
    store = BucketFile({0: 5, 3: 20}, 6, str(tmp_path / "new"))
    assert os.fstat(store._file.fileno()).st_size == 25 * 4 * 8
    assert os.listdir(tmp_path / "new") == []
    columns = np.arange(6 * 20, dtype=np.int32).reshape(6, 20)
    for first, count in ((0, 3), (3, 11), (14, 6)):
        runs = store.reserve([3], [count])
        for run in runs:
            rows = slice(first, first + run.rows)
            run.segment.block[:, run.start : run.start + run.rows] = columns[:, rows]
            run.segment.keys[run.start : run.start + run.rows] = np.arange(20)[rows] + 2**60
            first += run.rows
        store.commit(runs)
    assert (store.columns(3) == columns).all()
    assert (store.keys(3) == np.arange(20) + 2**60).all()
    store.close()


def test_too_little_room_is_told_before_anything_is_read(
    write_table: Any,
    schema: Schema,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wording: Wording,
) -> None:
    monkeypatch.setattr(
        os, "posix_fallocate", Mock(side_effect=OSError(28, "No space left on device"))
    )
    dataset = Dataset(write_table([[70, 60]]), schema)
    with Loader(
        dataset, batch_size=10, lanes=1, shuffle="full", shuffle_dir=str(tmp_path / "s")
    ) as loader:
        with loader.epoch(0) as batches:
            wording.refused(OutputError, lambda: next(batches), folder=str(tmp_path / "s"))
        assert loader.stats.row_groups == 0


def test_a_disk_that_cannot_be_read_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    store = BucketFile({0: 5}, 6, str(tmp_path))
    monkeypatch.setattr(os, "preadv", Mock(side_effect=OSError(errno.EIO, "Input/output error")))
    wording.refused(OutputError, lambda: store.keys(0))
    monkeypatch.undo()
    os.ftruncate(store._file.fileno(), 40)
    wording.refused(OutputError, lambda: store.columns(0))
    store.close()


@pytest.mark.parametrize("in_file", [False, True])
def test_errors_and_early_ends_release_everything(
    write_table: Any, schema: Schema, tmp_path: Path, in_file: bool
) -> None:
    options: dict[str, Any] = {"batch_size": 10, "lanes": 1, "shuffle": "full"}
    options["shuffle_dir"] = str(tmp_path / "shuffle") if in_file else None
    dataset = Dataset(write_table([[70] * 5]), schema)
    with Loader(dataset, **options) as loader:
        for steps in (0, 1, 12):
            with loader.epoch(0) as batches:
                for _ in range(steps):
                    next(batches)
    bad = np.arange(350) % 1000
    bad[299] = 2000
    dataset = Dataset(write_table([[70] * 5], C2=bad), schema)
    with (
        Loader(dataset, **options) as loader,
        loader.epoch(0) as batches,
        pytest.raises(DataError) as caught,
    ):
        next(batches)
    assert caught.value.where["row group"] == 4
    assert caught.value.where["row in the group"] == 19
    links = [os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    assert not [link for link in links if "shuffle" in link]


def test_lists_are_refused_with_a_folder(tmp_path: Path, wording: Wording) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"label": [0, 1], "tags": [[1], [2]]}), tmp_path / "a.parquet")
    tags = ColumnSchema("tags", tags=(Tags.CATEGORICAL,), is_list=True)
    dataset = Dataset(
        tmp_path / "a.parquet", Schema((ColumnSchema("label", tags=(Tags.TARGET,)), tags))
    )
    wording.refused(
        SpecError,
        lambda: Loader(dataset, batch_size=1, lanes=1, shuffle="full", shuffle_dir=str(tmp_path)),
    )


def test_memory_of_a_file_does_not_grow_with_the_table(write_table: Any, schema: Schema) -> None:
    options: dict[str, Any] = {"lanes": 1, "batch_size": 10, "shuffle": "full"}
    dataset = Dataset(write_table([[30, 50, 20]]), schema)
    in_memory = Loader(dataset, **options).memory
    in_file = Loader(dataset, shuffle_dir="/nowhere", **options).memory
    assert in_memory.buckets_bytes == in_file.disk_bytes == 100 * 4 * 8
    assert in_memory.disk_bytes == 0
    assert in_memory.total_bytes == replace_sum(in_memory)
    assert in_file.total_bytes == replace_sum(in_file)


def replace_sum(memory: Any) -> int:
    names = ("blocks", "decode", "order", "schedule", "streams", "buckets")
    return sum(getattr(memory, f"{name}_bytes") for name in names)
