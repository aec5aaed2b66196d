"""What the shell tells the job machine (stimuli), and what it answers (instructions)."""

from dataclasses import dataclass

from distrain.events import Event
from distrain.placement import Placement, Slot


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
        job_id: Its name.
        num_ranks: Ranks wanted.
        start_deadline_s: From an attempt's placement until all its ranks train; also the longest
            that a restart may wait for workers.
        total_deadline_s: From submission to the end.
        allowed_ranks: Numbers of ranks that it may have to do with, the largest first; empty:
            `num_ranks` alone.
        priority: Higher ones start first, and preempt.
        budgets: Restarts allowed.
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
        job_id: Which.
        why: Who cancelled it or what made them, as people should read it; "" if nobody said.
    """

    job_id: str
    why: str = ""


@dataclass(frozen=True)
class WorkersChanged:
    """The cluster's workers, all of them, as they are now."""

    slots: frozenset[Slot]


@dataclass(frozen=True)
class WorkerLeaving:
    """A worker was told to go, and will be gone soon.

    Attributes:
        worker: Its address.
        why: The notice, in words.
    """

    worker: str
    why: str


@dataclass(frozen=True)
class Reported:
    """A rank, or its supervisor, told something."""

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


Stimulus = Submit | Cancel | WorkersChanged | WorkerLeaving | Reported | LaunchFailed | Tick


@dataclass(frozen=True)
class LaunchGang:
    """Start one process per placement."""

    job_id: str
    attempt: int
    placements: tuple[Placement, ...]


@dataclass(frozen=True)
class CheckpointGang:
    """Have the ranks save a checkpoint, at a step that they agree on, and go on."""

    job_id: str
    attempt: int
    placements: tuple[Placement, ...]


@dataclass(frozen=True)
class TakeStacks:
    """Have every rank's supervisor say what its process does."""

    job_id: str
    attempt: int
    placements: tuple[Placement, ...]


@dataclass(frozen=True)
class StopGang:
    """Ask every rank to save a checkpoint and end; kill after the grace. No grace: kill now."""

    job_id: str
    attempt: int
    placements: tuple[Placement, ...]
    grace_s: float = 0.0


@dataclass(frozen=True)
class EndGang:
    """The attempt is over: let go of tasks, store and whatever else the shell holds for it."""

    job_id: str
    attempt: int


Instruction = LaunchGang | CheckpointGang | TakeStacks | StopGang | EndGang
