"""The state of a job and of its current attempt in the lifecycle. Other modules change it."""

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property

from distrain.jobs.assignment import RankPlacement, Slot
from distrain.jobs.events import StacksTaken
from distrain.jobs.job_view import Restart
from distrain.jobs.spec.job import JobSpec
from distrain.jobs.states import JobState
from distrain.scheduler.lifecycle.messages import Move, Submit


@dataclass(frozen=True)
class AttemptFailure:
    reason: str
    message: str
    rank: int | None = None
    step: int | None = None
    traceback: str | None = None
    log_tail: str = ""


@dataclass
class RankStatus:
    placement: RankPlacement
    pid: int | None = None
    ready: bool = False
    finished: bool = False
    exited: bool = False
    heard_s: float | None = None  # when its last heartbeat arrived
    progress: int = -1  # the last heartbeat's counter
    progressed_s: float = 0.0  # when its progress last changed
    doing: str = "setup"
    waiting_for: str = ""


@dataclass
class Job:
    request: Submit
    submitted_s: float
    order: int
    state: JobState = JobState.PENDING
    attempt: int = 0
    why_pending: str = ""
    starting_since_s: float | None = None  # when its start deadline began: placement or restart
    ranks: dict[int, RankStatus] = field(default_factory=dict)
    failures: list[AttemptFailure] = field(default_factory=list)  # of this attempt, by arrival
    culprit: AttemptFailure | None = None  # why this attempt is stopped, or why the job ended
    queue_again: bool = False  # whether a job of higher priority gets its workers
    settle_at_s: float | None = None
    linger_until_s: float | None = None
    give_up_at_s: float | None = None
    next_checkpoint_s: float | None = None
    stacks_due_s: float | None = None  # after a hang was noticed: when the culprit is named
    stacks: dict[int, StacksTaken] = field(default_factory=dict)
    step: int = 0
    restarts: list[Restart] = field(default_factory=list)
    spent: Counter[str] = field(default_factory=Counter)  # restarts by budget
    failures_in_a_row: int = 0
    furthest_failed_step: int = -1
    not_before_s: float = 0.0
    why_so_long: str = ""  # why the pause until `not_before_s` is longer than the usual one
    fewer_from_s: float = 0.0  # from this time on it may start with fewer ranks than `num_ranks`
    reserved: frozenset[tuple[str, str]] = frozenset()
    history: list[Move] = field(default_factory=list)

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
        return bool(self.ranks) and all(status.finished for status in self.ranks.values())

    @property
    def is_gone(self) -> bool:
        return all(status.exited for status in self.ranks.values())

    def expect_checkpoint(self, now_s: float) -> None:
        every_s = self.spec.checkpoint.every_s
        self.next_checkpoint_s = None if every_s is None else now_s + every_s


def slot_key(slot: Slot) -> tuple[str, str]:
    """Return the host and name of a worker, which stay the same when its nanny restarts it.

    >>> slot_key(Slot("a", "tcp://a:1", "gpu-0"))
    ('a', 'gpu-0')
    """
    return (slot.host, slot.name or slot.worker)
