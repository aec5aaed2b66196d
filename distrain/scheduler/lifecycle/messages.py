"""The inputs of the jobs' lifecycle (stimuli) and its outputs (instructions)."""

from dataclasses import dataclass, field

from distrain.jobs.assignment import RankPlacement, Slot
from distrain.jobs.events import Event
from distrain.jobs.spec.job import JobSpec
from distrain.jobs.states import JobState


@dataclass(frozen=True)
class Submit:
    """A job was submitted."""

    job_id: str
    spec: JobSpec = field(repr=False)  # not in logs: its URLs may have secrets
    run_dir: str
    priority: int  # jobs of higher priority start first, and preempt others
    first_attempt: int = 1  # above 1 for a job that is resumed
    age_s: float = 0.0  # the time in seconds that had passed since the submission to a service
    has_run: bool = False  # whether the job has had workers of an earlier scheduler


@dataclass(frozen=True)
class Cancel:
    """A job was cancelled; its ranks stop, and it does not restart."""

    job_id: str
    why: str = ""  # who cancels the job, or why, in words
    # seconds that its ranks get to save a checkpoint; `None`: a few, or the job's own grace if that
    # is less. If the job is stopping already, a shorter grace replaces the earlier one
    grace_s: float | None = None


@dataclass(frozen=True)
class ChangePriority:
    """A job's priority was changed.

    This has no effect unless the job waits for its first or next attempt.
    """

    job_id: str
    priority: int


@dataclass(frozen=True)
class WorkersChanged:
    """Workers have joined or left the cluster."""

    slots: frozenset[Slot]  # the workers that may have ranks
    others: str = ""  # why other workers may not, in words; "" if there are none


@dataclass(frozen=True)
class WorkerLeaving:
    """The worker at an address was asked to leave, and will be gone soon."""

    worker: str
    why: str


@dataclass(frozen=True)
class Reported:
    """A rank of a job's attempt, or the rank's supervisor, sent an event."""

    job_id: str
    attempt: int
    event: Event


@dataclass(frozen=True)
class LaunchFailed:
    """A `LaunchGang` could not be carried out; none of the attempt's ranks has started."""

    job_id: str
    attempt: int
    message: str


@dataclass(frozen=True)
class Tick:
    """Time has passed; sent regularly, so that deadlines and pauses end."""


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
    """Start the attempt's ranks: a supervisor and its process on the worker of each placement."""


@dataclass(frozen=True)
class CheckpointGang(_ToGang):
    """Have the ranks save a checkpoint, at a step on which they agree, and continue training."""


@dataclass(frozen=True)
class TakeStacks(_ToGang):
    """Have every rank's supervisor report the state and the Python stacks of its process."""


@dataclass(frozen=True)
class StopGang(_ToGang):
    """Have every rank save a checkpoint and end; kill ranks that still run after `grace_s`."""

    grace_s: float = 0.0  # 0: kill the ranks at once, without a checkpoint


@dataclass(frozen=True)
class EndGang:
    """Release the supervisors' tasks and the rendezvous store of an attempt that has ended."""

    job_id: str
    attempt: int


@dataclass(frozen=True)
class Move:
    """A job's state has changed. If the new state is final, have a worker write the summary."""

    job_id: str
    at_s: float  # when, on the lifecycle's clock
    old: JobState
    new: JobState
    attempt: int  # the attempt that began, or that ended
    reason: str = ""  # the cause, one of `Reason`; "" if the state needs no explanation
    message: str = ""  # the cause in words, in one line

    @property
    def why(self) -> str:
        """`reason` and `message` in one text; "" without a reason."""
        return f"{self.reason}: {self.message}" if self.reason else ""


Instruction = LaunchGang | CheckpointGang | TakeStacks | StopGang | EndGang | Move
