from itertools import pairwise

from hypothesis import given, settings, strategies as st

from distrain.loader.partition.epoch_plan import EpochPlan
from distrain.loader.partition.row_order import chunk_order, lane_pieces


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
