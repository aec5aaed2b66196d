"""Slices of large row groups, and how they are dealt to lanes."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from distrain.loader.partition.epoch_plan import EpochPlan
from distrain.loader.partition.row_order import chunk_order, lane_pieces, sliced_order
from distrain.loader.partition.slice_dealing import deal_runs, num_lane_groups
from distrain.loader.partition.slices import Slices, slice_sizes
from distrain.loader.partition.table import RowGroup, RowGroups

sizes_of_groups = st.lists(st.integers(1, 90), min_size=1, max_size=12)


@settings(deadline=None, max_examples=40)
@given(sizes=sizes_of_groups, large=st.integers(1, 60))
def test_slices_are_the_rows_of_large_row_groups_in_order(sizes: list[int], large: int) -> None:
    groups = [RowGroup("a", number, rows) for number, rows in enumerate(sizes)]
    slices = Slices(RowGroups(groups), large)
    found: dict[int, list[int]] = {}
    for one, rows in zip(slices, slices.rows.tolist(), strict=True):
        assert one.num_rows == rows > 0
        assert one.group_rows == sizes[one.index]
        found.setdefault(one.index, []).extend(range(one.first_row, one.first_row + rows))
        if sizes[one.index] <= large:
            assert one == groups[one.index]
        else:
            assert one.num_rows <= max(1, large // 4)
            assert one.slice is not None
            last = one.first_row + one.num_rows == one.group_rows
            assert one.num_rows == one.slice.slice_rows or last
    assert found == {number: list(range(rows)) for number, rows in enumerate(sizes)}
    assert slices.any_large == (max(sizes) > large)


@settings(deadline=None, max_examples=40)
@given(sizes=sizes_of_groups, large=st.integers(1, 60), seed=st.integers(0, 99))
def test_no_more_rows_are_read_at_a_time_than_counted(
    sizes: list[int], large: int, seed: int
) -> None:
    draw = np.random.default_rng(seed)
    masks = [draw.random(rows) < draw.choice([0.3, 1.0]) for rows in sizes]
    groups = [RowGroup("a", n, len(mask)).taking(mask) for n, mask in enumerate(masks)]
    slices = Slices(RowGroups(group for group in groups if group), large)
    reads = [
        one.row_in_file(one.num_rows - 1) + 1 - one.row_in_file(0) if one.slice else one.group_rows
        for one in slices
    ]
    assert not reads or slices.most_read == max(reads)


def test_how_many_slices_there_are_depends_on_the_rows_alone() -> None:
    rows = np.array([131_072, 131_073, 250_000, 1_000_000, 1_048_576])
    assert slice_sizes(rows).tolist() == [131_072, 26_215, 31_250, 32_259, 32_768]
    assert slice_sizes(rows[::-1])[::-1].tolist() == slice_sizes(rows).tolist()


@settings(deadline=None, max_examples=30)
@given(
    runs=st.lists(st.lists(st.integers(1, 20), min_size=1, max_size=9), min_size=1, max_size=9),
    lanes=st.integers(1, 30),
)
def test_each_row_is_dealt_once_and_runs_are_gone_through_in_order(
    runs: list[list[int]], lanes: int
) -> None:
    plan = EpochPlan(sum(map(sum, runs)), lanes, 7)
    capacities = [plan.lane_rows_before(lane, plan.num_steps) for lane in range(lanes)]
    begun, cells = deal_runs(runs, capacities, num_lane_groups(lanes))
    assert sorted(begun) == [(r, c) for r, run in enumerate(runs) for c in range(len(run))]
    dealt: Counter[tuple[int, int]] = Counter()
    given_by: Counter[int] = Counter()
    first_time = [10**9] * len(begun)  # in rows of the epoch
    for lane, chunk, start, stop, offset in cells.tolist():
        assert start < stop
        assert offset == given_by[lane]
        given_by[lane] += stop - start
        dealt.update((chunk, row) for row in range(start, stop))
        first_time[chunk] = min(first_time[chunk], offset * lanes + lane)
    assert [given_by[lane] for lane in range(lanes)] == capacities
    rows = {(n, row) for n, (r, c) in enumerate(begun) for row in range(runs[r][c])}
    assert dealt == Counter(dict.fromkeys(rows, 1))
    # So a decoder that has come to a slice is never asked for one before it.
    assert first_time == sorted(first_time)
    for run in range(len(runs)):
        chunks = [chunk for number, chunk in begun if number == run]
        assert chunks == sorted(chunks)


def test_a_band_stays_in_its_run_and_few_runs_are_open() -> None:
    runs = [[10] * 20] * 40
    begun, cells = deal_runs(runs, [8000 // 12] * 8 + [8000 // 12 + 1] * 4, 4)
    runs_of_lanes: dict[int, set[int]] = {}
    for lane, chunk, *_ in cells.tolist():
        runs_of_lanes.setdefault(lane // 3, set()).add(begun[chunk][0])
    shared = Counter(run for found in runs_of_lanes.values() for run in found)
    assert sum(count > 1 for count in shared.values()) <= 4, "bands join at the end only"
    places = [[at for at, (run, _) in enumerate(begun) if run == number] for number in range(40)]
    is_open = np.zeros(len(begun), int)
    for found in places:
        is_open[found[0] : found[-1] + 1] += 1
    assert is_open.max() == 4


@pytest.mark.parametrize("lanes", [6, 7])
def test_the_two_lanes_of_each_pair_share_their_first_chunk(lanes: int) -> None:
    _, cells = deal_runs([[60] * 10] * lanes, [600] * lanes, num_lane_groups(lanes))
    first = {lane: chunk for lane, chunk, _, _, offset in cells.tolist() if offset == 0}
    assert all(first[lane] == first[lane + 1] for lane in range(0, lanes - 1, 2))


def test_lanes_come_to_new_chunks_at_different_times() -> None:
    _, cells = deal_runs([[100] * 80] * 6, [2000] * 24, 8)
    later = cells[(cells[:, 4] > 200) & (cells[:, 4] < 1700), 4] % 100
    per_tenth = np.bincount(later // 10, minlength=10)
    assert per_tenth.min() > 0
    assert per_tenth.max() < 2.5 * per_tenth.mean()


@settings(deadline=None, max_examples=20)
@given(
    sizes=sizes_of_groups,
    large=st.integers(1, 60),
    lanes=st.integers(1, 12),
    parts=st.integers(1, 3),
    shuffle=st.sampled_from(["none", "chunk"]),
)
def test_the_chunks_of_slices_hold_the_rows_of_the_chunks_of_row_groups(
    sizes: list[int], large: int, lanes: int, parts: int, shuffle: str
) -> None:
    slices = Slices(RowGroups(RowGroup("a", n, rows) for n, rows in enumerate(sizes)), large)
    plan = EpochPlan(sum(sizes), lanes, 7)
    capacities = [plan.lane_rows_before(lane, plan.num_steps) for lane in range(lanes)]
    whole = chunk_order(sizes, 3, 1, shuffle, parts)
    chunks = sliced_order(whole, slices, capacities, num_lane_groups(lanes))
    assert sorted(n for chunk in chunks for n in chunk.row_groups) == list(range(len(slices)))
    together = [set(chunk.row_groups) for chunk in whole]
    for chunk in chunks:
        found = [slices[number] for number in chunk.row_groups]
        assert chunk.num_rows == sum(one.num_rows for one in found)
        assert any({one.index for one in found} <= groups for groups in together)
        assert len({one.slice.number if one.slice else 0 for one in found}) == 1
    rows = [
        (piece.chunk, row)
        for lane in range(lanes)
        for piece in lane_pieces(plan, chunks, lane)
        for row in range(piece.start, piece.stop)
    ]
    assert sorted(rows) == [
        (n, row) for n, chunk in enumerate(chunks) for row in range(chunk.num_rows)
    ]


@pytest.mark.parametrize("lanes", [1, 6])
def test_without_a_shuffle_each_lane_goes_through_the_files_from_first_to_last(lanes: int) -> None:
    sizes = [50, 7, 90, 30]
    slices = Slices(RowGroups(RowGroup("a", n, rows) for n, rows in enumerate(sizes)), 20)
    plan = EpochPlan(sum(sizes), lanes, 7)
    capacities = [plan.lane_rows_before(lane, plan.num_steps) for lane in range(lanes)]
    chunks = sliced_order(chunk_order(sizes, 0, 0, "none"), slices, capacities, 1)
    for lane in range(lanes):
        rows = [
            (chunks[piece.chunk].row_groups[0], row)
            for piece in lane_pieces(plan, chunks, lane)
            for row in range(piece.start, piece.stop)
        ]
        assert rows == sorted(rows)
        assert lanes > 1 or len(rows) == sum(sizes)
