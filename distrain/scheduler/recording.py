"""Has workers write records and summaries to jobs' run folders; the scheduler writes no files.

While an attempt runs, each new entry of the job's progress is sent to the supervisor of rank 0, the
only writer of the attempt's file. When a job has ended, a worker writes the summary, preferably
rank 0's worker. The request waits until the last attempt's file is closed, but only while rank 0's
worker is connected, and at most `CLOSED_WITHIN_S`. If the asked worker is lost, or does not answer
within `ASK_AGAIN_S`, another worker gets the request; if there is none, the next worker that
connects. The last records are sent again with the next attempt, since a dead worker may not have
written them; readers use each record once.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from distrain.jobs.events import EvaluationDone, Event, Heartbeat, RankStarted, StepsDone
from distrain.jobs.job_view import JobView, Record, entry_to_json
from distrain.runs.attempt_file import Line, StatusLines
from distrain.runs.records.entries import EntryLog
from distrain.workers.supervisor import COMMAND_OP, SUMMARY_OP, rank_key

CLOSED_WITHIN_S = 45.0  # how long a summary waits until the last attempt's file is closed
ASK_AGAIN_S = 60.0  # how long a worker may take for a summary before another one is asked

SENT_AGAIN = 100  # records among the last 100 entries also go into the next attempt's file

NO_WORKER = "no worker is available to write the summary; the next worker writes it"

_OFTEN = (Heartbeat, StepsDone, EvaluationDone)

Send = Callable[[str, Mapping[str, Any]], bool]
"""Sends a message to the worker at an address; returns False if the worker is not connected."""


@dataclass
class _Job:
    """The state of a job's records and summary."""

    attempt: int = 0  # the last attempt that began
    worker: str = ""  # the worker of its rank 0
    is_open: bool = False  # whether the attempt's file exists
    is_closed: bool = True  # whether nothing more is written to the file
    num_sent: int = 0  # number of entries of the job's progress that were sent
    late: Sequence[Line] = ()  # records of earlier attempts, to be sent once more
    status: StatusLines = field(default_factory=StatusLines)
    summary: Mapping[str, Any] | None = None  # the message that requests it, once the job has ended
    ended_s: float = 0.0  # when the job ended
    asked: str = ""  # the worker to which `summary` was sent
    asked_s: float = 0.0  # when it was sent
    recorded: bool = False  # whether the summary is written
    error: str = ""  # why it is not written; "" while there is no error


class Recordings:
    """Has workers write the files of all jobs' runs: the attempts' records, and the summaries.

    A job's summary is requested once the job has ended.
    """

    def __init__(self, send: Send):
        self._send = send
        self._jobs: dict[str, _Job] = {}
        self.ending = set[str]()  # jobs that have ended and whose summary is not written

    def begin_attempt(self, job_id: str, attempt: int, worker: str, entries: EntryLog) -> None:
        """Note that an attempt begins, and that its rank 0 is on the worker at address `worker`.

        `entries` is the job's progress so far.
        """
        last = entries.since(len(entries) - SENT_AGAIN)
        late = [entry_to_json(entry) for entry in last if isinstance(entry, Record)]
        num_sent = len(entries)
        self._jobs[job_id] = _Job(attempt, worker, is_closed=False, num_sent=num_sent, late=late)

    def add(
        self, job_id: str, event: Event, entries: EntryLog, view: Callable[[], JobView]
    ) -> None:
        """Send the job's new entries to rank 0's supervisor.

        It is called after each event of the current attempt. After events of types not in `_OFTEN`,
        a status line with the facts of `view()` that have changed is sent, too. Nothing is sent
        until rank 0 has started.
        """
        job = self._jobs.get(job_id)
        if job is None:
            return
        job.is_open |= isinstance(event, RankStarted) and event.rank == 0
        if job.is_open and not (isinstance(event, _OFTEN) and len(entries) == job.num_sent):
            self._record(job_id, job, entries, None if isinstance(event, _OFTEN) else view())

    def end_attempt(self, job_id: str, entries: EntryLog, view: JobView) -> None:
        """Send the last entries of an attempt that ends, and the command to close its file."""
        job = self._jobs.get(job_id)
        if job is not None:
            self._record(job_id, job, entries, view, op="end_records")
            job.is_closed |= not job.is_open

    def end_job(self, job_id: str, run_dir: str, view: JobView, first: int, now_s: float) -> None:
        """Note that a job has ended, so that `advance` requests its summary.

        `first` is the first attempt of the job's last submission.
        """
        job = self._jobs.setdefault(job_id, _Job())
        job.summary = {
            "op": SUMMARY_OP,
            "job_id": job_id,
            "run_dir": run_dir,
            "view": view.to_json(),
            "first_attempt": first,
        }
        job.ended_s = now_s
        self.ending.add(job_id)

    def heard(self, job_id: str, attempt: int | None, error: str) -> None:
        """Process the answer of a worker about a job.

        With an `attempt`, the worker has closed that attempt's file. If `attempt` is `None`, the
        worker has written the summary (`error` is ""), or could not (`error` is the reason); in
        both cases the summary is not requested again.
        """
        job = self._jobs.get(job_id)
        if job is None:
            return
        if attempt is None:
            job.recorded, job.error = not error, error
            self.ending.discard(job_id)
        elif attempt == job.attempt:
            job.is_closed = True

    def advance(self, workers: Collection[str], now_s: float) -> None:
        """Request the summaries that are due; `workers` are the connected workers' addresses.

        `now_s` is on the same clock as that of `end_job`.
        """
        for job_id in list(self.ending):
            job = self._jobs[job_id]
            waits = not job.is_closed and job.worker in workers
            if waits and now_s - job.ended_s < CLOSED_WITHIN_S:
                continue
            if job.asked in workers and now_s - job.asked_s < ASK_AGAIN_S:
                continue
            self._ask(job, workers, now_s)

    def outcome(self, job_id: str) -> tuple[bool, str]:
        """Return whether a job's summary is written, and why not; "" while there is no error."""
        job = self._jobs.get(job_id)
        return (False, "") if job is None else (job.recorded, job.error)

    def forget(self, job_id: str) -> None:
        self._jobs.pop(job_id, None)
        self.ending.discard(job_id)

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
