"""Objects through which other threads and processes watch, save and stop a rank's training."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from torch.distributed import PrefixStore, TCPStore

from distrain.jobs.assignment import Assignment, Rendezvous
from distrain.jobs.events import Event, Heartbeat
from distrain.train.checkpoint.rank_store import RankStore
from distrain.train.control.step_agreement import StepAgreement
from distrain.train.control.stop_deadline import (
    SHARE_FOR_AGREEMENT,
    StopDeadline,
    time_to_leave_s,
)
from distrain.train.timing.phases import PEERS, RankActivity, waiting

CHECKPOINT_WAIT_S = 30.0  # how long ranks wait for each other before they skip a checkpoint

log = logging.getLogger("distrain.commands")


@dataclass(frozen=True)
class Control:
    """The objects through which one rank's training is watched, saved and stopped."""

    store: RankStore
    agreement: StepAgreement
    activity: RankActivity
    stop_deadline: StopDeadline | None = None  # `None`: no other process requests a save
    look: Callable[[], None] = lambda: None  # called before each step and batch; may raise

    @classmethod
    def alone(cls) -> Control:
        """Return the control of a job with a single rank that no other process supervises."""
        store = RankStore()
        return cls(store, StepAgreement(store, 0, 1), RankActivity())

    @classmethod
    def supervised(
        cls,
        assignment: Assignment,
        report: Callable[[Event], None],
        leave: Callable[[], None],
        *,
        timeout_s: float,
    ) -> Control:
        """Return the control of a rank that a supervisor watches, saves and stops.

        `report` sends an event to the supervisor. `leave` must end the process. The connection to
        the other ranks' store, and each request to it, may take `timeout_s` seconds.
        """
        meeting, world = assignment.rendezvous, assignment.world
        store = RankStore() if meeting is None else join_store(meeting, timeout_s)
        activity = RankActivity()
        stop_deadline = StopDeadline(world.rank, activity, report, leave)
        agreement = StepAgreement(store, world.rank, world.num_ranks, stop_deadline.stop_agreed)
        return cls(store, agreement, activity, stop_deadline)

    def heartbeat(self, rank: int) -> Heartbeat:
        activity = self.activity
        progress = self.agreement.passed + activity.slabs
        return Heartbeat(rank, activity.step, progress, activity.doing, activity.waiting_for)


def join_store(meeting: Rendezvous, timeout_s: float) -> RankStore:
    """Connect to the torch store that the coordinator opened, and return it as a `RankStore`.

    The `RankStore` has keys with a prefix of their own. `timeout_s` limits the connection and each
    request.
    """
    timeout = timedelta(seconds=timeout_s)
    store = TCPStore(meeting.host, meeting.port, is_master=False, timeout=timeout)
    return RankStore(PrefixStore(f"{meeting.prefix}/board", store), partial(waiting, PEERS))


class Commands:
    """Executes the commands that a rank receives from its supervisor while it trains.

    A command is a line with a JSON object: `{"op": "checkpoint", "number": 7}`, or
    `{"op": "stop", "number": 8, "grace_s": 20.0}`. The coordinator assigns the numbers; a command
    has the same number on all ranks of a gang.
    """

    def __init__(self, agreement: StepAgreement, stop_deadline: StopDeadline):
        self._agreement = agreement
        self._stop_deadline = stop_deadline

    def listen(self, lines: Iterable[str], at_end: Callable[[], None]) -> None:
        """Start a thread that executes commands from `lines`, and calls `at_end` at their end."""

        def take_all() -> None:
            try:
                for line in lines:
                    self.take(line)
            finally:
                at_end()

        threading.Thread(target=take_all, name="commands", daemon=True).start()

    def take(self, line: str) -> None:
        """Execute a command; an unknown or malformed command is logged, and otherwise ignored.

        >>> from distrain.train.checkpoint import RankStore
        >>> agreement = StepAgreement(RankStore(), 0, 1)
        >>> Commands(agreement, None).take('{"op": "checkpoint", "number": 7}')
        >>> agreement.begin(), agreement.begin()
        ('checkpoint', 'go')
        """
        try:
            self._carry_out(json.loads(line))
        except (ValueError, KeyError, TypeError) as error:
            log.warning("the rank did not understand the command %r: %r", line[:200], error)

    def _carry_out(self, command: dict[str, Any]) -> None:
        number = int(command["number"])
        match command["op"]:
            case "checkpoint":
                self._agreement.request(number, stops=False, wait_s=CHECKPOINT_WAIT_S)
            case "stop":
                grace_s = float(command["grace_s"])
                log.info("the rank is asked to stop within %.1f s", grace_s)
                self._stop_deadline.leave_within(time_to_leave_s(grace_s))
                wait_s = SHARE_FOR_AGREEMENT * grace_s
                self._agreement.request(number, stops=True, wait_s=wait_s)
            case other:
                log.warning("the rank does not know the command %r", other)
