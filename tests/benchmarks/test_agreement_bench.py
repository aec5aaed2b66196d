"""How many calls an agreement costs the store; the clients are those of a store in memory."""

import threading

import pytest
from torch.distributed import HashStore

from benchmarks import agreement as bench
from distrain.train.checkpoint import RankStore


def clients(num_ranks):
    store = HashStore()
    return [bench.CountedStore(store) for _ in range(num_ranks)]


@pytest.mark.parametrize("agreement", ["step_agreement", "checkpoint_agreement"])
@pytest.mark.parametrize("num_ranks", [2, 40])
def test_a_ranks_calls_do_not_grow_with_the_number_of_ranks(agreement, num_ranks):
    calls = getattr(bench, agreement)(clients(num_ranks)).without_questions
    # Each adds, counts and reads; one takes all that was added, one posts.
    assert sum(calls) == 3 * num_ranks + 3
    assert max(calls) <= 6


def test_who_waits_asks_ever_more_rarely():
    pauses_s = []

    class Waits(threading.Event):
        def wait(self, timeout=None):
            pauses_s.append(timeout)
            return sum(pauses_s) > 60.0

    (store,) = clients(1)
    with pytest.raises(TimeoutError):
        RankStore(store).read("never", 1e9, Waits())
    assert pauses_s == sorted(pauses_s)
    assert 60 < store.calls["check"] == len(pauses_s) < 140
