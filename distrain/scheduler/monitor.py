"""Makes the documents of a coordinator's jobs, for pages, handlers and Prometheus."""

import time
from collections.abc import Iterator
from typing import Any

from distrain.scheduler.gpus import gpu_of
from distrain.scheduler.history.job_json import (
    Watched,
    job_document,
    job_summary,
    metrics_document,
)
from distrain.scheduler.plugin import CoordinatorPlugin


class Monitor:
    def __init__(self, coordinator: CoordinatorPlugin):
        self.coordinator = coordinator

    def jobs(self) -> dict[str, Any]:
        """Return the summaries of all jobs, the newest first, under `jobs`."""
        return {"jobs": [job_summary(job) for job in self.watched()]}

    def job(self, job_id: str, *, all_ranks: bool = False) -> dict[str, Any] | None:
        """Return the `job_document` of a job; `None` if the job is unknown or was removed."""
        if job_id not in self.coordinator.histories:
            return None
        return job_document(self.watched_job(job_id), all_ranks=all_ranks)

    def metrics(self, job_id: str, since: str | None = None) -> dict[str, Any] | None:
        """Return a job's `metrics_document`; `None` if the job is unknown or was removed.

        Raises `ValueError` if `since` is not a cursor.
        """
        history = self.coordinator.histories.get(job_id)
        return None if history is None else metrics_document(history, since)

    def watched(self) -> Iterator[Watched]:
        """Yield all jobs with their histories, the newest first."""
        return map(self.watched_job, reversed(self.coordinator.histories))

    def watched_job(self, job_id: str) -> Watched:
        """Return a job with its history and GPUs; raises `KeyError` if the job is unknown."""
        coordinator = self.coordinator
        job, known = coordinator.lifecycle.jobs[job_id], coordinator.scheduler.workers
        workers = [status.placement.slot.worker for status in job.ranks.values()]
        gpus = {worker: gpu for worker in workers if (gpu := gpu_of(known.get(worker)))}
        view, history = coordinator.show(job_id), coordinator.histories[job_id]
        return Watched(view, job, history, time.time(), gpus)
