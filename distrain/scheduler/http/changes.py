"""Returns the jobs that changed since a revision, in bounded answers.

Each change of any job has a number, the revision, which is higher than those of all earlier
changes. An answer contains jobs in the order of their last changes. Its size and its number of jobs
are limited, because it blocks the scheduler's loop. If jobs are left, the answer says so, and its
revision is that of its last job.
"""

import math
import time
from collections.abc import Callable

from distrain.scheduler.http.bodies import dumps
from distrain.scheduler.lifecycle.job import Job
from distrain.scheduler.monitor import Monitor

MOST_BYTES = 4 * 2**20  # maximum size of one answer's jobs
MOST_JOBS = 100  # maximum jobs in one answer, which take the scheduler's loop some milliseconds


class Changes:
    """Numbers the changes of a coordinator's jobs, and returns the changed jobs."""

    def __init__(self, monitor: Monitor, clock: Callable[[], float] = time.monotonic):
        self.coordinator = monitor.coordinator
        self.newest = 0  # the last revision
        self._watched = monitor.watched_job
        self._clock = clock
        self._collected_s = -math.inf  # when jobs with only new progress last got new revisions

    def since(self, revision: int, collect_s: float = 0.0) -> tuple[int, bool, list[str]]:
        """Return jobs that changed since a revision, or since the beginning if `revision` is 0.

        An answer has at most `MOST_JOBS` jobs and `MOST_BYTES` of text, but at least one job if any
        has changed. Jobs that have changed get new revisions first.

        Returns the revision to pass in the next call, whether more jobs have changed than this
        answer contains, and the jobs' documents as JSON texts. Jobs with only new progress count as
        changed at most every `collect_s`.
        """
        self._look(revision, collect_s)
        revisions = ((one.revision, name) for name, one in self.coordinator.histories.items())
        texts: list[str] = []
        size_bytes = 0
        for last, job_id in sorted(one for one in revisions if one[0] > revision):
            text = dumps(self._watched(job_id).document.model_dump(exclude_none=True))
            size_bytes += len(text.encode())
            # The first one always fits.
            if texts and (len(texts) >= MOST_JOBS or size_bytes > MOST_BYTES):
                return revision, True, texts
            texts.append(text)
            revision = last
        return self.newest, False, texts

    def _look(self, revision: int, collect_s: float) -> None:
        """Give a new revision to each job that has changed since its last revision.

        A job with only new progress gets one at most every `collect_s`: a call is *due* if at least
        `collect_s` have passed since a due call last gave any job a revision. Such a job gets a
        revision if this call is due, or if the job's revision is above `revision`, so that the
        answer contains the job anyway.
        """
        now_s = self._clock()
        is_due = now_s - self._collected_s >= collect_s
        for job_id, history in self.coordinator.histories.items():
            now = self._fingerprint(self.coordinator.lifecycle.jobs[job_id]), history.num_reports
            tells_progress = is_due or history.revision > revision
            if now[0] == history.seen[0] and (now == history.seen or not tells_progress):
                continue
            self.newest += 1
            history.revision, history.seen = self.newest, now
            if is_due:
                self._collected_s = now_s

    def _fingerprint(self, job: Job) -> tuple[object, ...]:
        waiting = tuple(r for r, status in job.ranks.items() if status.waiting_for == "storage")
        outcome = self.coordinator.recordings.outcome(job.job_id)
        why, priority = job.why_pending, job.request.priority
        return job.state, job.attempt, job.moves, why, priority, waiting, outcome
