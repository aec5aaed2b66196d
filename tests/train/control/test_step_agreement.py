"""All ranks do what was asked at the same place, and nobody waits for ever."""

import contextlib
import threading
from functools import partial
from types import SimpleNamespace

import pytest
from hypothesis import given, settings, strategies as st
from waiting import until

from distrain.train.checkpoint import RankStore
from distrain.train.control.step_agreement import StepAgreement

LONG_S = 120.0


class Gang:
    """Ranks as threads that pass the same places."""

    def __init__(self, num_ranks, num_places):
        board = RankStore()
        self.told = [[] for _ in range(num_ranks)]
        self.agreements = [
            StepAgreement(board, rank, num_ranks, self.told[rank].append)
            for rank in range(num_ranks)
        ]
        self.num_places = num_places
        self.did = [[] for _ in range(num_ranks)]
        self.threads = [
            threading.Thread(target=self.live, args=(rank,), daemon=True)
            for rank in range(num_ranks)
        ]

    def live(self, rank):
        for place in range(self.num_places):
            while (word := self.agreements[rank].begin()) != "go":
                self.did[rank].append((place, word))
                if word in ("stop", "leave"):
                    return


@pytest.mark.parametrize("stops", [False, True])
def test_a_rank_that_never_answers_holds_nobody_for_ever(stops):
    gang = Gang(3, 4)
    gang.agreements[2].request = None
    # They are held at their first place, and nobody speaks for the third.
    for rank in (0, 1):
        gang.agreements[rank].request(5, stops=stops, wait_s=0.05)
    for thread in gang.threads[:2]:
        thread.start()
        thread.join(LONG_S)
        assert not thread.is_alive()
    assert gang.did[:2] == [[(0, "leave")] if stops else []] * 2
    assert gang.told[:2] == [[None] if stops else []] * 2


def test_ranks_behind_go_on_to_the_farthest(caplog):
    caplog.set_level("INFO", logger="distrain")
    gang = Gang(2, 10)
    for _ in range(4):
        assert gang.agreements[0].begin() == "go"
    assert gang.agreements[1].begin() == "go"
    for agreement in gang.agreements:
        agreement.request(1, stops=True, wait_s=LONG_S)
    assert [gang.agreements[1].begin() for _ in range(4)] == ["go", "go", "go", "stop"]
    assert gang.agreements[0].begin() == "stop"
    assert [agreement.passed for agreement in gang.agreements] == [4, 4]
    assert {record.getMessage() for record in caplog.records} == {
        "all ranks save a checkpoint and end after 4 steps and validation batches of this attempt"
    }
    until(lambda: gang.told == [[4], [4]])


def test_a_request_that_comes_twice_is_one():
    agreement = StepAgreement(RankStore(), 0, 1)
    agreement.request(1, stops=False, wait_s=LONG_S)
    agreement.request(1, stops=False, wait_s=LONG_S)
    assert [agreement.begin() for _ in range(2)] == ["checkpoint", "go"]
    agreement.request(1, stops=True, wait_s=LONG_S)
    assert agreement.begin() == "go"


def test_a_board_that_is_gone_means_to_leave():
    class Broken(RankStore):
        def add(self, key, text):
            raise RuntimeError("connection reset by peer")

    agreement = StepAgreement(Broken(), 0, 2)
    agreement.request(1, stops=False, wait_s=LONG_S)
    assert agreement.begin() == "go"
    agreement.request(2, stops=True, wait_s=LONG_S)
    assert agreement.begin() == "leave"


class Interleaved:
    """A board of ranks whose every call is carried out when the test says so."""

    def __init__(self, num_ranks):
        self.board = RankStore()
        self.calls = {}  # what each rank asks for, until it is carried out
        self.told = {}
        self.answers = {}
        self.closed = False
        self.changed = threading.Condition()
        self.agreements = [
            StepAgreement(self.seen_by(rank), rank, num_ranks, partial(self.tell, rank))
            for rank in range(num_ranks)
        ]

    def seen_by(self, rank):
        names = ("add", "take", "read", "decide")
        return SimpleNamespace(**{name: partial(self.ask, rank, name) for name in names})

    def tell(self, rank, target):
        with self.changed:
            self.told[rank] = target
            self.changed.notify_all()

    def ask(self, rank, name, *arguments):
        with self.changed:
            self.calls[rank] = (name, arguments)
            self.changed.notify_all()
            self.changed.wait_for(lambda: rank in self.answers or self.closed)
            if self.closed:
                raise RuntimeError("the story is over")
            answer = self.answers.pop(rank)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self):
        """End the threads of all ranks."""
        with self.changed:
            self.closed = True
            self.changed.notify_all()

    def settled(self, ranks):
        """What each of the ranks asks for, once all of them ask or have ended."""
        with self.changed:
            assert self.changed.wait_for(
                lambda: all(r in self.calls or r in self.told for r in ranks), LONG_S
            )
            return {rank: call for rank, call in self.calls.items() if rank in ranks}

    def answer(self, rank, answer=None):
        with self.changed:
            name, arguments = self.calls.pop(rank)
            if answer is None:
                arguments = (arguments[0], 0.0) if name == "read" else arguments
                answer = getattr(self.board, name)(*arguments)
            self.answers[rank] = answer
            self.changed.notify_all()


@settings(max_examples=30, deadline=None)
@given(st.data(), st.integers(2, 5))
def test_however_their_calls_interleave_all_that_live_decide_alike(data, num_ranks):
    with contextlib.closing(Interleaved(num_ranks)) as story:
        play_interleaved(story, data, num_ranks)


def play_interleaved(story, data, num_ranks):
    passed = data.draw(st.lists(st.integers(0, 3), min_size=num_ranks, max_size=num_ranks))
    for agreement, places in zip(story.agreements, passed, strict=True):
        assert [agreement.begin() for _ in range(places)] == ["go"] * places
        agreement.request(1, stops=True, wait_s=LONG_S)
    alive, disturbed = set(range(num_ranks)), False
    while calls := story.settled(alive):
        moves = []
        for rank, (name, (key, *_)) in sorted(calls.items()):
            ready = name != "read" or story.board.check(key)
            moves.append((rank, "goes on" if ready else "time is up"))
            moves += [(rank, "dies")] if len(alive) > 1 else []
        undisturbed = [move for move in moves if move[1] == "goes on"]
        wanted = undisturbed if undisturbed and data.draw(st.booleans()) else moves
        rank, what = data.draw(st.sampled_from(wanted))
        if what == "dies":
            alive.remove(rank)
        else:
            story.answer(rank, TimeoutError("late") if what == "time is up" else None)
        disturbed |= what != "goes on"
    decided = {story.told[rank] for rank in alive}
    assert len(decided) == 1
    assert decided <= {None, max(passed)}
    assert disturbed or decided == {max(passed)}
