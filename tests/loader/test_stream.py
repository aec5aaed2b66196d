"""The stream of batches against a naive oracle."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st
from same_batches import assert_same, bits, rows_of, tensors_of
from wording import Wording

from distrain.jobs.assignment import World
from distrain.loader import Dataset, Loader
from distrain.loader.batch import Batch
from distrain.loader.partition.epoch_plan import EpochPlan
from distrain.loader.partition.footers import read_footers
from distrain.loader.partition.row_order import Chunk, chunk_order, row_permutation
from distrain.loader.partition.table import Table
from distrain.schema import Schema

SIZES = [[40, 31, 7], [64], [1, 50, 33]]


def make_loader(
    table: Table,
    schema: Schema,
    *,
    world: World | None = None,
    need_label: bool = True,
    **options: Any,
) -> Loader:
    world = world or World()
    dataset = Dataset.of(table, schema, need_label=need_label)
    options = {"global_batch_size": 32, "lanes": 12, **options}
    return Loader(dataset, rank=world.rank, num_ranks=world.num_ranks, **options)


def stream(
    table: Table, schema: Schema, epoch: int = 0, start_step: int = 0, **options: Any
) -> list[Batch]:
    loader = make_loader(table, schema, **options)
    with loader.epoch(epoch, start_step=start_step) as batches:
        return list(batches)


def lane_rows(plan: EpochPlan, chunks: Sequence[Chunk], lane: int, step: int) -> list[int]:
    """The rows on the line that a lane gives in a step: odd lanes take their chunks backwards."""
    start, stop = plan.lane_span(lane)
    pieces = [
        [row for row in range(chunk.start, chunk.start + chunk.num_rows) if start <= row < stop]
        for chunk in (chunks[::-1] if lane % 2 else chunks)
    ]
    order = [row for piece in pieces for row in piece]
    return order[plan.lane_rows_before(lane, step) : plan.lane_rows_before(lane, step + 1)]


def oracle(table: Table, schema: Schema, epoch: int, **options: Any) -> list[list[np.ndarray]]:
    """Each step's rows as the columns of one float64 array, from the whole table in memory."""
    names = [*schema.categorical.names, *schema.continuous.names, "label"]
    groups = [
        np.stack(
            [
                column.to_numpy().astype(np.float64)
                for column in pq.ParquetFile(g.file).read_row_group(g.index).select(names).columns
            ]
        )
        for g in table.row_groups
    ]
    shuffle, seed = options["shuffle"], options["seed"]
    sizes = [group.num_rows for group in table.row_groups]
    line = []
    parts = options["parts_per_chunk"] if shuffle == "chunk" else 1
    chunks = chunk_order(sizes, seed, epoch, shuffle, parts)
    for number, chunk in enumerate(chunks):
        rows = np.concatenate([groups[g] for g in chunk.row_groups], axis=1)
        if shuffle != "none":
            rows = rows[:, row_permutation(chunk.num_rows, seed, epoch, number)]
        line.append(rows)
    whole = np.concatenate(line, axis=1)
    plan = EpochPlan(
        table.num_rows, options["lanes"], options["global_batch_size"], options["drop_last"]
    )
    return [
        [whole[:, lane_rows(plan, chunks, lane, step)] for lane in range(plan.lanes)]
        for step in range(plan.num_steps)
    ]


@settings(
    deadline=None,
    max_examples=20,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    sizes=st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=4), min_size=1, max_size=3),
    lanes=st.sampled_from([1, 2, 6, 12, 24]),
    batch_size=st.integers(1, 90),
    parts=st.integers(1, 4),
    shuffle=st.sampled_from(["chunk", "full", "none"]),
    drop_last=st.booleans(),
    decode_threads=st.sampled_from([1, 2, 3]),
    seed=st.integers(0, 2**40),
    start=st.integers(0, 100),
    data=st.data(),
)
def test_the_stream_equals_the_naive_oracle(
    write_table: Any, schema: Schema, sizes: list[list[int]], lanes: int, batch_size: int,
    parts: int, shuffle: str, drop_last: bool, decode_threads: int, seed: int, start: int,
    data: st.DataObject,
) -> None:  # fmt: skip
    folder = Path(write_table(sizes))
    files = [str(folder / f"part_{number}.parquet") for number in range(len(sizes))]
    table = read_footers(files, schema)
    options: dict[str, Any] = {
        "lanes": lanes, "global_batch_size": min(batch_size, table.num_rows), "shuffle": shuffle,
        "drop_last": drop_last, "seed": seed, "parts_per_chunk": parts,
    }  # fmt: skip
    expected = oracle(table, schema, 5, **options)
    start_step = len(expected) * start // 100
    allowed = [n for n in range(1, lanes + 1) if lanes % n == 0]
    num_ranks = data.draw(st.sampled_from(allowed))
    per_rank = lanes // num_ranks
    for rank in {0, num_ranks - 1}:
        found = stream(
            table, schema, 5, start_step, world=World(rank, num_ranks),
            decode_threads=decode_threads, **options,
        )  # fmt: skip
        assert len(found) == len(expected) - start_step
        for batch, step in zip(found, expected[start_step:], strict=True):
            mine = np.concatenate(step[rank * per_rank : (rank + 1) * per_rank], axis=1)
            assert np.array_equal(batch.categorical.numpy().T, mine[:3].astype(np.int32))
            assert np.array_equal(batch.continuous.numpy().T, mine[3:5].astype(np.float32))
            assert batch.label is not None
            assert np.array_equal(batch.label.numpy(), mine[5].astype(np.float32))


@pytest.fixture
def table(write_table: Any, schema: Schema) -> Table:
    return read_footers(write_table(SIZES), schema)


def test_columns_are_contiguous_and_batches_belong_to_the_consumer(
    table: Table, schema: Schema
) -> None:
    with make_loader(table, schema, lanes=24).epoch(0) as batches:
        batch = next(batches)
    assert batch.categorical.shape == (32, 3)
    assert batch.categorical[:, 1].is_contiguous()
    assert batch.continuous.t().is_contiguous()
    batch.categorical.add_(1)


def test_a_loader_serves_many_epochs_even_at_a_time(table: Table, schema: Schema) -> None:
    loader = make_loader(table, schema, lanes=24)
    with loader.epoch(0) as first, loader.epoch(0) as second:
        pairs = list(zip(first, second, strict=True))
    assert len(pairs) == 8
    assert_same(*zip(*pairs, strict=True))


@pytest.mark.parametrize("batch_size", [30, 1000])  # 8 steps an epoch, or one
@pytest.mark.parametrize("shuffle", ["chunk", "full"])
def test_epochs_in_turn_are_the_epochs_and_nothing_is_read_for_other_steps(
    table: Table, schema: Schema, batch_size: int, shuffle: str
) -> None:
    with make_loader(table, schema, global_batch_size=batch_size, shuffle=shuffle) as loader:
        expected = [batch for epoch in range(4) for batch in loader.epoch(epoch)]
        for first, end in [(0, 4), (1, 4), (3, 3), (4, 27)]:
            steps = range(min(first, len(expected)), min(end, len(expected)))
            rows_before = loader.stats.rows
            with loader.in_turn(steps) as batches:
                found = tensors_of(list(batches))
            wanted = tensors_of(expected[steps.start : steps.stop])
            assert [*map(bits, found)] == [*map(bits, wanted)]
            rows = sum(batch.num_rows for batch in expected[steps.start : steps.stop])
            assert loader.stats.rows - rows_before == rows
    with make_loader(table, schema, global_batch_size=1, lanes=1, shuffle="none") as loader:
        with loader.in_turn(range(5)) as batches:
            assert len(list(batches)) == 5
        assert loader.stats.row_groups == 1


def test_a_late_start_does_not_read_what_precedes(table: Table, schema: Schema) -> None:
    Path(table.row_groups[0].file).unlink()
    options = {"lanes": 1, "shuffle": "none", "parts_per_chunk": 1}
    last = stream(table, schema, 0, 6, **options)
    assert [row for batch in last for row in rows_of(batch)] == list(range(192, 226))


def test_an_epoch_or_step_outside_the_table_is_refused(
    table: Table, schema: Schema, wording: Wording
) -> None:
    loader = make_loader(table, schema, lanes=24)
    wording.refused(ValueError, lambda: loader.epoch(-1))
    wording.refused(ValueError, lambda: loader.epoch(0, start_step=9))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")
def test_pinned_batches_are_the_same(table: Table, schema: Schema) -> None:
    pinned = stream(table, schema, pin_memory=True)
    assert all(batch.categorical.is_pinned() and batch.continuous.is_pinned() for batch in pinned)
    assert_same(pinned, stream(table, schema))


def test_pinning_is_ignored_without_a_gpu(
    table: Table, schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert_same(stream(table, schema, pin_memory=True), stream(table, schema))
