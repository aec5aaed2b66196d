from collections import defaultdict
from itertools import count

from hypothesis import given, settings, strategies as st

from distrain.loader.filling.schedule import Load, plan_loads
from distrain.partition import EpochPlan, Piece, chunk_order, lane_pieces

cases = st.tuples(
    st.lists(st.integers(1, 40), min_size=1, max_size=20),  # rows of the row groups
    st.integers(1, 12),  # lanes
    st.integers(1, 60),  # global batch size
    st.integers(1, 4),  # row groups per chunk
    st.booleans(),  # drop_last
    st.integers(0, 100),  # where to start, in percent
)


@settings(deadline=None, max_examples=30)
@given(case=cases)
def test_each_lane_gets_its_rows_in_time_and_in_order(
    case: tuple[list[int], int, int, int, bool, int],
) -> None:
    sizes, lanes, batch_size, parts, drop_last, percent = case
    plan = EpochPlan(sum(sizes), lanes, batch_size, drop_last)
    chunks = chunk_order(sizes, 0, 0, "none", parts)
    start_step = plan.num_steps * percent // 100
    loads = plan_loads(plan, chunks, range(lanes), start_step)
    assert [load.step for load in loads] == sorted(load.step for load in loads)
    assert len({load.chunk for load in loads}) == len(loads)  # no chunk is decoded twice

    held: dict[int, list[tuple[int, int]]] = defaultdict(list)  # lane -> its place, row of line
    given: dict[int, list[int]] = defaultdict(list)
    waiting = list(loads)
    for step in range(start_step, plan.num_steps):
        while waiting and waiting[0].step <= step:
            load = waiting.pop(0)
            for piece in load.pieces:
                first = chunks[load.chunk].start
                rows = range(first + piece.start, first + piece.stop)
                held[piece.lane] += zip(count(piece.offset), rows, strict=False)
        for lane in range(lanes):
            span, _ = plan.lane_span(lane)
            wanted = [offset - span for offset in range(*plan.lane_slice(lane, step))]
            held[lane].sort()
            assert [offset for offset, _ in held[lane][: len(wanted)]] == wanted
            given[lane] += [row for _, row in held[lane][: len(wanted)]]
            held[lane] = held[lane][len(wanted) :]
            # What is held beyond the step lies in at most two chunks.
            inside = {
                number
                for number, chunk in enumerate(chunks)
                for _, row in held[lane]
                if chunk.start <= row < chunk.start + chunk.num_rows
            }
            assert len(inside) <= 2
    assert not waiting
    assert not any(held.values())
    for lane, rows in given.items():
        order = [
            chunks[piece.chunk].start + row
            for piece in lane_pieces(plan, chunks, lane)
            for row in range(piece.start, piece.stop)
        ]
        before, after = (plan.lane_rows_before(lane, s) for s in (start_step, plan.num_steps))
        assert rows == order[before:after]


def test_a_table_of_one_chunk_is_loaded_once() -> None:
    plan = EpochPlan(100, 24, 10)
    loads = plan_loads(plan, chunk_order([100], 0, 0), plan.lanes_of_rank(0, 1))
    assert len(loads) == 1
    assert len(loads[0].pieces) == 24


def test_a_table_of_few_chunks_is_loaded_once_although_lanes_cross_their_borders() -> None:
    plan = EpochPlan(1000, 24, 10)
    chunks = chunk_order([100] * 10, 0, 0, "none", 1)
    loads = plan_loads(plan, chunks, range(24))
    assert sorted(load.chunk for load in loads) == list(range(10))


def test_nothing_before_the_start_is_loaded() -> None:
    plan = EpochPlan(100, 1, 10)
    chunks = chunk_order([20] * 5, 0, 0, "none", 1)
    assert plan_loads(plan, chunks, range(1), start_step=7) == [
        Load(step=7, chunk=3, pieces=(Piece(0, 3, 10, 20, 70),)),
        Load(step=8, chunk=4, pieces=(Piece(0, 4, 0, 20, 80),)),
    ]
    assert plan_loads(plan, chunks, range(1), start_step=10) == []
