"""Follows one job for a page: chooses the job, gets its document and its curves' new points."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from distrain.jobs.states import JobState
from distrain.scheduler.dashboard.figure_data import Document
from distrain.scheduler.dashboard.job_text import NEWEST
from distrain.scheduler.monitor import Monitor

DOCUMENTS = "distrain-documents"  # the key of the `Monitor` in a scheduler's extensions


@dataclass(frozen=True)
class View:
    """The data for one update of a page, as `Watch.refresh` returns them."""

    jobs: Sequence[Document]  # all jobs, newest first
    job: Document | None  # the followed job with its ranks and time line, if any
    # the followed job's `metrics_document`, with the points since the last look
    metrics: Mapping[str, Any] = field(default_factory=dict)
    replaces: bool = False  # whether these points replace all points drawn so far
    missing: str = ""  # the id of the wanted job, if it is unknown
    other: "View | None" = None  # the view of the job to compare with


def pick(jobs: Sequence[Document], wanted: str) -> str | None:
    """Return the id of the job to follow: `wanted`, or `None` if it is unknown.

    If `wanted` is `NEWEST`, it is the newest running job, else the newest job that has not ended,
    else the newest job, else `None`. `jobs` begins with the newest one.

    >>> jobs = [{"id": "b", "state": "failed"}, {"id": "a", "state": "running"}]
    >>> pick(jobs, ""), pick(jobs, "b"), pick(jobs, "forgotten"), pick([], "")
    ('a', 'b', None, None)
    """
    ids = [str(job["id"]) for job in jobs]
    if wanted != NEWEST:
        return wanted if wanted in ids else None
    states = [JobState(job["state"]) for job in jobs]
    running = [job_id for job_id, s in zip(ids, states, strict=True) if s is JobState.RUNNING]
    alive = [job_id for job_id, s in zip(ids, states, strict=True) if not s.is_final]
    return next(iter([*running, *alive, *ids]), None)


class Watch:
    """Follows a job for a page: the one that `pick` chooses for `wanted`.

    `refresh` returns new data. `documents` returns the scheduler's monitor, or `None` while it has
    no coordinator, and so no jobs. `wanted` may be changed between two calls of `refresh`.
    """

    def __init__(self, documents: Callable[[], Monitor | None], wanted: str = NEWEST):
        self.wanted = wanted
        self.documents = documents
        self._job_id: str | None = None
        self._cursor: str | None = None

    def refresh(self) -> View:
        """Return all jobs, the followed job's document, and the new points of its curves.

        If another job is followed than in the last call, all points are returned, and `replaces` is
        True.
        """
        documents = self.documents()
        jobs = documents.jobs()["jobs"] if documents else []
        job_id = pick(jobs, self.wanted)
        job = documents.job(job_id) if documents and job_id else None
        missing = self.wanted if job is None else ""
        other_job = job_id != self._job_id
        if other_job:
            self._job_id, self._cursor = job_id, None
        if documents is None or job_id is None or job is None:
            return View(jobs, None, {}, replaces=other_job, missing=missing)
        metrics = documents.metrics(job_id, self._cursor) or {}
        self._cursor = metrics.get("cursor")
        return View(jobs, job, metrics, replaces=other_job or bool(metrics.get("restart")))
