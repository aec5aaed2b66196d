"""The objects through which a rank's training is watched, saved and stopped from outside."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from torch.distributed import PrefixStore, TCPStore

from distrain.checkpoint import RankStore
from distrain.events import KEEP_S, Event, Heartbeat, ReportsAwaited
from distrain.jobs import Assignment, Rendezvous
from distrain.train.control.gate import StepGate
from distrain.train.control.stop_deadline import StopDeadline
from distrain.train.timing import PEERS, RankActivity, waiting


class KeptReports:
    """The reports of a rank that its supervisor has kept.

    A checkpoint is completed when those of the steps before it are kept. Else a worker that stands
    still, and dies, takes reports along of steps that are never taken again.
    """

    def __init__(self, rank: int, report: Callable[[Event], None]):
        self._rank, self._report = rank, report
        self._changed = threading.Condition()
        self._awaited = self._kept = 0

    def wait(self, within_s: float = KEEP_S) -> None:
        """Wait until all earlier reports are kept; `OSError` after `within_s` seconds."""
        with self._changed:
            self._awaited = number = self._awaited + 1
        self._report(ReportsAwaited(self._rank, number))
        with self._changed:
            if not self._changed.wait_for(lambda: self._kept >= number, within_s):
                raise OSError(
                    f"its worker has not kept the reports of the steps before within {within_s:g} s"
                )

    def told(self, number: int) -> None:
        with self._changed:
            self._kept = max(self._kept, number)
            self._changed.notify_all()


@dataclass(frozen=True)
class Control:
    """The objects that a training consults before each step, and that others read."""

    store: RankStore
    gate: StepGate
    activity: RankActivity
    # `None` for a rank without a supervisor, which nobody else asks to save
    stop_deadline: StopDeadline | None = None
    # called before each step and each batch of a validation; may raise
    look: Callable[[], None] = lambda: None
    # `None` for a rank without a supervisor: its reports are recorded as they come
    kept_reports: KeptReports | None = None

    @classmethod
    def alone(cls, look: Callable[[], None] = lambda: None) -> Control:
        store = RankStore()
        return cls(store, StepGate(store, 0, 1), RankActivity(), look=look)

    @classmethod
    def supervised(
        cls,
        assignment: Assignment,
        report: Callable[[Event], None],
        leave: Callable[[], None],
        *,
        timeout_s: float,
    ) -> Control:
        """The control of a supervised rank, made by the thread that trains."""
        meeting, world = assignment.rendezvous, assignment.world
        store = RankStore() if meeting is None else join_store(meeting, timeout_s)
        activity = RankActivity()
        stop_deadline = StopDeadline(world.rank, activity, report, leave)
        gate = StepGate(store, world.rank, world.num_ranks, stop_deadline.stop_agreed)
        return cls(
            store, gate, activity, stop_deadline, kept_reports=KeptReports(world.rank, report)
        )

    def heartbeat(self, rank: int) -> Heartbeat:
        activity = self.activity
        progress = self.gate.passed + activity.slabs
        return Heartbeat(rank, activity.step, progress, activity.doing, activity.waiting_for)


def join_store(meeting: Rendezvous, timeout_s: float) -> RankStore:
    """The ranks' store among the keys of the torch store that the coordinator opened for them."""
    timeout = timedelta(seconds=timeout_s)
    store = TCPStore(meeting.host, meeting.port, is_master=False, timeout=timeout)
    return RankStore(PrefixStore(f"{meeting.prefix}/board", store), partial(waiting, PEERS))
