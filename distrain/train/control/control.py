"""The objects through which a rank's training is watched, saved and stopped from outside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from distrain.checkpoint import LocalRankStore, RankStore
from distrain.events import Event, Heartbeat
from distrain.jobs import Assignment
from distrain.train.control.gate import StepGate
from distrain.train.control.kept_reports import KeptReports
from distrain.train.control.stop_deadline import StopDeadline
from distrain.train.control.torch_store import TorchRankStore
from distrain.train.timing import RankActivity


@dataclass(frozen=True)
class Control:
    """The objects that a training consults before each step, and that others read.

    Attributes:
        stop_deadline: `None` for a rank without a supervisor, which nobody else asks to save.
        look: Called before each step and each batch of a validation; may raise.
        kept_reports: `None` for a rank without a supervisor: its reports are recorded as they come.
    """

    store: RankStore
    gate: StepGate
    activity: RankActivity
    stop_deadline: StopDeadline | None = None
    look: Callable[[], None] = lambda: None
    kept_reports: KeptReports | None = None

    @classmethod
    def alone(cls, look: Callable[[], None] = lambda: None) -> Control:
        store = LocalRankStore()
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
        store: RankStore = LocalRankStore()
        if meeting is not None:
            store = TorchRankStore.join(meeting, timeout_s)
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
