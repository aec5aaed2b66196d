"""Has workers write what the run folders of jobs get; the scheduler itself writes nothing.

While an attempt runs, each new entry is sent to the supervisor of rank 0, the only writer of the
attempt's file. When a job has ended and that file is closed, a worker writes the summary,
preferably that of rank 0. If the worker is lost before it answers, another worker is asked; without
any worker, the next one to connect. Entries that a dead worker had not written are sent again with
the next attempt; readers use each record once. Pure: sending and time are passed in.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from distrain.jobs.events import EvaluationDone, Event, Heartbeat, RankStarted, StepsDone
from distrain.jobs.view import JobView, Record, entry_to_json
from distrain.runs.attempt_file import Line, StatusLines
from distrain.runs.records.entries import EntryLog
from distrain.workers.supervisor import COMMAND_OP, SUMMARY_OP, rank_key

CLOSED_WITHIN_S = 45.0  # how long the last attempt's file is waited for before the summary
ASK_AGAIN_S = 60.0  # when another worker is asked for a summary

SENT_AGAIN = 100  # the last entries, whose records go into the next attempt's file, too

NO_WORKER = "no worker is there to write the summary; the next one that comes writes it"

_OFTEN = (Heartbeat, StepsDone, EvaluationDone)

Send = Callable[[str, Mapping[str, Any]], bool]
"""Sends a message to a worker by its address; returns whether it is connected."""


@dataclass
class _Job:
    attempt: int = 0  # the last one that was begun
    worker: str = ""  # that of its rank 0
    is_open: bool = False  # whether its file is there
    is_closed: bool = True  # whether nothing more is written to it
    num_sent: int = 0  # entries of the job's progress
    late: Sequence[Line] = ()  # records of earlier attempts, to be sent once more
    status: StatusLines = field(default_factory=StatusLines)
    summary: Mapping[str, Any] | None = None  # the message that asks for it, once the job has ended
    ended_s: float = 0.0
    asked: str = ""  # the worker that was asked for it
    asked_s: float = 0.0
    recorded: bool = False
    error: str = ""


class Recordings:
    """The records and summaries of all jobs on their way to workers."""

    def __init__(self, send: Send):
        self._send = send
        self._jobs: dict[str, _Job] = {}
        self._ending: set[str] = set()  # jobs that have ended and whose summary is not written

    def begin_attempt(self, job_id: str, attempt: int, worker: str, entries: EntryLog) -> None:
        """Note that an attempt is launched, with its rank 0 on a worker."""
        last = entries.since(len(entries) - SENT_AGAIN)
        late = [entry_to_json(entry) for entry in last if isinstance(entry, Record)]
        num_sent = len(entries)
        self._jobs[job_id] = _Job(attempt, worker, is_closed=False, num_sent=num_sent, late=late)

    def add(
        self, job_id: str, event: Event, entries: EntryLog, view: Callable[[], JobView]
    ) -> None:
        """Send what an event of the current attempt has added to the job's progress."""
        job = self._jobs.get(job_id)
        if job is None:
            return
        job.is_open |= isinstance(event, RankStarted) and event.rank == 0
        if job.is_open and not (isinstance(event, _OFTEN) and len(entries) == job.num_sent):
            self._record(job_id, job, entries, None if isinstance(event, _OFTEN) else view())

    def end_attempt(self, job_id: str, entries: EntryLog, view: JobView) -> None:
        """Send the last entries of an attempt, and have its file closed."""
        job = self._jobs.get(job_id)
        if job is not None:
            self._record(job_id, job, entries, view, op="end_records")
            job.is_closed |= not job.is_open

    def end_job(self, job_id: str, run_dir: str, view: JobView, first: int, now_s: float) -> None:
        """Have the summary of a job that has ended written; `first` is its first attempt."""
        job = self._jobs.setdefault(job_id, _Job())
        job.summary = {
            "op": SUMMARY_OP,
            "job_id": job_id,
            "run_dir": run_dir,
            "view": view.to_json(),
            "first_attempt": first,
        }
        job.ended_s = now_s
        self._ending.add(job_id)

    def heard(self, job_id: str, attempt: int | None, error: str) -> None:
        """Note a worker's answer: an attempt's file is closed, or (`None`) a summary written."""
        job = self._jobs.get(job_id)
        if job is None:
            return
        if attempt is None:
            job.recorded, job.error = not error, error
            self._ending.discard(job_id)
        elif attempt == job.attempt:
            job.is_closed = True

    def advance(self, workers: Collection[str], now_s: float) -> None:
        """Ask workers for the summaries that are due."""
        for job_id in list(self._ending):
            job = self._jobs[job_id]
            waits = not job.is_closed and job.worker in workers
            if waits and now_s - job.ended_s < CLOSED_WITHIN_S:
                continue
            if job.asked in workers and now_s - job.asked_s < ASK_AGAIN_S:
                continue
            self._ask(job, workers, now_s)

    def outcome(self, job_id: str) -> tuple[bool, str]:
        """Whether a job's summary is written, and why not."""
        job = self._jobs.get(job_id)
        return (False, "") if job is None else (job.recorded, job.error)

    def forget(self, job_id: str) -> None:
        self._jobs.pop(job_id, None)
        self._ending.discard(job_id)

    def _record(
        self, job_id: str, job: _Job, entries: EntryLog, view: JobView | None, op: str = "record"
    ) -> None:
        lines = [] if view is None else job.status.new(view)
        lines += [*job.late, *map(entry_to_json, entries.since(job.num_sent))]
        job.num_sent, job.late = len(entries), ()
        if lines or op != "record":
            words = {"op": op, "lines": lines}
            key = rank_key(job_id, job.attempt, 0)
            self._send(job.worker, {"op": COMMAND_OP, "key": key, "words": words})

    def _ask(self, job: _Job, workers: Collection[str], now_s: float) -> None:
        assert job.summary is not None
        others = sorted(worker for worker in workers if worker != job.asked)
        first = [job.worker] if job.worker in others else []
        for worker in (*first, *others):
            job.asked, job.asked_s, job.error = worker, now_s, ""  # before an answer can come
            if self._send(worker, job.summary):
                return
        job.asked, job.error = "", NO_WORKER
