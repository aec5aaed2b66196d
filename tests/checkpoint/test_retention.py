"""Which checkpoints are kept."""

from hypothesis import given
from hypothesis import strategies as st

from distrain.checkpoint.place import Entry, Survey, name_of
from distrain.checkpoint.retention import expendable, leftovers


def entry(step, attempt=1, auc=None):
    return Entry(name_of(step, attempt), "", step, attempt, {}, 0, auc)


def gone(entries, keep, keep_best=False):
    return [e.step for e in expendable(entries, keep, keep_best)]


def test_the_newest_stay():
    entries = [entry(step) for step in (50, 40, 30, 20)]
    assert gone(entries, 1) == [40, 30, 20]
    assert gone(entries, 3) == [20]
    assert gone(entries, 4) == gone(entries, 9) == []
    assert gone([], 1) == []


def test_the_best_stays_besides():
    entries = [entry(50, auc=0.7), entry(40, auc=0.8), entry(30, auc=0.8), entry(20), entry(10)]
    assert gone(entries, 1) == [40, 30, 20, 10]
    assert gone(entries, 1, keep_best=True) == [30, 20, 10], "the newest of the best"
    assert gone(entries, 2, keep_best=True) == [30, 20, 10]
    assert gone(entries[3:], 1, keep_best=True) == [10], "none was scored"
    assert gone([entry(2), entry(1, auc=0.0)], 1, keep_best=True) == []


@given(st.lists(st.none() | st.floats(0, 1), max_size=8), st.integers(1, 5), st.booleans())
def test_never_more_than_asked_and_the_newest_and_best_are_among_them(aucs, keep, keep_best):
    entries = [entry(100 - place, auc=auc) for place, auc in enumerate(aucs)]
    removed = expendable(entries, keep, keep_best)
    kept = [e for e in entries if e not in removed]
    assert kept[:keep] == entries[:keep]
    assert len(kept) <= keep + keep_best
    scored = [e.auc for e in entries if e.auc is not None]
    if keep_best and scored:
        assert max(e.auc for e in kept if e.auc is not None) == max(scored)


def test_only_what_nobody_can_be_writing_is_left_over():
    broken = {name_of(*numbers): "" for numbers in [(9, 1), (7, 2), (9, 2), (5, 3)]}
    foreign = {name_of(6, 1): ""}
    found = Survey([], broken, foreign)
    assert leftovers(found, name_of(8, 2)) == [name_of(9, 1), name_of(7, 2)]
