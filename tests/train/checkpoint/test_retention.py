"""Which checkpoints are kept."""

from hypothesis import given, strategies as st

from distrain.train.checkpoint.checkpoint_dir import (
    CheckpointEntry,
    Survey,
    expendable,
    leftovers,
    name_of,
)


def entry(step, attempt=1):
    return CheckpointEntry(name_of(step, attempt), "", step, attempt, {}, 0)


def gone(entries, keep, best_step=None):
    return [e.step for e in expendable(entries, keep, best_step)]


def test_the_newest_stay():
    entries = [entry(step) for step in (50, 40, 30, 20)]
    assert gone(entries, 1) == [40, 30, 20]
    assert gone(entries, 3) == [20]
    assert gone(entries, 4) == gone(entries, 9) == []
    assert gone([], 1) == []


def test_the_best_stays_besides():
    entries = [entry(step) for step in (50, 40, 30, 20, 10)]
    assert gone(entries, 1) == [40, 30, 20, 10]
    assert gone(entries, 1, 30) == [40, 20, 10]
    assert gone(entries, 2, 40) == [30, 20, 10], "one of the newest anyway"
    assert gone(entries, 2, 25) == [30, 20, 10], "it was never written"


def test_of_two_attempts_the_best_of_the_later_stays():
    entries = [entry(30, 2), entry(20, 2), entry(20, 1), entry(10, 1)]
    removed = expendable(entries, 1, 20)
    assert [(e.step, e.attempt) for e in removed] == [(20, 1), (10, 1)]


@given(st.integers(0, 8), st.integers(1, 5), st.none() | st.integers(90, 101))
def test_never_more_than_asked_and_the_newest_and_best_are_among_them(number, keep, best_step):
    entries = [entry(100 - place) for place in range(number)]
    removed = expendable(entries, keep, best_step)
    kept = [e for e in entries if e not in removed]
    assert kept[:keep] == entries[:keep]
    assert len(kept) <= keep + (best_step is not None)
    steps = [e.step for e in entries]
    assert best_step not in steps or best_step in [e.step for e in kept]


def test_only_what_nobody_can_be_writing_is_left_over():
    broken = {name_of(*numbers): "" for numbers in [(9, 1), (7, 2), (9, 2), (5, 3)]}
    foreign = {name_of(6, 1): ""}
    found = Survey([], broken, foreign)
    assert leftovers(found, name_of(8, 2)) == [name_of(9, 1), name_of(7, 2)]
