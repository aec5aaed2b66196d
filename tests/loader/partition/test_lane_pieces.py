from itertools import pairwise

from hypothesis import given, settings, strategies as st

from distrain.loader.partition.epoch_plan import EpochPlan
from distrain.loader.partition.row_order import chunk_order, forward_pieces, lane_pieces

tables = st.lists(st.integers(1, 40), min_size=1, max_size=20)


@settings(deadline=None, max_examples=30)
@given(sizes=tables, lanes=st.integers(1, 30), parts=st.integers(1, 4))
def test_pieces_cover_the_line_once_and_count_their_lanes_rows(
    sizes: list[int], lanes: int, parts: int
) -> None:
    plan = EpochPlan(sum(sizes), lanes, 8)
    chunks = chunk_order(sizes, 0, 0, "chunk", parts)
    rows: list[int] = []
    for lane in range(lanes):
        offset = 0
        for piece in lane_pieces(plan, chunks, lane):
            assert (piece.lane, piece.offset) == (lane, offset)
            assert piece.start < piece.stop
            start = chunks[piece.chunk].start
            rows += range(start + piece.start, start + piece.stop)
            offset += piece.stop - piece.start
        first, last = plan.lane_span(lane)
        assert offset == last - first
    assert sorted(rows) == list(range(sum(sizes)))


@settings(deadline=None, max_examples=50)
@given(lanes=st.integers(2, 12), size=st.integers(1, 30), count=st.integers(24, 60))
def test_neighbours_come_to_the_chunk_they_share_both_first_or_both_last(
    lanes: int, size: int, count: int
) -> None:
    plan = EpochPlan(size * count, lanes, 8)
    chunks = chunk_order([size] * count, 0, 0)
    pieces = [lane_pieces(plan, chunks, lane) for lane in range(lanes)]
    for left, right in pairwise(pieces):
        shared = {piece.chunk for piece in left} & {piece.chunk for piece in right}
        end = 0 if left[0].lane % 2 else -1
        assert shared <= {left[end].chunk}
        assert shared <= {right[end].chunk}


@settings(deadline=None, max_examples=30)
@given(sizes=tables, lanes=st.integers(1, 30))
def test_forward_pieces_are_the_line_from_lane_to_lane(sizes: list[int], lanes: int) -> None:
    plan = EpochPlan(sum(sizes), lanes, 8)
    chunks = chunk_order(sizes, 0, 0, "none")
    line: list[int] = []
    for lane, chunk, start, stop, offset in forward_pieces(plan, chunks).tolist():
        assert offset == len(line) - plan.lane_span(lane)[0]
        line += range(chunks[chunk].start + start, chunks[chunk].start + stop)
    assert line == list(range(sum(sizes)))
