import pytest
from hypothesis import given, settings, strategies as st
from wording import Wording

from distrain.errors import SpecError
from distrain.loader.partition.epoch_plan import EpochPlan

plans = st.builds(
    EpochPlan,
    num_rows=st.integers(0, 400),
    lanes=st.integers(1, 30),
    global_batch_size=st.integers(1, 120),
    drop_last=st.booleans(),
)


def naive_lane_rows(plan: EpochPlan, lane: int) -> list[list[int]]:
    """The lane's offsets, step by step, by dealing one row after another."""
    steps: list[list[int]] = [[] for _ in range(plan.num_steps)]
    for row in range(plan.num_steps * plan.global_batch_size):
        if row < plan.num_rows and row % plan.lanes == lane:
            steps[row // plan.global_batch_size].append(row // plan.lanes)
    return steps


@settings(deadline=None, max_examples=50)
@given(plan=plans)
def test_slices_equal_dealing_rows_one_by_one(plan: EpochPlan) -> None:
    for lane in range(plan.lanes):
        for step, offsets in enumerate(naive_lane_rows(plan, lane)):
            taken = range(plan.lane_rows_before(lane, step), plan.lane_rows_before(lane, step + 1))
            assert list(taken) == offsets
            assert all(plan.step_of(lane, offset) == step for offset in offsets)


def test_ranks_that_do_not_divide_the_lanes_are_told_which_do(wording: Wording) -> None:
    wording.refused(SpecError, lambda: EpochPlan(100, 24, 10).lanes_of_rank(0, 5))


def test_a_step_outside_the_epoch_is_refused() -> None:
    plan = EpochPlan(10, 2, 4)
    for step in (-1, 3):
        with pytest.raises(ValueError, match=rf"step {step} .*0\.\.2"):
            plan.rows_in_step(step)
