"""Full shuffles through buckets: the batches of one permutation."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from distrain.errors import DataError
from distrain.loader import Dataset, Loader
from distrain.loader.bucketing.bucket_store import BucketMemory
from distrain.loader.bucketing.first_pass import Buckets, bucket_rows_bound
from distrain.loader.partition.epoch_plan import EpochPlan
from distrain.loader.partition.row_order import chunk_order, lane_pieces, row_keys, row_permutation
from distrain.schema import Schema


@pytest.fixture(autouse=True)
def small_buckets() -> Iterator[None]:
    """Some 50 rows a bucket."""
    with patch("distrain.loader.bucketing.first_pass.LEAST_BUCKET_ROWS", 8):
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


@pytest.mark.slow
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
    data=st.data(),
)
def test_every_step_has_the_rows_of_one_permutation(
    write_table: Any, schema: Schema, sizes: list[list[int]], seed: int, epoch: int, batch: int,
    lanes_and_ranks: tuple[int, int], drop_last: bool, threads: int, data: st.DataObject,
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
            **order,
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


def test_errors_name_the_row_and_early_ends_leave_nothing(write_table: Any, schema: Schema) -> None:
    options: dict[str, Any] = {"batch_size": 10, "lanes": 1, "shuffle": "full"}
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


def test_rows_that_do_not_fit_are_an_error_with_a_way_out() -> None:
    with pytest.raises(MemoryError, match=r"full shuffle: use more memory, .*parts_per_chunk"):
        BucketMemory({0: 2**50}, 6)


def test_the_bound_of_memory_has_a_stored_copy_of_the_rows(
    write_table: Any, schema: Schema
) -> None:
    dataset = Dataset(write_table([[30, 50, 20]]), schema)
    memory = Loader(dataset, lanes=1, batch_size=10, shuffle="full").memory
    assert memory.buckets_bytes == 100 * 4 * 8
    names = ("blocks", "decode", "order", "schedule", "streams", "buckets")
    assert memory.total_bytes == sum(getattr(memory, f"{name}_bytes") for name in names)
