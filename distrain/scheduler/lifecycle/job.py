"""The state of a job and of its current attempt in the lifecycle; no decisions are made here."""

from collections import Counter
from dataclasses import dataclass, field

from distrain.jobs.assignment import RankPlacement, Slot
from distrain.jobs.events import StacksTaken
from distrain.jobs.states import JobState
from distrain.jobs.view import Restart
from distrain.scheduler.lifecycle.messages import Submit


@dataclass(frozen=True)
class AttemptFailure:
    reason: str
    message: str
    rank: int | None = None
    step: int | None = None
    traceback: str | None = None
    log_tail: str = ""


@dataclass(frozen=True)
class Move:
    at_s: float  # when, on the lifecycle's clock
    old: JobState
    new: JobState
    attempt: int  # of a launch, the new one; of an end, the ended one
    reason: str = ""  # what brought it about, one of `Reason`; "" where the state says it
    message: str = ""  # the same for people, in one line

    def __str__(self) -> str:
        return f"{self.old} -> {self.new}"

    @property
    def why(self) -> str:
        return f"{self.reason}: {self.message}" if self.reason else ""


@dataclass
class RankStatus:
    placement: RankPlacement
    pid: int | None = None
    ready: bool = False
    finished: bool = False
    exited: bool = False
    heard_s: float | None = None  # its last heartbeat
    progress: int = -1
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
    starting_since_s: float | None = None  # its placement, or its restart: the start deadline
    ranks: dict[int, RankStatus] = field(default_factory=dict)
    failures: list[AttemptFailure] = field(default_factory=list)  # of this attempt, as they came
    culprit: AttemptFailure | None = None  # why this attempt is stopped; at a bad end, of the job
    queue_again: bool = False  # its workers are wanted by a job of higher priority
    settle_at_s: float | None = None
    linger_until_s: float | None = None
    give_up_at_s: float | None = None
    next_checkpoint_s: float | None = None
    stacks_due_s: float | None = None  # a hang was noticed; the culprit is named then
    stacks: dict[int, StacksTaken] = field(default_factory=dict)
    step: int = 0
    restarts: list[Restart] = field(default_factory=list)
    spent: Counter[str] = field(default_factory=Counter)  # restarts by budget
    failures_in_a_row: int = 0
    furthest_failed_step: int = -1
    not_before_s: float = 0.0
    why_so_long: str = ""  # of the pause until then
    fewer_from_s: float = 0.0  # from here on it may start with fewer ranks than wanted
    reserved: frozenset[tuple[str, str]] = frozenset()
    history: list[Move] = field(default_factory=list)

    @property
    def job_id(self) -> str:
        return self.request.job_id

    @property
    def num_ranks(self) -> int:
        return self.request.num_ranks

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
        every_s = self.request.checkpoint_every_s
        self.next_checkpoint_s = None if every_s is None else now_s + every_s


def slot_key(slot: Slot) -> tuple[str, str]:
    """Return host and name of a worker, which stay the same when its nanny restarts it.

    >>> slot_key(Slot("a", "tcp://a:1", "gpu-0"))
    ('a', 'gpu-0')
    """
    return (slot.host, slot.name or slot.worker)
