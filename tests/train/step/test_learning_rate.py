import math
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from distrain.jobs.spec.training import ScheduleSpec
from distrain.train.step.learning_rate import lr_at

STEPS = st.integers(1, 200)
SCHEDULES = st.builds(
    ScheduleSpec,
    warmup_steps=st.integers(0, 50),
    decay=st.sampled_from(["none", "linear", "cosine"]),
    decay_start_step=st.none() | st.integers(0, 150),
    final_fraction=st.just(0.0) | st.floats(1e-20, 1),
)
PEAKS = st.floats(1e-6, 10)


def course(num_steps, peak, schedule):
    return [lr_at(step, num_steps, peak, schedule) for step in range(num_steps)]


def decay_start(schedule):
    return max(schedule.decay_start_step or 0, schedule.warmup_steps)


@given(STEPS, PEAKS, SCHEDULES)
def test_it_rises_in_the_warm_up_and_never_after(num_steps, peak, schedule):
    rates = course(num_steps, peak, schedule)
    rise = rates[: schedule.warmup_steps]
    assert rise == [pytest.approx(peak * (i + 1) / schedule.warmup_steps) for i in range(len(rise))]
    if num_steps > schedule.warmup_steps > 0:
        assert rise[-1] == rates[schedule.warmup_steps] == peak
    fall = rates[schedule.warmup_steps :]
    assert all(after <= before * (1 + 1e-12) for before, after in pairwise(fall))
    held = rates[schedule.warmup_steps : decay_start(schedule) + 1]
    assert all(rate == peak for rate in held)


@given(STEPS, PEAKS, SCHEDULES)
def test_the_last_step_of_a_decay_has_the_final_fraction(num_steps, peak, schedule):
    last = lr_at(num_steps - 1, num_steps, peak, schedule)
    if schedule.decay != "none" and num_steps - 1 > decay_start(schedule):
        assert last == pytest.approx(peak * schedule.final_fraction, rel=1e-9, abs=1e-300)
    elif num_steps > schedule.warmup_steps:
        assert last == peak


def test_courses_by_hand():
    cosine = ScheduleSpec(decay="cosine", final_fraction=0.5)
    assert course(5, 2.0, cosine) == pytest.approx(
        [2.0, 1.5 + math.sqrt(0.125), 1.5, 1.5 - math.sqrt(0.125), 1.0]
    )
    linear = ScheduleSpec(decay="linear", decay_start_step=2, final_fraction=0.5)
    assert course(7, 2.0, linear) == [2.0, 2.0, 2.0, 1.75, 1.5, 1.25, 1.0]


def test_the_smallest_final_fraction_is_not_lost_to_rounding():
    schedule = ScheduleSpec(decay="linear", final_fraction=1e-20)
    assert lr_at(9, 10, 1.0, schedule) == 1e-20
