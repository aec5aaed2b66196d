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


def test_of_two_attempts_the_best_of_the_later_stays():
    entries = [entry(30, 2), entry(20, 2), entry(20, 1), entry(10, 1)]
    removed = expendable(entries, 1, 20)
    assert [(e.step, e.attempt) for e in removed] == [(20, 1), (10, 1)]


@given(st.integers(0, 8), st.integers(1, 5), st.none() | st.integers(90, 101))
def test_all_but_the_newest_and_the_best_are_expendable(number, keep, best_step):
    entries = [entry(100 - place) for place in range(number)]
    removed = expendable(entries, keep, best_step)
    assert removed == [e for e in entries[keep:] if e.step != best_step]


def test_only_what_nobody_can_be_writing_is_left_over():
    broken = {name_of(*numbers): "" for numbers in [(9, 1), (7, 2), (9, 2), (5, 3)]}
    foreign = {name_of(6, 1): ""}
    found = Survey([], broken, foreign)
    assert leftovers(found, name_of(8, 2)) == [name_of(9, 1), name_of(7, 2)]
