"""The stream of batches against a naive oracle."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st

from distrain.batch import Batch
from distrain.errors import SpecError
from distrain.jobs import World
from distrain.loader import Dataset, Loader
from distrain.partition import Chunk, EpochPlan, Table, chunk_order, read_footers, row_permutation
from distrain.schema import Schema, Tags

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


def rows_of(batch: Batch) -> list[int]:
    return batch["C3"].tolist()


def same(left: Sequence[Batch], right: Sequence[Batch]) -> bool:
    def equal(a: torch.Tensor | None, b: torch.Tensor | None) -> bool:
        return (a is None and b is None) or (
            a is not None and b is not None and a.dtype == b.dtype and torch.equal(a, b)
        )

    return len(left) == len(right) and all(
        equal(a.categorical, b.categorical)
        and equal(a.continuous, b.continuous)
        and equal(a.label, b.label)
        for a, b in zip(left, right, strict=True)
    )


def lane_rows(plan: EpochPlan, chunks: Sequence[Chunk], lane: int, step: int) -> list[int]:
    """The rows on the line that a lane gives in a step: odd lanes take their chunks backwards."""
    start, stop = plan.lane_span(lane)
    pieces = [
        [row for row in range(chunk.start, chunk.start + chunk.num_rows) if start <= row < stop]
        for chunk in (chunks[::-1] if lane % 2 else chunks)
    ]
    order = [row for piece in pieces for row in piece]
    first, last = plan.lane_slice(lane, step)
    return order[first - start : last - start]


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


def test_shapes_types_and_layout(table: Table, schema: Schema) -> None:
    loader = make_loader(table, schema, lanes=24)
    assert (loader.num_rows, loader.num_steps) == (226, 8)
    assert [loader.rows_in_step(step) for step in range(8)] == [32] * 7 + [2]
    with loader.epoch(0) as batches:
        batch = next(batches)
    assert batch.categorical.shape == (32, 3)
    assert batch.continuous.shape == (32, 2)
    assert batch.label is not None
    assert batch.label.shape == (32,)
    assert batch.categorical.dtype == torch.int32
    assert batch.continuous.dtype == batch.label.dtype == torch.float32
    assert batch.categorical_names == ("C1", "C2", "C3")
    assert batch.continuous_names == ("I1", "I2")
    assert batch.categorical[:, 1].is_contiguous()
    assert batch.continuous.t().is_contiguous()
    batch.categorical.add_(1)  # batches belong to the consumer


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4])
def test_the_global_batches_are_the_same_for_any_number_of_ranks(
    table: Table, schema: Schema, num_ranks: int
) -> None:
    whole = stream(table, schema)
    ranks = [stream(table, schema, world=World(rank, num_ranks)) for rank in range(num_ranks)]
    assert all(len(batches) == len(whole) for batches in ranks)
    for step, batch in enumerate(whole):
        parts = [batches[step] for batches in ranks]
        assert torch.equal(torch.cat([p.categorical for p in parts]), batch.categorical)
        assert torch.equal(torch.cat([p.continuous for p in parts]), batch.continuous)
        assert torch.equal(torch.cat([p.label for p in parts]), batch.label)  # type: ignore[misc]


def test_each_row_comes_once_an_epoch_in_another_order_each_time(
    table: Table, schema: Schema
) -> None:
    orders = [
        [row for batch in stream(table, schema, epoch, seed=seed) for row in rows_of(batch)]
        for epoch, seed in ((0, 0), (1, 0), (0, 1))
    ]
    assert all(sorted(order) == list(range(226)) for order in orders)
    assert orders[0] != orders[1]
    assert orders[0] != orders[2]
    assert same(stream(table, schema, 1), stream(table, schema, 1))


def test_a_loader_serves_many_epochs_even_at_a_time(table: Table, schema: Schema) -> None:
    loader = make_loader(table, schema, lanes=24)
    with loader.epoch(0) as first, loader.epoch(0) as second:
        pairs = list(zip(first, second, strict=True))
    assert len(pairs) == 8
    assert all(same([a], [b]) for a, b in pairs)


@pytest.mark.parametrize("decode_threads", [2, 4])
def test_decoding_threads_leave_the_stream_as_it_is(
    table: Table, schema: Schema, decode_threads: int
) -> None:
    assert same(stream(table, schema), stream(table, schema, decode_threads=decode_threads))


def test_a_start_in_the_middle_gives_the_tail(table: Table, schema: Schema) -> None:
    whole = stream(table, schema, 3)
    for start_step in range(len(whole) + 1):
        assert same(whole[start_step:], stream(table, schema, 3, start_step))


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
                assert same(list(batches), expected[steps.start : steps.stop])
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


def test_one_lane_without_shuffle_reads_files_in_order_and_needs_no_label(
    write_table: Any, schema: Schema
) -> None:
    write = write_table
    folder = Path(write(SIZES))
    columns = pq.read_table(folder / "part_0.parquet").drop_columns(["label"])
    pq.write_table(columns, folder / "part_0.parquet", row_group_size=40)
    table = read_footers(str(folder), schema, need_label=False)
    batches = stream(table, schema, need_label=False, shuffle="none", lanes=1)
    assert all(batch.label is None for batch in batches)
    assert [row for batch in batches for row in rows_of(batch)] == list(range(226))


def test_ids_that_float32_cannot_hold_survive(table: Table, schema: Schema) -> None:
    for batch in stream(table, schema):
        assert torch.equal(batch["C1"], 2**24 + 2 * batch["C3"] + 1)


@pytest.mark.parametrize("kept", [Tags.CATEGORICAL, Tags.CONTINUOUS])
def test_tables_of_one_kind_of_column(table: Table, schema: Schema, kept: str) -> None:
    narrow = schema.select_by_tag(kept, Tags.TARGET)
    wide = stream(table, schema)
    for batch, full in zip(stream(table, narrow), wide, strict=True):
        if kept == Tags.CATEGORICAL:
            assert batch.continuous.shape == (full.num_rows, 0)
            assert torch.equal(batch.categorical, full.categorical)
        else:
            assert batch.categorical.shape == (full.num_rows, 0)
            assert torch.equal(batch.continuous, full.continuous)
        assert batch.num_rows == full.num_rows


def test_a_rank_may_have_no_rows_in_the_last_step(table: Table, schema: Schema) -> None:
    batches = stream(table, schema, world=World(0, 4), global_batch_size=75)
    assert [batch.num_rows for batch in batches] == [21, 18, 18, 0]
    assert batches[-1].categorical.shape == (0, 3)
    assert batches[-1].continuous.shape == (0, 2)
    assert batches[-1].label is not None
    assert batches[-1].label.shape == (0,)


def test_drop_last_leaves_out_a_short_last_step(table: Table, schema: Schema) -> None:
    batches = stream(table, schema, drop_last=True)
    assert [batch.num_rows for batch in batches] == [32] * 7
    assert same(batches, stream(table, schema)[:7])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"global_batch_size": 227, "drop_last": True}, "226 rows do not fill one global batch"),
        ({"global_batch_size": 0}, "global_batch_size is 0"),
        ({"lanes": 0}, "lanes is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"shuffle": "all"}, "unknown shuffle 'all'"),
        ({"parts_per_chunk": 0}, "parts_per_chunk is 0"),
        ({"prefetch_batches": 0}, "prefetch_batches is 0"),
        ({"decode_threads": 0}, "decode_threads is 0"),
        ({"world": World(0, 5)}, "5 ranks cannot share 12 lanes"),
    ],
)
def test_unusable_options_are_refused(
    table: Table, schema: Schema, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        make_loader(table, schema, **options)


def test_an_epoch_or_step_outside_the_table_is_refused(table: Table, schema: Schema) -> None:
    loader = make_loader(table, schema, lanes=24)
    with pytest.raises(ValueError, match="epoch is -1"):
        loader.epoch(-1)
    with pytest.raises(ValueError, match=r"start_step 9 is not in 0\.\.8"):
        loader.epoch(0, start_step=9)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")
def test_pinned_batches_are_the_same(table: Table, schema: Schema) -> None:
    pinned = stream(table, schema, pin_memory=True)
    assert all(batch.categorical.is_pinned() and batch.continuous.is_pinned() for batch in pinned)
    assert same(pinned, stream(table, schema))


def test_pinning_is_ignored_without_a_gpu(
    table: Table, schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert same(stream(table, schema, pin_memory=True), stream(table, schema))
