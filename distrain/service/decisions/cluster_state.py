"""A reconciler's memory of a cluster between passes, and a snapshot of the cluster."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from distrain.backoff import doubled_s
from distrain.jobs.api_answers import Job as SeenJob
from distrain.service.decisions.world import SchedulerAnswer, Workers
from distrain.service.values import Job

# Pauses between tries to prepare a run folder: the first one, and the longest.
PREPARE_AGAIN_S = 2.0
PREPARE_LONGEST_S = 60.0


@dataclass(frozen=True)
class ClusterNow:
    """A snapshot of a cluster, on which the decisions of a pass are based."""

    name: str
    # identifies the run of its scheduler's process; `None` while the scheduler does not answer
    epoch: str | None = None
    since_s: float | None = None  # the time since which it answers, or does not
    trouble: str = ""  # why it does not answer, as text
    starting: bool = False  # whether it is being started
    workers: Workers = field(default_factory=Workers)
    most_workers: int | None = None  # the largest number of workers, if the service sets it
    growth: str = ""  # why requested workers have not started

    @property
    def answers(self) -> bool:
        return self.epoch is not None


@dataclass
class Memory:
    """The reconciler's memory of a cluster between passes, from its scheduler's answers.

    `epoch` identifies the start of the scheduler's process; `None` before the first answer. When it
    changes, the jobs are forgotten.
    """

    name: str
    epoch: str | None = None
    revision: int = 0
    asks_for_all: bool = False  # whether the next answer replaces all jobs
    # by id: the jobs as the scheduler last reported them
    sightings: dict[str, SeenJob] = field(default_factory=dict)
    workers: Workers = field(default_factory=Workers)
    answers: bool = False
    contact_s: float | None = None  # the time of its last answer
    since_s: float | None = None  # the time since which it answers, or does not
    trouble: str = ""
    # by job id: in how many passes the scheduler had a job that has no row
    orphans: Counter[str] = field(default_factory=Counter)
    # by job id: when the job's reason to wait was last written
    told_why: dict[str, float] = field(default_factory=dict)
    # by id of a job that has ended, while its summary is being written: the time of the end, the
    # submission's first attempt, and the final columns
    finishing: dict[str, tuple[float, int, Mapping[str, Any]]] = field(default_factory=dict)
    # by id of a job whose run folder cannot be prepared for now: how many tries have failed, and
    # when the last one did
    unprepared: dict[str, tuple[int, float]] = field(default_factory=dict)

    def update(self, answer: SchedulerAnswer, now_s: float) -> None:
        """Update this memory from the scheduler's `answer`, received at `now_s`.

        If the scheduler's process is another one than before, or the query was for all jobs, the
        known jobs are forgotten first.
        """
        if answer.epoch != self.epoch or self.asks_for_all:
            self.epoch, self.asks_for_all = answer.epoch, False
            self.sightings.clear()
            self.orphans.clear()
        self.revision, self.workers = answer.revision, answer.workers
        for seen in answer.jobs:
            self.sightings[seen.id] = seen
        self.contact_s = now_s
        if not answer.more:
            self._now(True, now_s)
            self.trouble = ""

    @property
    def known_epoch(self) -> str | None:
        """The epoch to query for changes since `revision`; `None` to query for all jobs."""
        return None if self.asks_for_all else self.epoch

    def miss(self, trouble: str, now_s: float) -> None:
        """Record that the scheduler does not answer at `now_s`; `trouble` is the reason as text."""
        self._now(False, now_s)
        self.trouble = trouble

    def cluster(self, *, starting: bool = False) -> ClusterNow:
        return ClusterNow(
            self.name,
            self.epoch if self.answers else None,
            self.since_s,
            self.trouble,
            starting,
            self.workers,
        )

    def is_finishing(self, job: Job) -> bool:
        """Return True if a job's current submission has ended and its summary is being written."""
        return job.id in self.finishing and self.finishing[job.id][1] == job.first_attempt

    def note_unprepared(self, job_id: str, now_s: float) -> None:
        tries, _ = self.unprepared.get(job_id, (0, now_s))
        self.unprepared[job_id] = tries + 1, now_s

    def must_pause(self, job_id: str, now_s: float) -> bool:
        """Return True if it is too early to prepare a job's run folder again.

        Each failed try doubles the pause. A pause ends if the clock is set back by more than it.
        """
        tries, last_s = self.unprepared.get(job_id, (0, 0.0))
        pause_s = doubled_s(PREPARE_AGAIN_S, tries - 1, PREPARE_LONGEST_S)
        return tries > 0 and abs(now_s - last_s) < pause_s

    def forget_ended(self, alive: set[str]) -> None:
        """Forget jobs that have ended, unless their id is in `alive`: not ended before the pass."""
        for job_id in [i for i, seen in self.sightings.items() if seen.is_final and i not in alive]:
            del self.sightings[job_id]
        of_all: tuple[dict[str, Any], ...] = (self.told_why, self.finishing, self.unprepared)
        for of_jobs in of_all:
            for job_id in of_jobs.keys() - alive:
                del of_jobs[job_id]

    def _now(self, answers: bool, now_s: float) -> None:
        if answers != self.answers or self.since_s is None:
            self.since_s = now_s
        self.answers = answers
