"""Follows one job's documents: chooses the job and asks for what is new since the last look."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from distrain.jobs.states import JobState
from distrain.scheduler.dashboard.figure_data import Document
from distrain.scheduler.dashboard.job_text import NEWEST

DOCUMENTS = "distrain-documents"  # the name of a scheduler's documents among its extensions


class Documents(Protocol):
    def jobs(self) -> Document:
        """All jobs, newest first, under `jobs`."""

    def job(self, job_id: str) -> Document | None:
        """One job with its ranks and time line; `None` if it is forgotten."""

    def metrics(self, job_id: str, since: str | None) -> Document | None:
        """Its series from a cursor on; `None` if it is forgotten."""


@dataclass(frozen=True)
class View:
    jobs: Sequence[Document]  # all jobs, newest first
    job: Document | None  # the followed job with its ranks and time line, if any
    metrics: Mapping[str, Any] = field(default_factory=dict)  # its new points
    anew: bool = False  # whether these points replace all that was drawn
    missing: str = ""  # the job that was asked for, if it is unknown
    other: "View | None" = None  # the view of the job to compare with


def pick(jobs: Sequence[Document], wanted: str) -> str | None:
    """The job to follow: the wanted one, or else the newest that runs, waits, or has ended.

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
    """Returns new data of the job `wanted`, or of `NEWEST`, at each look.

    There are no documents while the scheduler has no coordinator.
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
            return View(jobs, None, {}, anew=other_job, missing=missing)
        metrics = documents.metrics(job_id, self._cursor) or {}
        self._cursor = metrics.get("cursor")
        return View(jobs, job, metrics, anew=other_job or bool(metrics.get("restart")))
