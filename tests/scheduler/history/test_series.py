"""Points over the steps of a run, in bounded memory."""

import math

import pytest
from hypothesis import given, strategies as st

from distrain.runs.records.series import Series, SeriesColumn

COLUMNS = (
    SeriesColumn("step", whole=True),
    SeriesColumn("rows_total", whole=True),
    SeriesColumn("loss"),
    SeriesColumn("lr"),
)

points = st.lists(
    st.tuples(
        st.one_of(st.none(), st.floats(-1e3, 1e3)),  # loss
        st.integers(1, 1000),  # rows
    ),
    max_size=120,
)
capacities = st.sampled_from([2, 4, 6, 16])


def filled(given_points, capacity):
    series, total = Series(COLUMNS, capacity), 0
    for number, (loss, rows) in enumerate(given_points):
        total += rows
        point = {"step": 10 * number + 10, "rows_total": total, "loss": loss, "lr": number / 2}
        series.add(point, number)
    return series


def oracle(given_points, capacity):
    """The same from all points: each n-th, with the smallest power of two n that is enough."""
    stride = 1
    while len(given_points) // stride >= capacity:
        stride *= 2
    ends = range(stride, len(given_points) + 1, stride)
    return {
        "step": [10 * end for end in ends],
        "rows_total": [sum(rows for _, rows in given_points[:end]) for end in ends],
        "loss": [given_points[end - 1][0] for end in ends],
        "lr": [(end - 1) / 2 for end in ends],
    }


@given(points, capacities)
def test_a_series_has_each_nth_of_all_points(given_points, capacity):
    series = filled(given_points, capacity)
    assert series.since() == oracle(given_points, capacity)
    assert len(series) < capacity
    assert series.last == (10 * len(given_points) if given_points else None)


@given(points, capacities, st.lists(st.integers(0, 120), max_size=4))
def test_who_follows_a_series_has_what_it_shows(given_points, capacity, taken_back_to):
    """Ask from time to time; append what is new, or start again if the generation grew."""
    series, told, generation, cursor = Series(COLUMNS, capacity), [], 0, 0
    backs = iter(sorted(taken_back_to))
    for number, (loss, rows) in enumerate(given_points):
        series.add({"step": number, "rows_total": rows, "loss": loss, "lr": 1}, number)
        if number % 20 == 19:
            series.drop_after(next(backs, 1000))
        if number % 3 == 0:
            replaced = series.generation != generation
            generation = series.generation
            told = [] if replaced else told
            told += series.since(0 if replaced else cursor)["step"]
            cursor = number + 1
            assert told == series.since()["step"]


@given(points, capacities, st.integers(0, 1300))
def test_nothing_that_was_taken_back_is_shown(given_points, capacity, most):
    series = filled(given_points, capacity)
    before = series.since()
    series.drop_after(most)
    kept = sum(step <= most for step in before["step"])
    assert series.since() == {name: values[:kept] for name, values in before.items()}
    assert series.last is None or series.last <= most
    for number in range(1000, 1000 + 3 * series.stride):  # and it goes on
        series.add({"step": 10 * number, "rows_total": 1, "loss": 1.0, "lr": 0}, number)
    steps = series.since()["step"]
    assert steps == sorted(set(steps))


@given(points, capacities)
def test_a_series_that_ended_shows_its_last_point(given_points, capacity):
    series = filled(given_points, capacity)
    series.finish(number=1000)
    shown = series.since()["step"]
    assert shown[-1:] == ([10 * len(given_points)] if given_points else [])


def test_values_that_are_not_finite_are_unknown() -> None:
    with pytest.raises(ValueError, match="3"):
        Series(COLUMNS, 3)  # it must be even
    series = Series(COLUMNS)
    assert series.tail() == {}
    for loss in (math.nan, math.inf, None):
        series.add({"step": 1, "rows_total": 1, "loss": loss, "lr": None}, 0)
    assert series.since()["loss"] == series.since()["lr"] == [None] * 3
    assert series.tail() == {"step": 1, "rows_total": 1, "loss": None, "lr": None}
