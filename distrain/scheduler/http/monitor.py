"""Follows the coordinator inside the scheduler and keeps the histories of its jobs."""

import logging
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any

from distrain.jobs.api_answers import Job
from distrain.jobs.events import Event, Heartbeat
from distrain.jobs.states import JobState
from distrain.scheduler.history.job_history import JobHistory
from distrain.scheduler.history.job_json import (
    Gpu,
    Watched,
    job_document,
    job_summary,
    metrics_document,
)
from distrain.scheduler.http.gpus import gpu_of
from distrain.scheduler.lifecycle.job import Job as LifecycleJob
from distrain.scheduler.lifecycle.messages import Reported, Stimulus, Tick
from distrain.scheduler.plugin import CoordinatorPlugin

log = logging.getLogger("distrain.scheduler.http")


class Monitor:
    """Keeps the histories of a coordinator's jobs; returns documents for pages and handlers."""

    def __init__(self, coordinator: CoordinatorPlugin):
        self.coordinator = coordinator
        self.histories: dict[str, JobHistory] = {}
        self.revisions = Revisions()  # `Changes` gives changed jobs new revisions
        self._failed: set[object] = set()  # places in the code whose errors were logged

    def handled(self, stimulus: Stimulus) -> None:
        try:
            match stimulus:
                case Reported():
                    self._reported(stimulus.job_id, stimulus.attempt, stimulus.event)
                case Tick():
                    self.look_around()
        except Exception as error:  # an error in the monitor must not end the jobs
            if (where := _place(error)) not in self._failed:
                self._failed.add(where)  # logged once
                log.exception("the monitor failed; training continues")

    def forgot(self, job_id: str) -> None:
        history, buried = self.histories.pop(job_id, None), self.coordinator.tombstones.get(job_id)
        if history is not None and buried is not None:
            of_service = buried.model_copy(update={"service": history.service})
            self.coordinator.tombstones[job_id] = of_service
        self.revisions.forget(job_id)

    def job_ids(self) -> list[str]:
        """Return the ids of all jobs, the newest first."""
        self.look_around()
        histories = self.histories
        return sorted(histories, key=lambda job_id: -histories[job_id].submitted_s)

    def jobs(self) -> dict[str, Any]:
        """Return the summaries of all jobs, the newest first, under `jobs`."""
        return {"jobs": [job_summary(job) for job in self.watched()]}

    def listed(self, job_ids: Iterable[str]) -> Iterator[Job]:
        """Yield the documents of jobs, all of which must be known; each is built on demand."""
        self.look_around()
        return (self._watched(job_id).document for job_id in job_ids)

    def job(self, job_id: str, *, all_ranks: bool = False) -> dict[str, Any] | None:
        if not self.knows(job_id):
            return None
        return job_document(self._watched(job_id), all_ranks=all_ranks)

    def metrics(self, job_id: str, since: str | None = None) -> dict[str, Any] | None:
        """Return a job's curves, or only points since a cursor; `None` if the job is unknown.

        Raises `ValueError` if `since` is not a cursor.
        """
        if not self.knows(job_id):
            return None
        return metrics_document(self.histories[job_id], since)

    def watched(self) -> Iterator[Watched]:
        """Yield all jobs with their histories, the newest first."""
        for job_id in self.job_ids():
            yield self._watched(job_id)

    def knows(self, job_id: str) -> bool:
        self.look_around()
        return job_id in self.histories

    def _watched(self, job_id: str) -> Watched:
        coordinator = self.coordinator
        job = coordinator.lifecycle.jobs[job_id]
        places = {rank: status.placement.slot for rank, status in job.ranks.items()}
        gpus = {slot.worker: self._gpu(slot.worker) for slot in places.values()}
        return Watched(
            coordinator.show(job_id),
            job.spec,
            self.histories[job_id],
            time.time(),
            job.request.run_dir,
            job.request.priority,
            job.request.first_attempt,
            self.revisions.last(job_id),
            places,
            {worker: gpu for worker, gpu in gpus.items() if gpu is not None},
        )

    def _gpu(self, worker: str) -> Gpu | None:
        return gpu_of(self.coordinator.scheduler.workers.get(worker))

    def look_around(self) -> None:
        """Add new jobs, and the new states of all jobs, to the histories."""
        now_s = time.time()
        for job_id, job in self.coordinator.lifecycle.jobs.items():
            self._take_states(job, self.follow(job_id), now_s)

    def follow(self, job_id: str) -> JobHistory:
        history = self.histories.get(job_id)
        if history is None:
            job, now_s = self.coordinator.lifecycle.jobs[job_id], time.time()
            submitted_s = now_s - (time.monotonic() - job.submitted_s)
            history = self.histories[job_id] = JobHistory(submitted_s)
            history.move(job.attempt, JobState.PENDING, submitted_s)
            self._take_progress(job_id, history, now_s)  # the job may be older than this monitor
        return history

    def _reported(self, job_id: str, attempt: int, event: Event) -> None:
        job = self.coordinator.lifecycle.jobs.get(job_id)
        if job is None:
            return
        history = self.follow(job_id)
        history.num_reports += not isinstance(event, Heartbeat)
        if job.attempt != attempt:  # an older attempt changes nothing
            return
        now_s = time.time()
        history.observe(attempt, event, now_s)
        self._take_progress(job_id, history, now_s)
        self._take_states(job, history, now_s)

    def _take_progress(self, job_id: str, history: JobHistory, now_s: float) -> None:
        entries = self.coordinator.collectors[job_id].entries
        if len(entries) > history.num_entries:
            first, history.num_entries = history.num_entries, len(entries)
            history.take(entries.since(first), now_s)

    def _take_states(self, job: LifecycleJob, history: JobHistory, now_s: float) -> None:
        if len(job.history) == history.num_moves:
            return
        first, history.num_moves = history.num_moves, len(job.history)
        to_unix_s = now_s - time.monotonic()
        for move in job.history[first:]:
            # Since the two clocks are not read at the same instant, a job that starts right after
            # its submission could seem to start before it.
            at_s = max(history.state_since_s, move.at_s + to_unix_s)
            history.move(move.attempt, move.new, at_s, move.why)


def _place(error: Exception) -> object:
    """Return the kind of an error and the line that raised it; the text may differ each time."""
    innermost = error.__traceback__
    while innermost is not None and innermost.tb_next is not None:
        innermost = innermost.tb_next
    if innermost is None:
        return type(error)
    return type(error), innermost.tb_frame.f_code.co_filename, innermost.tb_lineno


class Revisions:
    """The revisions of all jobs: a number for the last change of each job, ascending over all.

    >>> revisions = Revisions()
    >>> revisions.stamp("a"), revisions.stamp("b"), revisions.stamp("a")
    (1, 2, 3)
    >>> revisions.changed_since(1), revisions.changed_since(2)
    ([('b', 2), ('a', 3)], [('a', 3)])
    """

    def __init__(self) -> None:
        self.newest = 0
        self._last: OrderedDict[str, int] = OrderedDict()  # ascending
        self.seen: dict[str, tuple[object, int]] = {}  # by job, what its last revision is of

    def stamp(self, job_id: str, seen: tuple[object, int] = (None, 0)) -> int:
        """Give a changed job the next revision, and return it."""
        self.newest += 1
        self.seen[job_id] = seen
        self._last[job_id] = self.newest
        self._last.move_to_end(job_id)
        return self.newest

    def last(self, job_id: str) -> int:
        """Return the revision of a job's last change; 0 for an unknown job."""
        return self._last.get(job_id, 0)

    def changed_since(self, revision: int) -> list[tuple[str, int]]:
        """Return the jobs changed after a revision, each with its last revision, ascending."""
        changed = []
        for job_id, last in reversed(self._last.items()):
            if last <= revision:
                break
            changed.append((job_id, last))
        return changed[::-1]

    def forget(self, job_id: str) -> None:
        self._last.pop(job_id, None)
        self.seen.pop(job_id, None)
