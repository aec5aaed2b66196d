"""Where a piece's rows go: by numbers for a few steps, by NumPy for many; both say the same."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from distrain.loader.filling import schedule
from distrain.loader.filling.schedule import runs_of
from distrain.loader.partition.epoch_plan import EpochPlan
from distrain.loader.partition.lane_pieces import Piece


@given(data=st.data())
def test_few_runs_are_those_of_numpy(data: Any) -> None:
    lanes = data.draw(st.integers(1, 12))
    plan = EpochPlan(data.draw(st.integers(1, 400)), lanes, data.draw(st.integers(1, 90)))
    num_ranks = data.draw(st.sampled_from([n for n in range(1, lanes + 1) if lanes % n == 0]))
    of_rank = plan.lanes_of_rank(data.draw(st.integers(0, num_ranks - 1)), num_ranks)
    lane = data.draw(st.sampled_from(of_rank))
    rows = plan.lane_rows_before(lane, plan.num_steps)
    if not rows:
        return
    first = data.draw(st.integers(0, rows - 1))
    last = data.draw(st.integers(first + 1, rows))
    piece = Piece(lane, chunk=0, start=5, stop=5 + last - first, offset=first)
    found = []
    with pytest.MonkeyPatch.context() as patch:
        for most in (0, 10**9):
            patch.setattr(schedule, "_FEW_RUNS", most)
            runs = runs_of(plan, of_rank, piece)
            found.append([runs.steps.tolist(), runs.starts.tolist(), runs.counts.tolist()])
            assert {runs.steps.dtype, runs.starts.dtype, runs.counts.dtype} == {np.dtype(np.int64)}
    assert found[0] == found[1]
    assert sum(found[0][2]) == last - first
