"""Watches the coordinator inside the scheduler and keeps the histories of its jobs."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from distrain.documents import (
    Gpu,
    JobHistory,
    Watched,
    job_document,
    job_summary,
    jobs_document,
    metrics_document,
)
from distrain.events import Event
from distrain.jobs import JobState
from distrain.lifecycle import Job, Reported, Stimulus, Tick
from distrain.scheduler import CoordinatorPlugin

EXTENSION = "distrain-monitor"
"""The monitor's name among the scheduler's extensions."""

log = logging.getLogger("distrain.monitor")


class Monitor:
    """Histories of all jobs of one coordinator; pages and handlers ask it for documents."""

    def __init__(self, coordinator: CoordinatorPlugin, clock: Callable[[], float] = time.time):
        self.coordinator = coordinator
        self.histories: dict[str, JobHistory] = {}
        self._clock = clock
        self._entries_seen: dict[str, int] = {}
        self._moves_seen: dict[str, int] = {}
        self._failed: set[object] = set()  # places in the code that failed
        self._alive: set[str] = set()  # jobs that have not ended

    def handled(self, stimulus: Stimulus) -> None:
        """The coordinator has handled a stimulus."""
        try:
            match stimulus:
                case Reported():
                    self._reported(stimulus.job_id, stimulus.attempt, stimulus.event)
                case Tick():
                    self._look_around()
        except Exception as error:  # an error in the monitor must not end the jobs
            if (where := _place(error)) not in self._failed:
                self._failed.add(where)  # logged once
                log.exception("the monitor failed; training goes on")

    def forgot(self, job_id: str) -> None:
        """The coordinator has removed this job."""
        for mapping in (self.histories, self._entries_seen, self._moves_seen):
            mapping.pop(job_id, None)
        self._alive.discard(job_id)

    def job_ids(self) -> list[str]:
        """All jobs, the newest first."""
        self._look_around()
        histories = self.histories
        return sorted(histories, key=lambda job_id: -histories[job_id].submitted_s)

    def jobs(self) -> dict[str, Any]:
        """The document of all jobs."""
        return jobs_document(self._watched(job_id) for job_id in self.job_ids())

    def summary(self, job_id: str) -> dict[str, Any] | None:
        """One job as the document of all jobs has it; `None` if unknown."""
        return job_summary(self._watched(job_id)) if self._knows(job_id) else None

    def summaries(self, job_ids: Iterable[str]) -> Iterator[dict[str, Any]]:
        """The same of several jobs that are known, one after the other as they are asked for."""
        self._look_around()
        return (job_summary(self._watched(job_id)) for job_id in job_ids)

    def job(self, job_id: str, *, all_ranks: bool = False) -> dict[str, Any] | None:
        """The document of one job, as `job_document`; `None` if unknown."""
        if not self._knows(job_id):
            return None
        return job_document(self._watched(job_id), all_ranks=all_ranks)

    def metrics(self, job_id: str, since: str | None = None) -> dict[str, Any] | None:
        """The document of a job's curves; `None` if unknown, `ValueError` if `since` is none."""
        known = self._knows(job_id)
        return metrics_document(self.histories[job_id], since) if known else None

    def watched(self) -> Iterator[Watched]:
        """All jobs, the newest first."""
        for job_id in self.job_ids():
            yield self._watched(job_id)

    def _knows(self, job_id: str) -> bool:
        self._look_around()
        return job_id in self.histories

    def _watched(self, job_id: str) -> Watched:
        coordinator = self.coordinator
        job = coordinator.machine.jobs[job_id]
        places = {rank: status.placement.slot for rank, status in job.ranks.items()}
        gpus = {slot.worker: self._gpu(slot.worker) for slot in places.values()}
        return Watched(
            coordinator.show(job_id),
            coordinator.specs[job_id],
            coordinator.run_dirs[job_id],
            self.histories[job_id],
            self._clock(),
            places,
            {worker: gpu for worker, gpu in gpus.items() if gpu is not None},
        )

    def _gpu(self, worker: str) -> Gpu | None:
        state = self.coordinator.scheduler.workers.get(worker)
        gpu = state.metrics.get("gpu") if state is not None else None
        if not gpu:
            return None
        total = (state.extra.get("gpu") or {}).get("memory-total")
        return Gpu(gpu.get("utilization"), gpu.get("memory-used"), total)

    def _reported(self, job_id: str, attempt: int, event: Event) -> None:
        job = self.coordinator.machine.jobs.get(job_id)
        if job is None or job.attempt != attempt:  # an older attempt changes nothing
            return
        now_s = self._clock()
        history = self._history(job_id, job, now_s)
        history.observe(attempt, event, now_s)
        self._take_progress(job_id, now_s)
        self._follow_states(job_id, job, now_s)

    def _take_progress(self, job_id: str, now_s: float) -> None:
        entries = self.coordinator.collectors[job_id].entries
        seen = self._entries_seen.get(job_id, 0)
        if len(entries) > seen:
            self._entries_seen[job_id] = len(entries)
            self.histories[job_id].take(entries.since(seen), now_s)

    def _look_around(self) -> None:
        """Notice new jobs, and the states of all that have not ended."""
        jobs, now_s = self.coordinator.machine.jobs, self._clock()
        if len(jobs) != len(self.histories):
            for job_id in [job_id for job_id in jobs if job_id not in self.histories]:
                self._history(job_id, jobs[job_id], now_s)
                self._take_progress(job_id, now_s)  # it may be older than this monitor
        for job_id in list(self._alive):
            self._follow_states(job_id, jobs[job_id], now_s)

    def _history(self, job_id: str, job: Job, now_s: float) -> JobHistory:
        if job_id not in self.histories:
            waited_s = time.monotonic() - job.submitted_s
            self.histories[job_id] = JobHistory(now_s - waited_s)
            self.histories[job_id].move(job.attempt, JobState.PENDING, now_s - waited_s)
            self._alive.add(job_id)
        return self.histories[job_id]

    def _follow_states(self, job_id: str, job: Job, now_s: float) -> None:
        seen = self._moves_seen.get(job_id, 0)
        if len(job.history) == seen:
            return
        self._moves_seen[job_id] = len(job.history)
        history, to_unix_s = self.histories[job_id], now_s - time.monotonic()
        for move in job.history[seen:]:
            # The two clocks are read one after the other: a job that starts in the moment of its
            # submission would start before it.
            at_s = max(history.state_since_s, move.at_s + to_unix_s)
            history.move(move.attempt, move.new, at_s, move.why)
        if job.state.is_final:
            self._alive.discard(job_id)


def _place(error: Exception) -> object:
    """The kind of an error and the line that raised it; its text may be another each time."""
    innermost = error.__traceback__
    while innermost is not None and innermost.tb_next is not None:
        innermost = innermost.tb_next
    if innermost is None:
        return type(error)
    return type(error), innermost.tb_frame.f_code.co_filename, innermost.tb_lineno
