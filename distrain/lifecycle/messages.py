"""What happens to the lifecycle of jobs (stimuli), and what it answers (instructions)."""

from dataclasses import dataclass

from distrain.events import Event
from distrain.jobs import RankPlacement, Slot


@dataclass(frozen=True)
class Budgets:
    """How many restarts of each kind a job may have; `None`: any number."""

    rank_failures: int | None = 0
    worker_losses: int | None = 0
    preemptions: int | None = None


@dataclass(frozen=True)
class Submit:
    """Somebody asks for a job.

    Attributes:
        start_deadline_s: From an attempt's placement until all its ranks train; also the longest
            that a restart may wait for workers.
        total_deadline_s: From submission to the end.
        allowed_ranks: Numbers of ranks that it may have to do with, the largest first; empty:
            `num_ranks` alone.
        priority: Higher ones start first, and preempt.
        backoff_s: Wait before the first restart.
        progress_s: Longest time without any progress of a rank that trains.
        stop_grace_s: What ranks get to save a checkpoint when asked to stop.
        checkpoint_every_s: Seconds between checkpoints.
        first_attempt: The number of its first attempt here: above 1 for a job that is resumed.
        queue_deadline_s: From submission until it is placed for the first time; `None`: any time.
    """

    job_id: str
    num_ranks: int
    start_deadline_s: float
    total_deadline_s: float | None = None
    allowed_ranks: tuple[int, ...] = ()
    priority: int = 0
    budgets: Budgets = Budgets()
    backoff_s: float = 1.0
    progress_s: float | None = None
    stop_grace_s: float = 20.0
    checkpoint_every_s: float | None = None
    first_attempt: int = 1
    queue_deadline_s: float | None = None


@dataclass(frozen=True)
class Cancel:
    """Somebody wants a job to end.

    Attributes:
        why: Who wants it, or what made them, for people.
        grace_s: What its ranks get to save a checkpoint; `None`: a few seconds, or the job's own
            grace if that is less. A job that stops already is hurried by a shorter one.
    """

    job_id: str
    why: str = ""
    grace_s: float | None = None


@dataclass(frozen=True)
class ChangePriority:
    """Somebody wants another priority for a job that waits; it changes no other's."""

    job_id: str
    priority: int


@dataclass(frozen=True)
class WorkersChanged:
    """The cluster's workers, all of them, as they are now.

    Attributes:
        slots: Those that may have ranks.
        others: Why the others may not, for people.
    """

    slots: frozenset[Slot]
    others: str = ""


@dataclass(frozen=True)
class WorkerLeaving:
    """The worker at an address was asked to leave, and will be gone soon."""

    worker: str
    why: str


@dataclass(frozen=True)
class Reported:
    """An event of a rank, or of its supervisor."""

    job_id: str
    attempt: int
    event: Event


@dataclass(frozen=True)
class LaunchFailed:
    """The shell could not carry out a launch."""

    job_id: str
    attempt: int
    message: str


@dataclass(frozen=True)
class Tick:
    """Time passed."""


Stimulus = (
    Submit
    | Cancel
    | ChangePriority
    | WorkersChanged
    | WorkerLeaving
    | Reported
    | LaunchFailed
    | Tick
)


@dataclass(frozen=True)
class _ToGang:
    job_id: str
    attempt: int
    placements: tuple[RankPlacement, ...]


@dataclass(frozen=True)
class LaunchGang(_ToGang):
    """Start one process per placement."""


@dataclass(frozen=True)
class CheckpointGang(_ToGang):
    """Have the ranks save a checkpoint, at a step that they agree on, and go on."""


@dataclass(frozen=True)
class TakeStacks(_ToGang):
    """Have every rank's supervisor report what its process does."""


@dataclass(frozen=True)
class StopGang(_ToGang):
    """Ask every rank to save a checkpoint and end; kill after the grace. No grace: kill now."""

    grace_s: float = 0.0


@dataclass(frozen=True)
class EndGang:
    """The attempt is over: let go of tasks, store and whatever else the shell holds for it."""

    job_id: str
    attempt: int


Instruction = LaunchGang | CheckpointGang | TakeStacks | StopGang | EndGang
