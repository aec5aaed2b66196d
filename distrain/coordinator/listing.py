"""A job in a few figures, as lists of jobs show it; and which one somebody means. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from distrain.coordinator.states import JobState
from distrain.coordinator.view import Record
from distrain.errors import InputError

if TYPE_CHECKING:  # who asks a scheduler needs none of these
    from distrain.coordinator.collector import Collector
    from distrain.coordinator.job import Job
    from distrain.spec import JobSpec

_MOST_TOLD = 5
_RECENT_ENTRIES = 64


@dataclass(frozen=True)
class Listing:
    """A job at one moment.

    Attributes:
        state: One of `JobState`.
        reason: One word for why it ended badly.
        why_pending: Why it does not run yet, or not again.
        attempt: The current or last attempt, from 1; 0 before the first.
        num_ranks: Ranks that it has; while it has none, those it wants.
        restarts: Attempts that ended early and were followed by others.
        step: Steps that its last record holds.
        num_steps: Steps it will take, once known.
        rows_per_s: Of its last record, while it runs.
        age_s: Seconds since it was submitted.
        priority: Its place in the queue goes by this, then by age.
        run_dir: Its run directory, as the submitter named it.
        tags: From its spec.
    """

    job_id: str
    name: str
    state: str
    attempt: int
    num_ranks: int
    reason: str | None = None
    message: str | None = None
    why_pending: str = ""
    restarts: int = 0
    step: int = 0
    num_steps: int | None = None
    rows_per_s: float | None = None
    age_s: float = 0.0
    priority: int = 0
    run_dir: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_final(self) -> bool:
        """Whether the job has ended."""
        return JobState(self.state).is_final

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


def listing(
    job: "Job", spec: "JobSpec", run_dir: str, collector: "Collector", now_s: float
) -> Listing:
    """A job as the coordinator knows it.

    Args:
        job: What the machine knows of it.
        spec: What was asked for.
        run_dir: Its run directory.
        collector: What its ranks have told.
        now_s: On the machine's clock.
    """
    last = _last_record(collector)
    waits = job.state in (JobState.PENDING, JobState.RESTARTING)
    cause = job.culprit if job.state.is_final else None
    return Listing(
        job_id=job.job_id,
        name=spec.name,
        state=job.state.value,
        attempt=job.attempt,
        num_ranks=len(job.ranks) or job.num_ranks,
        reason=cause.reason if cause else None,
        message=cause.message if cause else None,
        why_pending=job.why_pending if waits else "",
        restarts=len(job.restarts),
        step=last.step if last else 0,
        num_steps=collector.num_steps,
        rows_per_s=last.rows_per_s if last and job.state is JobState.RUNNING else None,
        age_s=now_s - job.submitted_s,
        priority=spec.queue.priority,
        run_dir=run_dir,
        tags=dict(spec.tags),
    )


def find_job(jobs: Sequence[Listing], word: str) -> Listing:
    """The job whose id is a word, or the only one whose id begins with it.

    Args:
        jobs: All jobs, the newest first.
        word: What somebody typed.

    Raises:
        InputError: There is none such, or there are several.
    """
    same = [job for job in jobs if job.job_id == word]
    begun = same or [job for job in jobs if word and job.job_id.startswith(word)]
    if len(begun) == 1:
        return begun[0]
    if begun:
        raise InputError(
            f"'{word}' is the beginning of several jobs' ids",
            where={"jobs": _told([job.job_id for job in begun])},
            hint="Type more of the id.",
        )
    ids = [job.job_id for job in jobs]
    near = get_close_matches(word, ids, n=_MOST_TOLD, cutoff=0.5)
    where = {"similar": _told(near)} if near else {"jobs": _told(ids)} if ids else {}
    raise InputError(
        f"the scheduler knows no job '{word}'",
        where=where,
        hint="`distrain jobs` lists them. Of ended jobs a scheduler forgets the oldest, and of all "
        "jobs when it is started anew; their run directories stay, and `distrain train --resume "
        "RUN_DIR` goes on with one that has not succeeded.",
    )


def _told(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - _MOST_TOLD} more" if len(ids) > _MOST_TOLD else ""
    return ", ".join(ids[:_MOST_TOLD]) + more


def _last_record(collector: "Collector") -> Record | None:
    recent = collector.entries.since(len(collector.entries) - _RECENT_ENTRIES)
    found = (entry for entry in reversed(recent) if isinstance(entry, Record))
    return next((record for record in found if record.split == "train"), None)
