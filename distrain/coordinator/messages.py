"""What the shell tells the job machine (stimuli), and what it answers (instructions)."""

from dataclasses import dataclass

from distrain.events import Event
from distrain.placement import Placement, Slot


@dataclass(frozen=True)
class Submit:
    """Somebody asks for a job."""

    job_id: str
    num_ranks: int
    start_deadline_s: float
    total_deadline_s: float | None = None


@dataclass(frozen=True)
class Cancel:
    """Somebody wants a job to end."""

    job_id: str


@dataclass(frozen=True)
class WorkersChanged:
    """The cluster's workers, all of them, as they are now."""

    slots: frozenset[Slot]


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


Stimulus = Submit | Cancel | WorkersChanged | Reported | LaunchFailed | Tick


@dataclass(frozen=True)
class LaunchGang:
    """Start one process per placement."""

    job_id: str
    attempt: int
    placements: tuple[Placement, ...]


@dataclass(frozen=True)
class StopGang:
    """Ask every rank's supervisor to end its process, then kill it after a grace."""

    job_id: str
    attempt: int
    placements: tuple[Placement, ...]


@dataclass(frozen=True)
class EndGang:
    """The job is over: let go of tasks, store and whatever else the shell holds for it."""

    job_id: str
    attempt: int


Instruction = LaunchGang | StopGang | EndGang
