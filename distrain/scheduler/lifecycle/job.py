"""The state of a job and of its current attempt in the lifecycle. Other modules change it."""

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property

from distrain.jobs.assignment import RankPlacement, Slot
from distrain.jobs.events import StacksTaken
from distrain.jobs.job_view import Restart
from distrain.jobs.spec.job import JobSpec
from distrain.jobs.states import JobState
from distrain.scheduler.lifecycle.messages import Submit


@dataclass(frozen=True)
class AttemptFailure:
    """Why an attempt fails or is stopped."""

    reason: str  # one of `Reason`
    message: str  # the same in words
    rank: int | None = None  # the rank that it is about, if any
    step: int | None = None  # the step at which a loss was not finite
    traceback: str | None = None  # Python's traceback or stacks
    log_tail: str = ""  # the last lines that the rank's process printed


@dataclass
class RankStatus:
    """The state of one rank of the current attempt."""

    placement: RankPlacement
    pid: int | None = None  # its process id, once reported
    ready: bool = False  # whether its training has begun
    finished: bool = False  # whether it has done all its work
    exited: bool = False  # whether its process has ended
    heard_s: float | None = None  # when its last heartbeat arrived
    progress: int = -1  # the last heartbeat's counter
    progressed_s: float = 0.0  # when its progress last changed
    doing: str = "setup"  # as in the last heartbeat
    waiting_for: str = ""  # as in the last heartbeat


@dataclass
class Job:
    """A job, its current attempt, and its restarts; times are on the lifecycle's clock."""

    request: Submit
    submitted_s: float
    order: int  # a number that is higher for jobs submitted later
    state: JobState = JobState.PENDING
    attempt: int = 0  # the current or last attempt; before the first: one less than its number
    why_pending: str = ""  # why it waits, in words
    starting_since_s: float | None = None  # when its start deadline began: placement or restart
    ranks: dict[int, RankStatus] = field(default_factory=dict)
    failures: list[AttemptFailure] = field(default_factory=list)  # of this attempt, by arrival
    culprit: AttemptFailure | None = None  # why this attempt is stopped, or why the job ended
    queue_again: bool = False  # whether a job of higher priority gets its workers
    settle_at_s: float | None = None  # after a failure: when the culprit is chosen
    linger_until_s: float | None = None  # all ranks finished: when processes that run are stopped
    give_up_at_s: float | None = None  # after a stop: when ranks without a report count as gone
    next_checkpoint_s: float | None = None  # when the gang is next asked for a checkpoint
    stacks_due_s: float | None = None  # after a hang was noticed: when the culprit is named
    stacks: dict[int, StacksTaken] = field(default_factory=dict)  # of the noticed hang, by rank
    step: int = 0  # the furthest step that was reported
    restarts: list[Restart] = field(default_factory=list)
    spent: Counter[str] = field(default_factory=Counter)  # restarts by `AttemptVerdict.budget`
    failures_in_a_row: int = 0  # failures without progress from one to the next
    furthest_failed_step: int = -1  # the furthest step of the attempts that failed
    not_before_s: float = 0.0  # when the pause before the next attempt ends
    why_so_long: str = ""  # why the pause until `not_before_s` is longer than the usual one
    fewer_from_s: float = 0.0  # from this time on it may start with fewer ranks than `num_ranks`
    reserved: frozenset[tuple[str, str]] = frozenset()  # `slot_key`s of workers kept for a restart
    moves: int = 0  # how often its state has changed

    @property
    def job_id(self) -> str:
        return self.request.job_id

    @property
    def spec(self) -> JobSpec:
        return self.request.spec

    @property
    def num_ranks(self) -> int:
        return self.spec.resources.num_ranks

    @cached_property
    def allowed_ranks(self) -> tuple[int, ...]:
        return self.spec.allowed_ranks

    @property
    def placements(self) -> tuple[RankPlacement, ...]:
        return tuple(status.placement for status in self.ranks.values())

    @property
    def is_finished(self) -> bool:
        """Whether all ranks of the current attempt have done all their work."""
        return bool(self.ranks) and all(status.finished for status in self.ranks.values())

    @property
    def is_gone(self) -> bool:
        """Whether all processes of the current attempt have ended."""
        return all(status.exited for status in self.ranks.values())

    def expect_checkpoint(self, now_s: float) -> None:
        """Set the time of the next checkpoint: `checkpoint.every_s` from now, or never."""
        every_s = self.spec.checkpoint.every_s
        self.next_checkpoint_s = None if every_s is None else now_s + every_s


def slot_key(slot: Slot) -> tuple[str, str]:
    """Return a worker's host and name, which stay the same when its nanny restarts the worker.

    If the worker has no name, its address is used instead.

    >>> slot_key(Slot("a", "tcp://a:1", "gpu-0"))
    ('a', 'gpu-0')
    """
    return (slot.host, slot.name or slot.worker)
