"""Where the rows of row groups go, against a simulation of the epoch row by row."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings, strategies as st
from wording import Wording

from distrain.errors import SpecError
from distrain.loader.filling.schedule import ChunkDealer, Deal, Load, plan_loads
from distrain.loader.partition.epoch_plan import EpochPlan
from distrain.loader.partition.row_order import Chunk, Piece, chunk_order, row_permutation

Place = tuple[int, int]  # step, place in the rank's batch
Row = tuple[int, int]  # row group, row in it


@dataclass(frozen=True)
class Epoch:
    sizes: list[int]
    plan: EpochPlan
    chunks: list[Chunk]
    seed: int | None
    epoch: int

    def line(self) -> list[Row]:
        """All rows, in the order of the epoch's line."""
        line = []
        for number, chunk in enumerate(self.chunks):
            rows = [(group, row) for group in chunk.row_groups for row in range(self.sizes[group])]
            order: Sequence[int] = range(len(rows))
            if self.seed is not None:
                order = row_permutation(len(rows), self.seed, self.epoch, number).tolist()
            line += [rows[place] for place in order]
        return line

    def lane_rows(self, lane: int) -> list[Row]:
        """A lane's span of the line; odd lanes go through its chunks from the last to the first."""
        start, stop = self.plan.lane_span(lane)
        line = self.line()
        per_chunk = [
            line[max(chunk.start, start) : min(chunk.start + chunk.num_rows, stop)]
            for chunk in self.chunks
            if chunk.start < stop and chunk.start + chunk.num_rows > start
        ]
        return [row for rows in (per_chunk[::-1] if lane % 2 else per_chunk) for row in rows]

    def expected(self, lanes: range, start_step: int) -> dict[Place, Row]:
        """What a rank's batches hold, by taking one row after another from the lanes in turn."""
        plan = self.plan
        waiting = [iter(self.lane_rows(lane)) for lane in range(plan.lanes)]
        taken: dict[tuple[int, int], list[Row]] = defaultdict(list)
        for number in range(plan.num_rows):
            lane = number % plan.lanes
            taken[number // plan.global_batch_size, lane].append(next(waiting[lane]))
        return {
            (step, place): row
            for step in range(start_step, plan.num_steps)
            for place, row in enumerate(row for lane in lanes for row in taken[step, lane])
        }

    def dealer(self, lanes: range, load: Load) -> ChunkDealer:
        chunk = self.chunks[load.chunk]
        sizes = [self.sizes[group] for group in chunk.row_groups]
        return ChunkDealer(self.plan, lanes, chunk, load, sizes, self.seed, self.epoch)


def written(deal: Deal, group: int) -> list[tuple[Place, Row]]:
    """What a deal says, one row at a time."""
    result: list[tuple[Place, Row]] = []
    for step, start, count in zip(deal.steps, deal.starts, deal.counts, strict=True):
        for number in range(count):
            entry = len(result)
            place = deal.places[entry] if len(deal.places) else number
            result.append(((int(step), int(start + place)), (group, int(deal.rows[entry]))))
    assert len(result) == len(deal.rows)
    return result


@st.composite
def epochs(draw: st.DrawFn) -> Epoch:
    sizes = draw(st.lists(st.integers(0, 40), min_size=1, max_size=9))
    sizes = [size for size in sizes if size] or [1]  # tables leave empty row groups out
    plan = EpochPlan(
        sum(sizes), draw(st.integers(1, 12)), draw(st.integers(1, 70)), draw(st.booleans())
    )
    shuffle = draw(st.sampled_from(["none", "chunk", "full"]))
    seed, epoch = draw(st.integers(0, 2**40)), draw(st.integers(0, 9))
    cuts = sorted(draw(st.sets(st.integers(1, len(sizes)))) | {len(sizes)})
    parts = [range(a, b) for a, b in zip([0, *cuts], cuts, strict=False)]
    chunks = chunk_order(
        sizes, seed, epoch, shuffle, draw(st.integers(1, 4)),
        parts if shuffle == "chunk" and draw(st.booleans()) else None,
    )  # fmt: skip
    return Epoch(sizes, plan, chunks, None if shuffle == "none" else seed, epoch)


@settings(deadline=None, max_examples=20)
@given(epoch=epochs(), percent=st.integers(0, 100), data=st.data())
def test_every_place_gets_its_row_once_and_in_time(
    epoch: Epoch, percent: int, data: st.DataObject
) -> None:
    plan = epoch.plan
    num_ranks = data.draw(st.sampled_from([n for n in range(1, 13) if plan.lanes % n == 0]))
    lanes = plan.lanes_of_rank(data.draw(st.integers(0, num_ranks - 1)), num_ranks)
    start_step = plan.num_steps * percent // 100
    loads = plan_loads(plan, epoch.chunks, lanes, start_step)
    assert [load.step for load in loads] == sorted(load.step for load in loads)
    assert len({load.chunk for load in loads}) == len(loads)  # no chunk is decoded twice
    found: dict[Place, Row] = {}
    for load in loads:
        dealer = epoch.dealer(lanes, load)
        for number, group in enumerate(epoch.chunks[load.chunk].row_groups):
            deal = dealer.deal(number)
            assert (deal.rows.dtype, deal.places.dtype) == (np.int32, np.int32)
            for place, row in written(deal, group):
                assert place not in found
                assert load.step <= place[0]  # the batch is handed out after this load
                found[place] = row
    assert found == epoch.expected(lanes, start_step)


def test_a_chunk_of_more_row_groups_than_16_bits_count() -> None:
    sizes = [1] * 70_000
    plan = EpochPlan(70_000, 1, 100)
    (chunk,) = chunk_order(sizes, 0, 0, "full")
    load = Load(0, 0, (Piece(0, 0, 0, 70_000, 0),))
    dealer = ChunkDealer(plan, range(1), chunk, load, sizes, 0, 0)
    order = row_permutation(70_000, 0, 0, 0)
    for number in (0, 4464, 65_535, 65_536, 69_999):
        place = int(np.flatnonzero(order == number)[0])
        assert written(dealer.deal(number), number) == [((place // 100, place % 100), (number, 0))]


def test_a_chunk_of_more_rows_than_int32_counts_is_refused(wording: Wording) -> None:
    rows = 2**31 + 1
    plan = EpochPlan(rows, 1, 100)
    load = Load(0, 0, (Piece(0, 0, 0, 100, 0),))
    wording.refused(
        SpecError,
        lambda: ChunkDealer(plan, range(1), Chunk((0, 1), 0, rows), load, [rows - 5, 5], 0, 0),
    )
