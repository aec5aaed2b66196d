"""Follows one job: chooses it, and gets its document and the points since the last look."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from distrain.jobs.states import JobState
from distrain.scheduler.dashboard.figure_data import Document
from distrain.scheduler.dashboard.job_text import NEWEST

DOCUMENTS = "distrain-documents"  # the key of `Documents` in a scheduler's extensions


class Documents(Protocol):
    def jobs(self) -> Document:
        """Return all jobs, newest first, under `jobs`."""

    def job(self, job_id: str) -> Document | None:
        """Return one job with its ranks and time line; `None` if it is unknown."""

    def metrics(self, job_id: str, since: str | None) -> Document | None:
        """Return a job's series from a cursor on; `None` if the job is unknown."""


@dataclass(frozen=True)
class View:
    jobs: Sequence[Document]  # all jobs, newest first
    job: Document | None  # the followed job with its ranks and time line, if any
    metrics: Mapping[str, Any] = field(default_factory=dict)  # its new points
    replaces: bool = False  # whether these points replace all that was drawn
    missing: str = ""  # the job that was asked for, if it is unknown
    other: "View | None" = None  # the view of the job to compare with


def pick(jobs: Sequence[Document], wanted: str) -> str | None:
    """Return the job to follow: `wanted`, or `None` if it is unknown.

    For `NEWEST`, the newest running job, else the newest waiting one, else the newest one.

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
    """Returns the new data of the job `wanted`, or as chosen for `NEWEST`, at each `look`.

    `documents` returns `None` while the scheduler has no coordinator; then there are no jobs.
    """

    def __init__(self, documents: Callable[[], Documents | None], wanted: str = NEWEST):
        self.wanted = wanted
        self.documents = documents
        self._job_id: str | None = None
        self._cursor: str | None = None

    def look(self) -> View:
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
