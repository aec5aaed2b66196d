"""The range of a curve: all of it, but a wild start."""

import math

import pytest
from hypothesis import given, strategies as st

from distrain.runs.records.series import EARLY, FEW, curve_limits

LOSSES = st.lists(st.none() | st.floats(0.0, 50.0), max_size=60)


@given(st.lists(LOSSES, max_size=3), LOSSES)
def test_all_of_validation_and_all_but_the_start_of_training_is_inside(curves, valid) -> None:
    limits = curve_limits(curves, valid)
    known = [[v for v in values if v is not None] for values in (*curves, valid)]
    if limits is None:
        assert not any(known)
        return
    low, high = limits
    assert low < high
    for values in known[:-1]:
        begun = math.ceil(EARLY * len(values)) if len(values) >= FEW else 0
        assert all(low < value < high for value in values[begun:])
    assert all(low < value < high for value in known[-1])


def test_a_wild_start_does_not_flatten_the_rest() -> None:
    train = [80.0, 20.0, *(0.5 - 0.002 * step for step in range(40))]
    low, high = curve_limits([train], [0.44, 0.46]) or (math.nan, math.nan)
    assert low == pytest.approx(0.42, abs=0.02)
    assert high < 25.0
    low, high = curve_limits([[80.0, *[0.5, 0.4] * 20]]) or (math.nan, math.nan)
    assert (low, high) == pytest.approx((0.394, 0.506))


def test_a_start_that_is_near_is_shown_and_validation_wherever_it_is() -> None:
    assert curve_limits([[0.55, *[0.5, 0.4] * 10]]) == pytest.approx((0.391, 0.559))
    assert curve_limits([[0.7, 0.4]]) == pytest.approx((0.382, 0.718))
    assert curve_limits([[0.5, 0.4]], [9.0]) == pytest.approx((-0.116, 9.516))


def test_what_is_not_known_and_what_never_changes() -> None:
    assert curve_limits([[None, math.nan, math.inf]], [None]) is None
    low, high = curve_limits([[0.5, 0.5]]) or (math.nan, math.nan)
    assert low < 0.5 < high
    low, high = curve_limits([[0.0]]) or (math.nan, math.nan)
    assert low < 0.0 < high
