"""Which chunks a rank loads when, and how many row groups are open meanwhile."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from distrain.loader import Dataset, Loader
from distrain.loader.filling.schedule import (
    Load,
    LoadSteps,
    LookAhead,
    lane_groups_of,
    open_groups,
)
from distrain.loader.partition.epoch_plan import EpochPlan
from distrain.loader.partition.row_order import Piece
from distrain.loader.partition.slice_dealing import num_lane_groups
from distrain.schema import Schema


def test_a_rank_has_the_large_row_groups_of_its_bands_open(
    write_table: Any, schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distrain.loader.dataset.LARGE_ROWS", 24)  # slices of 6 rows

    def opened(sizes: list[int], num_ranks: int, **options: Any) -> list[int]:
        dataset = Dataset(write_table([sizes]), schema)
        loaders = [
            Loader(dataset, global_batch_size=24, rank=rank, num_ranks=num_ranks, **options)
            for rank in range(num_ranks)
        ]
        bands = num_lane_groups(24) if loaders[0].options.shuffle == "chunk" else 1
        assert {lane_groups_of(loader.options) for loader in loaders} == {bands}
        return [open_groups(dataset, loader.options) for loader in loaders]

    lanes_of_a_band = 24 // num_lane_groups(24)
    assert lanes_of_a_band == 3
    for num_ranks in (1, 2, 3, 4, 6, 8, 12, 24):
        ranks = np.split(np.arange(24), num_ranks)
        bands = [len(set((lanes // lanes_of_a_band).tolist())) for lanes in ranks]
        assert opened([30] * 40, num_ranks) == bands
        assert opened([30] * 40, num_ranks, parts_per_chunk=3) == [3 * n for n in bands]
        assert opened([5, 30] * 3, num_ranks) == [min(3, n) for n in bands]
        assert opened([30] * 9, num_ranks, shuffle="none") == [1] * num_ranks
        assert opened([24] * 9, num_ranks) == [0] * num_ranks


def test_the_steps_of_a_load_are_those_of_its_pieces() -> None:
    plan = EpochPlan(100, 2, 10)
    load = Load(step=2, chunk=0, pieces=(Piece(0, 0, 0, 7, 10), Piece(1, 0, 7, 20, 11)))
    assert LoadSteps.of(plan, load, open_steps=5) == (2, 4, 5, 0)  # rows 11 to 23 of lane 1
    assert LoadSteps.of(plan, load, open_steps=5, begin=30) == (32, 34, 5, 30)


@given(
    sizes=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans()), max_size=12),
    most=st.integers(1, 3),
    open_steps=st.integers(1, 5),
)
def test_a_load_begins_early_if_few_are_ahead_and_its_batches_may_be_open(
    sizes: list[tuple[int, int, bool]], most: int, open_steps: int
) -> None:
    ahead, step, first, begin = LookAhead(most), 0, 0, 0
    begun: list[int] = []
    for gap, length, is_next_epoch in sizes:
        first += gap
        begin = first if is_next_epoch else begin
        load = LoadSteps(first, first + length, open_steps, begin)
        while not ahead.may_begin(load, step):
            assert step < first, "what is needed begins"
            is_late = first + length >= step + open_steps
            waiting = sum(one > step for one in begun)
            assert is_late or (waiting >= most and step >= begin)
            step += 1
        if step < first:
            assert first + length < step + open_steps
            assert sum(one > step for one in begun) < most or step < begin
        begun.append(first)
