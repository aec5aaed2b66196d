"""Returns the jobs that changed since a revision, in bounded answers.

An answer contains jobs in the order of their last changes. Its size and its number of jobs are
limited, because it blocks the scheduler's loop. If jobs are left, the answer has `more`, and its
revision is that of its last job.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from distrain.scheduler.http.bodies import dumps
from distrain.scheduler.http.monitor import Monitor
from distrain.scheduler.lifecycle.job import Job

MOST_BYTES = 4 * 2**20  # maximum size of one answer's jobs
MOST_JOBS = 100  # maximum jobs in one answer, which take the scheduler's loop some milliseconds


@dataclass
class ChangesAnswer:
    """Jobs as JSON texts, and the revision from which the next answer continues."""

    revision: int
    jobs: list[str]
    more: bool = False


class Changes:
    def __init__(self, monitor: Monitor, clock: Callable[[], float] = time.monotonic):
        self.coordinator = monitor.coordinator
        self.monitor = monitor
        self.revisions = monitor.revisions
        self._clock = clock
        self._acknowledged: dict[str, int] = {}
        self._collected_s = -math.inf  # when jobs with only new progress last got new revisions

    def acknowledge(self, service: str, revision: int) -> None:
        newest = max(revision, self._acknowledged.get(service, 0))
        self._acknowledged[service] = min(newest, self.revisions.newest)

    def is_unseen(self, job_id: str) -> bool:
        """Return True if a service submitted this job and has not acknowledged its last change."""
        service = self.monitor.follow(job_id).service
        if service is None:
            return False
        if self._look_at(job_id):  # it may have changed since the last request
            return True
        return self.revisions.last(job_id) > self._acknowledged.get(service, 0)

    def since(self, revision: int, collect_s: float = 0.0) -> ChangesAnswer:
        """Return the jobs that changed since a revision; all jobs if it is 0.

        Jobs with only new progress count as changed at most every `collect_s`.
        """
        self._look(revision, collect_s)
        changed = self.revisions.changed_since(revision)
        jobs = self.monitor.listed(job_id for job_id, _ in changed)
        texts: list[str] = []
        size_bytes = 0
        for (_, last), job in zip(changed, jobs, strict=True):
            text = dumps(job.model_dump(exclude_none=True))
            size_bytes += len(text)
            # The first one always fits.
            if texts and (len(texts) >= MOST_JOBS or size_bytes > MOST_BYTES):
                return ChangesAnswer(revision, texts, more=True)
            texts.append(text)
            revision = last
        return ChangesAnswer(self.revisions.newest, texts)

    def _look(self, revision: int, collect_s: float) -> None:
        """Give each job that has changed since its last revision a new revision.

        Jobs with only new progress get one if `collect_s` have passed since this was last done, or
        if the answer to a request since `revision` contains them anyway.
        """
        now_s = self._clock()
        is_due = now_s - self._collected_s >= collect_s
        self.monitor.look_around()
        for job_id in self.monitor.histories:
            is_in_answer = self.revisions.last(job_id) > revision
            if self._look_at(job_id, news=is_in_answer or is_due) and is_due:
                self._collected_s = now_s

    def _look_at(self, job_id: str, *, news: bool = True) -> bool:
        """Give a job a new revision if it has changed; return whether it has.

        With `news`, reports of its ranks count as changes.
        """
        job = self.coordinator.lifecycle.jobs[job_id]
        now = self._fingerprint(job), self.monitor.follow(job_id).num_reports
        before = self.revisions.seen.get(job_id, (None, 0))
        stamps = before[0] != now[0] or (before[1] != now[1] and news)
        if stamps:
            self.revisions.stamp(job_id, now)
        return stamps

    def _fingerprint(self, job: Job) -> tuple[object, ...]:
        waiting = tuple(r for r, status in job.ranks.items() if status.waiting_for == "storage")
        outcome = self.coordinator.recordings.outcome(job.job_id)
        moves, why, priority = len(job.history), job.why_pending, job.request.priority
        return job.state, job.attempt, moves, why, priority, waiting, outcome
