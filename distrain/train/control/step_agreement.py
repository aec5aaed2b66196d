"""Agreement of ranks on the step at which all save or stop, without a collective operation.

The ranks of a gang are never at exactly the same point, and a request reaches them one after
another while they train. But a checkpoint holds the state of all ranks after the same step, and a
rank that left a step early would leave the others waiting in it.

The program of every rank passes the same *places*, in the same order: one before each step, and
one before each batch of a validation. A request holds a rank at its next place. Another thread then
writes to the store how many places the rank has passed. Once all ranks have written their number,
the *target* is the largest number. It cannot change, because all ranks are held. Ranks that have
passed fewer places continue to the target, through any collective operations before it. There all
ranks execute the request.

A rank that writes its number gets the count of numbers. So the last rank reads all numbers and
proposes the target, and the others wait for the decision. The number of a rank's calls does not
grow with the number of ranks.

No rank waits forever. A rank that receives no decision in time proposes to abandon the request. The
store accepts the first proposal, for all ranks. So all ranks get the same decision, even if the
last number is written just as another rank's time is over, or if the last rank dies before it
proposes the target. An abandoned checkpoint is skipped; after an abandoned stop the ranks end
without a checkpoint.

Requests may reach ranks in any order, and several may have the same target. A stop does not wait
for other requests. If it has the target of a checkpoint, some ranks may do both and others only the
stop, which saves the same state after the same step.

Passing a place without a request only takes a lock.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from distrain.train.checkpoint.rank_store import RankStore

Word = Literal["go", "checkpoint", "stop", "leave"]

_ABANDONED = "abandoned"

log = logging.getLogger("distrain.agreement")


class StopRequested(Exception):
    """Raised in the training thread to end the training.

    `saves` is True if all ranks end at the same place (before a step or a batch of a validation),
    and must save a checkpoint. It is False if the ranks did not agree in time.
    """

    def __init__(self, saves: bool):
        self.saves = saves
        super().__init__("the training was asked to stop")


@dataclass
class _Request:
    number: int
    stops: bool
    deadline_s: float
    target: int | None = None


class StepAgreement:
    """Holds the training thread of one rank at a place until the ranks have agreed on a request.

    A place is before each step and before each batch of a validation (see the module's docstring).
    `on_stop` is called, from another thread, once a stop is decided: with its target, or `None` if
    it was abandoned. The attribute `passed` is the number of places that this rank has passed.
    """

    def __init__(
        self,
        store: RankStore,
        rank: int,
        num_ranks: int,
        on_stop: Callable[[int | None], None] = lambda _: None,
    ):
        self._store = store
        self._rank = rank
        self._num_ranks = num_ranks
        self._on_stop = on_stop
        self._changed = threading.Condition()
        self._requests: dict[int, _Request] = {}
        self._seen: set[int] = set()
        self._leaves = False
        self.passed = 0

    @property
    def is_requested(self) -> bool:
        """Whether a request is pending, or this rank must leave since a stop was not agreed on.

        Other threads may change it at any time.
        """
        return bool(self._requests) or self._leaves

    def begin(self) -> Word:
        """Wait at the next place until the rank may continue; only the training thread calls it.

        Returns:
            `go`: the place is passed. `checkpoint`: all ranks save a checkpoint at this place; then
            call again. `stop`: all ranks save a checkpoint at this place, and end. `leave`: end
            without a checkpoint, because the ranks did not agree in time.
        """
        with self._changed:
            while True:
                word = self._word()
                if word is not None:
                    break
                self._changed.wait()
            if word == "go":
                self.passed += 1
            return word

    def request(self, number: int, *, stops: bool, wait_s: float) -> None:
        """Let all ranks agree on a place (a point of the training) to save, or to save and end.

        With `stops`, the ranks end there. This rank's training waits at its next place until the
        agreement. Every rank must get the request, with the same number; a number seen before is
        ignored. `wait_s` limits the time for the agreement. The call returns at once: another
        thread waits.
        """
        with self._changed:
            if number in self._seen:
                return
            self._seen.add(number)
            request = _Request(number, stops, time.monotonic() + wait_s)
            self._requests[number] = request  # from now on this rank is held
        # One thread for each: requests are rare, and none waits for the decision on another.
        name = f"agreement-{number}"
        threading.Thread(target=self._agree, args=(request,), name=name, daemon=True).start()

    def _word(self) -> Word | None:
        """Return the result of `begin` for the next place; `None` if the rank must wait there.

        It must wait while a request has no target yet. A stop precedes a checkpoint at the same
        place. A checkpoint that is returned is removed from the requests.
        """
        if not self._requests and not self._leaves:
            return "go"
        if self._leaves:
            return "leave"
        due = [request for request in self._requests.values() if request.target == self.passed]
        if any(request.stops for request in due):
            return "stop"
        if due:
            del self._requests[due[0].number]
            return "checkpoint"
        undecided = any(request.target is None for request in self._requests.values())
        return None if undecided else "go"

    def _agree(self, request: _Request) -> None:
        try:
            decision = self._decide(request)
        except Exception as error:  # the store is gone, and so is the coordinator
            log.warning("the ranks' store failed: %s", error)
            decision = _ABANDONED
        self._take(request, decision)

    def _decide(self, request: _Request) -> str:
        """Return the place on which the ranks agreed as text, or `_ABANDONED`: the same on all.

        Waits for the other ranks until the request's deadline.
        """
        if self._num_ranks == 1:
            return str(self.passed)
        passed, decision = (
            f"agreement/{request.number}/passed",
            f"agreement/{request.number}/decision",
        )
        if self._store.add(passed, str(self.passed)) == self._num_ranks:
            target = max(map(int, self._store.take(passed)))
            return self._store.decide(decision, str(target))
        try:
            return self._store.read(decision, max(0.0, request.deadline_s - time.monotonic()))
        except TimeoutError:
            return self._store.decide(decision, _ABANDONED)

    def _take(self, request: _Request, decision: str) -> None:
        target = None if decision == _ABANDONED else int(decision)
        if target is None:
            log.warning("a rank did not answer in time: no checkpoint is saved on request")
        else:
            end = " and end" if request.stops else ""
            what = "steps and validation batches of this attempt"
            log.info("all ranks save a checkpoint%s after %d %s", end, target, what)
        with self._changed:
            request.target = target
            if target is None:
                del self._requests[request.number]
                self._leaves |= request.stops
            self._changed.notify_all()
        if request.stops:
            self._on_stop(target)
