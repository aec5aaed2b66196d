"""Writes a service's run directories: thousands in one process, without open files."""

from collections.abc import Mapping
from typing import Any

from distrain.jobs.reasons import Reason
from distrain.jobs.spec.job import JobSpec
from distrain.jobs.states import JobState
from distrain.jobs.view import AttemptStarted, JobView
from distrain.runs.history import History
from distrain.runs.places import LeasedFolder
from distrain.runs.records.replay import replay_reports
from distrain.runs.run_file import ServiceMark, read_records, read_summary, write_spec
from distrain.runs.summary import RunStatus, Summary, read_status
from distrain.runs.writer import RunWriter
from distrain.storage.outputs import translated_errors

MOST_BYTES = 2**27
"""Of `metrics.jsonl`: more is not read into a process that serves others, too."""


class ServedRun(RunWriter):
    """Writes one run directory for a service; one thread at a time.

    No file stays open, and no record in memory. Every method may be called again after it failed,
    also by another process. `first_attempt` is the first one of the job's current submission.
    """

    place: LeasedFolder
    most_bytes = MOST_BYTES
    first_attempt: int

    def __init__(self, place: LeasedFolder, first_attempt: int = 1):
        super().__init__(place, first_attempt)
        self._resumed: dict[int, int] = {}

    def begin(self, spec: JobSpec, mark: ServiceMark) -> None:
        """Make the directory, or go on with that of an earlier submission, and write the spec.

        `RunInUse`: another process writes it now (`NotOurs`: with a newer lease); another
        `OutputError`: it cannot be written, or holds something else.
        """
        with self._written(mark):
            self.place.begin(mark)
            self._check(mark)
            with translated_errors(self.paths.tables):  # files as an earlier command listed them
                self.paths.tables.unlink(missing_ok=True)
            write_spec(spec, self.paths)
            self._begin_status(spec)

    def add(self, view: JobView, mark: ServiceMark) -> None:
        """Record what is new in a view.

        After `NotOurs` nothing was written: the directory is another's by now. After another
        `OutputError` `metrics.jsonl` holds whole lines, and the view must be given again, or
        counted as missed. An `InputError`: the files that are there cannot be read.
        """
        with self._written(mark) as fetched:
            if fetched and not view.state.is_final and self.is_finished():
                return  # another holder of the lease has finished it: this view is late
            self._record_served(view, mark)

    def finish(self, view: JobView, mark: ServiceMark) -> Summary:
        """Record a job's last view, and write its summary; errors as `add`."""
        with self._written(mark, whole=True):
            self._record_served(view, mark)
            summary = self._write_summary(view, read_records(self.paths, MOST_BYTES), mark)
            self._reset()  # it is at work no more
        if view.state is JobState.SUCCEEDED:  # what was not published must be made of them again
            self.place.remove_reports()
        return summary

    def is_at_work(self, mark: ServiceMark) -> bool:
        """Whether this has written under a mark already, so that the run has not finished.

        The check before the next write shows whether a newer holder has finished it.
        """
        return mark == self.place.mark and self._end is not None

    def is_finished(self) -> bool:
        """Whether all is written of the current submission, and it has ended."""
        self.place.look()
        if not self.paths.is_finished:
            return False
        attempts = (read_summary(self.paths) or {}).get("attempts") or 0
        return attempts >= self.first_attempt - 1  # one that was cancelled in the queue had none

    def has_begun(self) -> bool:
        self.place.look()
        return self.paths.run.exists()

    def is_drawn(self) -> bool:
        return self.place.is_drawn()

    def last_attempt(self) -> int:
        """The highest attempt that left anything in the directory; 0: none did."""
        self.place.look()
        documents = (read_status(self.paths) or {}, read_summary(self.paths) or {})
        reported = (document.get("attempts") or 0 for document in documents)
        return max(0, *reported, *self.place.attempts())

    def forget(self) -> None:
        self._reset()
        self.place.forget()

    def _record_served(self, view: JobView, mark: ServiceMark) -> None:
        self._record(view, mark)
        self._resumed |= {
            entry.attempt: entry.step
            for entry in view.progress
            if isinstance(entry, AttemptStarted)
        }

    def _merged(self, view: JobView) -> History:
        history = History(read_records(self.paths, MOST_BYTES), self._resumed)
        if view.missed or self._has_unrecorded_attempts():
            self.place.bring_reports()
            history.complete(replay_reports(self.paths))
        history.add(view.progress)
        self._resumed = dict(history.resumed)
        return history

    def _has_unrecorded_attempts(self) -> bool:
        """Whether this submission follows others, and has recorded no attempt of its own yet."""
        status = read_status(self.paths) or {}
        return self.first_attempt > 1 and (status.get("attempts") or 0) < self.first_attempt

    def _begin_status(self, spec: JobSpec) -> None:
        """Write that the submission waits, with what earlier ones left; once."""
        status = read_status(self.paths)
        if (status or {}).get("first_attempt") == self.first_attempt:
            return
        summary = read_summary(self.paths) or {}
        if status is None and (summary.get("attempts") or 0) >= self.first_attempt:
            return  # it has ended
        before = dict(status or summary)
        if before.get("first_attempt") and before.get("attempts"):
            before |= self._lost()
        self._before = before
        pending = JobView(
            self.place.job_id,
            spec.name,
            JobState.PENDING,
            self.first_attempt - 1,
            spec.resources.num_ranks,
        )
        self._status = RunStatus.of(pending, before, self.first_attempt)
        self._status.write(self.paths)

    def _lost(self) -> dict[str, Any]:
        """How a submission ended that is followed by another, and has no summary."""
        records = read_records(self.paths, MOST_BYTES)
        return {
            "reason": Reason.COORDINATOR_LOST,
            "message": "the scheduler was lost, and the job went on with another",
            "steps": records[-1].step if records else 0,
        }

    def _earlier(self) -> Mapping[str, Any]:
        if self._before is None:
            self._before = (read_status(self.paths) or {}).get("earlier") or {}
        return self._before
