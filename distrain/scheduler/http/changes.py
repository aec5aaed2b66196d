"""What changed of all jobs since a revision, in bounded answers.

An answer holds the jobs in the order of their last changes, and of each the entries of progress
that came since the asked revision. It ends before it grows too large, or takes the scheduler's loop
too long; then it says `more`, and its revision is that of the last job in it. A job that it has no
space for may have changed before that, and again since: that it did is forgotten, so that it is
told whole later; another service may then get entries again. A job whose entries alone are too many
is sent in parts: it gets two new revisions, one for the part and one for all.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from distrain.jobs.status import JobStatus
from distrain.scheduler.http.bodies import dumps
from distrain.scheduler.http.monitor import Monitor
from distrain.scheduler.lifecycle.job import Job

MOST_BYTES = 4 * 2**20  # of one answer's jobs
MOST_JOBS = 100  # in one answer: some milliseconds of the scheduler's loop
_NO_PROGRESS = 2**62  # more entries than a job ever has


@dataclass
class ChangesAnswer:
    """Jobs as JSON texts, and where the next answer goes on."""

    revision: int
    more: bool = False
    jobs: list[str] = field(default_factory=list)
    size_bytes: int = 0

    def add(self, text: str) -> None:
        self.jobs.append(text)
        self.size_bytes += len(text)

    @property
    def is_full(self) -> bool:
        return len(self.jobs) >= MOST_JOBS


class Changes:
    def __init__(self, monitor: Monitor, clock: Callable[[], float] = time.monotonic):
        self.coordinator = monitor.coordinator
        self.monitor = monitor
        self.revisions = monitor.revisions
        self._clock = clock
        self._acknowledged: dict[str, int] = {}
        self._collected_s = -math.inf  # when jobs that only went on were stamped last

    def acknowledge(self, service: str, revision: int) -> None:
        newest = max(revision, self._acknowledged.get(service, 0))
        self._acknowledged[service] = min(newest, self.revisions.newest)

    def is_unseen(self, job_id: str) -> bool:
        """Whether a service put this job, and has not acknowledged its last change."""
        service = self.monitor.follow(job_id).service
        if service is None:
            return False
        if self._look_at(job_id):  # it may have ended since somebody asked
            return True
        return self.revisions.last(job_id) > self._acknowledged.get(service, 0)

    def since(self, revision: int, collect_s: float = 0.0) -> ChangesAnswer:
        """The changes since a revision; since 0: all jobs, with all of their progress that is kept.

        Jobs that only went on come in one answer, `collect_s` after the last such one, or with a
        job that has any other change.
        """
        self._look(revision, collect_s)
        answer = ChangesAnswer(revision)
        too_large = []
        changed = self.revisions.changed_since(revision)
        statuses = self.monitor.statuses(job_id for job_id, _ in changed)
        for (job_id, last), status in zip(changed, statuses, strict=True):
            first = self.revisions.count_at(job_id, revision)
            text = dumps(self._document(status, first))
            if len(text) > MOST_BYTES:
                too_large.append((job_id, first))
                continue
            if answer.is_full or answer.size_bytes + len(text) > MOST_BYTES:
                answer.more = True
                break
            answer.add(text)
            answer.revision = last
        if answer.more:
            for job_id, _ in changed[len(answer.jobs) + len(too_large) :]:
                self.revisions.leave_out(job_id, revision, answer.revision)
        if too_large:
            self._send_in_parts(answer, too_large, revision)
        elif not answer.more:
            answer.revision = self.revisions.newest
        return answer

    def document(self, job_id: str) -> dict[str, Any]:
        """A job as answers have it, without its progress."""
        (status,) = self.monitor.statuses([job_id])
        return self._document(status, _NO_PROGRESS)

    def _send_in_parts(
        self, answer: ChangesAnswer, too_large: list[tuple[str, int]], since: int
    ) -> None:
        """Put these jobs behind all others; if nothing else is left, send a part of the first."""
        parts = []
        for job_id, first in too_large:
            last = len(self.coordinator.collectors[job_id].entries)
            text, number = self._part(job_id, first)
            self.revisions.leave_out(job_id, since, self.revisions.newest)
            parts.append((text, self.revisions.stamp(job_id, number)))
            self.revisions.stamp(job_id, last)
        text, revision = parts[0]
        if not answer.more and (not answer.jobs or answer.size_bytes + len(text) <= MOST_BYTES):
            answer.add(text)
            answer.revision = revision
        answer.more = True

    def _part(self, job_id: str, first: int) -> tuple[str, int]:
        """The entries of a job from a number on, as many as fit, and the number of the next one."""
        (status,) = self.monitor.statuses([job_id])
        document = self._document(status, first)
        view = document["view"]
        progress = view["progress"]
        begin = view["next_record"] - len(progress)
        room = MOST_BYTES - len(dumps({**document, "view": {**view, "progress": []}}))
        count = 0
        for entry in progress:
            room -= len(dumps(entry)) + 2
            if room < 0 and count:
                break
            count += 1
        number = begin + count
        part = {**view, "progress": progress[:count], "next_record": number}
        return dumps({**document, "view": part}), number

    def _document(self, status: JobStatus, first: int) -> dict[str, Any]:
        return replace(status, view=self.coordinator.show(status.job_id, first)).to_json()

    def _look(self, revision: int, collect_s: float) -> None:
        """Stamp each job that has changed since its last stamp.

        Jobs that only went on wait until `collect_s` after the last such stamp, or for an answer.
        """
        now_s = self._clock()
        is_due = now_s - self._collected_s >= collect_s
        self.monitor.look_around()
        for job_id, track in self.monitor.tracks.items():
            _, _, had_ended = track.stamped or (None, 0, False)
            if track.has_reports or not had_ended:
                is_in_answer = self.revisions.last(job_id) > revision
                if self._look_at(job_id, news=is_in_answer or is_due) and is_due:
                    self._collected_s = now_s

    def _look_at(self, job_id: str, *, news: bool = True) -> bool:
        """Stamp a job if it has changed, and say so; `news`: progress alone is a change."""
        job = self.coordinator.lifecycle.jobs[job_id]
        collector = self.coordinator.collectors[job_id]
        track = self.monitor.follow(job_id)
        num_entries = len(collector.entries)
        fingerprint = _fingerprint(job, collector.attempt)
        old_fingerprint, old_num_entries, _ = track.stamped or (None, 0, False)
        moved = old_fingerprint != fingerprint
        went_on = old_num_entries != num_entries or track.has_reports
        stamps = moved or (went_on and news)
        if stamps:
            track.has_reports = False
            track.stamped = fingerprint, num_entries, job.state.is_final
            self.revisions.stamp(job_id, num_entries)
        return stamps


def _fingerprint(job: Job, attempt: int) -> tuple[object, ...]:
    waiting = tuple(r for r, status in job.ranks.items() if status.waiting_for == "storage")
    priority = job.request.priority
    moves, why = len(job.history), job.why_pending
    return job.state, job.attempt, moves, why, priority, attempt, waiting
