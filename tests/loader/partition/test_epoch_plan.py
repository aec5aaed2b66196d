import subprocess
import sys
from functools import partial

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
        start, _ = plan.lane_span(lane)
        for step, offsets in enumerate(naive_lane_rows(plan, lane)):
            first, stop = plan.lane_slice(lane, step)
            assert list(range(first - start, stop - start)) == offsets
            assert all(plan.step_of(lane, offset) == step for offset in offsets)


@settings(deadline=None, max_examples=50)
@given(plan=plans)
def test_spans_are_a_disjoint_cover_of_even_length(plan: EpochPlan) -> None:
    spans = [plan.lane_span(lane) for lane in range(plan.lanes)]
    assert [row for start, stop in spans for row in range(start, stop)] == list(
        range(plan.num_rows)
    )
    lengths = [stop - start for start, stop in spans]
    assert max(lengths) - min(lengths) <= 1
    assert lengths == sorted(lengths, reverse=True)


@settings(deadline=None, max_examples=50)
@given(plan=plans)
def test_steps_are_a_disjoint_cover_of_full_batches(plan: EpochPlan) -> None:
    seen: list[int] = []
    for step in range(plan.num_steps):
        slices = [plan.lane_slice(lane, step) for lane in range(plan.lanes)]
        rows = [row for start, stop in slices for row in range(start, stop)]
        assert len(rows) == plan.rows_in_step(step)
        if step < plan.num_steps - 1 or plan.drop_last:
            assert len(rows) == plan.global_batch_size
        seen += rows
    dropped = plan.num_rows % plan.global_batch_size if plan.drop_last else 0
    assert len(seen) == len(set(seen)) == plan.num_rows - dropped
    assert all(0 <= row < plan.num_rows for row in seen)


@settings(deadline=None, max_examples=50)
@given(plan=plans)
def test_the_global_batch_does_not_depend_on_the_ranks(plan: EpochPlan) -> None:
    allowed = [n for n in range(1, plan.lanes + 1) if plan.lanes % n == 0]
    for num_ranks in allowed:
        lanes = [lane for rank in range(num_ranks) for lane in plan.lanes_of_rank(rank, num_ranks)]
        assert lanes == list(range(plan.lanes))
        for step in range(plan.num_steps):
            rows = [plan.rank_rows(step, rank, num_ranks) for rank in range(num_ranks)]
            assert sum(rows) == plan.rows_in_step(step)
            # Each lane gives the floor or the ceiling of an even share, so ranks differ little.
            assert max(rows) - min(rows) <= plan.lanes // num_ranks


def test_ranks_that_do_not_divide_the_lanes_are_told_which_do(wording: Wording) -> None:
    caught = wording.refused(SpecError, lambda: EpochPlan(100, 24, 10).lanes_of_rank(0, 5))
    assert "1, 2, 3, 4, 6, 8, 12, 24" in str(caught)


def test_a_rank_outside_its_gang_is_refused(wording: Wording) -> None:
    wording.refused(ValueError, lambda: EpochPlan(100, 24, 10).lanes_of_rank(4, 4))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lanes": 0}, "lanes is 0"),
        ({"global_batch_size": 0}, "global_batch_size is 0"),
        ({"num_rows": -1}, "num_rows is -1"),
    ],
)
def test_unusable_numbers_are_refused(fields: dict[str, int], message: str) -> None:
    with pytest.raises((SpecError, ValueError), match=message):
        EpochPlan(**{"num_rows": 10, "lanes": 2, "global_batch_size": 4, **fields})


def test_a_step_or_lane_outside_the_epoch_is_refused() -> None:
    plan = EpochPlan(10, 2, 4)
    for step in (-1, 3):
        for refused in (
            partial(plan.rows_in_step, step),
            partial(plan.lane_slice, 0, step),
            partial(plan.rank_rows, step, 0, 1),
        ):
            with pytest.raises(ValueError, match=rf"step {step} .*0\.\.2"):
                refused()
    for lane in (-1, 2):
        for refused in (partial(plan.lane_span, lane), partial(plan.lane_rows_before, lane, 1)):
            with pytest.raises(ValueError, match=rf"lane {lane} .*0\.\.1"):
                refused()


def test_fewer_rows_than_a_batch_and_drop_last_leave_no_step() -> None:
    assert EpochPlan(9, 3, 10, drop_last=True).num_steps == 0
    assert EpochPlan(9, 3, 10).num_steps == 1


def test_partition_imports_no_heavy_library() -> None:
    code = (
        "import sys, distrain.loader.partition; "
        "print(sorted({'torch', 'dask', 'pandas', 'cudf', 'pyarrow'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
