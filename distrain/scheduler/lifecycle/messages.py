"""The inputs of the jobs' lifecycle (stimuli) and its outputs (instructions)."""

from dataclasses import dataclass

from distrain.jobs.assignment import RankPlacement, Slot
from distrain.jobs.events import Event


@dataclass(frozen=True)
class Budgets:
    """The numbers of restarts of each kind that a job may have; `None`: no limit."""

    rank_failures: int | None = 0
    worker_losses: int | None = 0
    preemptions: int | None = None


@dataclass(frozen=True)
class Submit:
    job_id: str
    num_ranks: int
    start_deadline_s: float  # from placement until all ranks train; also for a restart's wait
    total_deadline_s: float | None = None  # from submission to the end
    allowed_ranks: tuple[int, ...] = ()  # the largest first; empty: `num_ranks` alone
    priority: int = 0  # jobs of higher priority start first, and preempt others
    budgets: Budgets = Budgets()
    backoff_s: float = 1.0  # wait before the first restart
    progress_s: float | None = None  # longest time without any progress of a rank that trains
    stop_grace_s: float = 20.0  # what ranks get to save a checkpoint when asked to stop
    checkpoint_every_s: float | None = None  # seconds between checkpoints
    first_attempt: int = 1  # above 1 for a job that is resumed
    queue_deadline_s: float | None = None  # until the first placement; `None`: no limit


@dataclass(frozen=True)
class Cancel:
    job_id: str
    why: str = ""  # who cancels the job, or why, in words
    # seconds that its ranks get to save a checkpoint; `None`: a few, or the job's own grace if that
    # is less. If the job is stopping already, a shorter grace replaces the earlier one
    grace_s: float | None = None


@dataclass(frozen=True)
class ChangePriority:
    job_id: str
    priority: int


@dataclass(frozen=True)
class WorkersChanged:
    slots: frozenset[Slot]  # the workers that may have ranks
    others: str = ""  # why other workers may not, in words; "" if there are none


@dataclass(frozen=True)
class WorkerLeaving:
    """The worker at an address was asked to leave, and will be gone soon."""

    worker: str
    why: str


@dataclass(frozen=True)
class Reported:
    job_id: str
    attempt: int
    event: Event


@dataclass(frozen=True)
class LaunchFailed:
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
    """Have the ranks save a checkpoint, at a step that they agree on, and continue."""


@dataclass(frozen=True)
class TakeStacks(_ToGang):
    """Have every rank's supervisor report the state and the Python stacks of its process."""


@dataclass(frozen=True)
class StopGang(_ToGang):
    """Ask every rank to save a checkpoint and end; kill after `grace_s`, at once if it is 0."""

    grace_s: float = 0.0


@dataclass(frozen=True)
class EndGang:
    job_id: str
    attempt: int


@dataclass(frozen=True)
class EndJob:
    """The job has ended: have its summary written."""

    job_id: str


Instruction = LaunchGang | CheckpointGang | TakeStacks | StopGang | EndGang | EndJob
