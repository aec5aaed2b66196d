"""Run directories that a job service keeps: thousands in one process, and without locks.

A service's processes are fenced off from each other by the generations of their leases: `run.json`
names the highest that has written. It is looked at before each write; who has a lower one stops.
Between that look and the write another may have come; so `metrics.jsonl` is appended to only if it
is as this process left it, and is else read and written anew.
"""

import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from distrain.errors import OutputError
from distrain.jobs import AttemptStarted, JobState, JobView, Record
from distrain.progress import remove_reports, replay_reports
from distrain.reasons import Reason
from distrain.run_paths import RunPaths
from distrain.runs.history import History
from distrain.runs.lines import append, lines_of
from distrain.runs.locks import RunInUse, locked
from distrain.runs.recorder import check_new_run, is_finished
from distrain.runs.run_file import (
    RunFile,
    ServiceMark,
    read_records,
    read_run_file,
    read_summary,
    write_spec,
)
from distrain.runs.status import RunStatus, read_status
from distrain.runs.summary import Summary, summarise
from distrain.runs.validation import write_json
from distrain.spec import JobSpec
from distrain.storage import no_pipe, read_file, translated_errors, whole_file

MOST_BYTES = 2**27
"""Of `metrics.jsonl`: more is not read into a process that serves others, too."""


class NotOurs(RunInUse):
    """Another writes a service's run directory: a newer holder of its lease, or a command."""


class ServedRun:
    """Writes one run directory for a service, as `RunRecorder` does; one thread at a time.

    No file stays open, and no record in memory. Every method may be called again after it failed,
    also by another process.

    Args:
        root: The run directory.
        job_id: The job whose run it is.
        first_attempt: The first attempt of the job's current submission.
    """

    def __init__(self, root: Path, job_id: str, first_attempt: int = 1):
        self.paths = RunPaths(root)
        self._run_file = str(self.paths.run)
        self.job_id = job_id
        self.first_attempt = first_attempt
        self._mark: ServiceMark | None = None
        self._seen: tuple[int, ...] = ()  # the `run.json` that was looked at last
        self._end: _End | None = None  # of `metrics.jsonl`; `None`: it must be read
        self._resumed: dict[int, int] = {}
        self._next: tuple[int, dict[str, int]] = (0, {})
        self._before: Mapping[str, Any] | None = None
        self._status: RunStatus | None = None

    def begin(self, spec: JobSpec, mark: ServiceMark) -> None:
        """Make the directory, or go on with that of an earlier submission, and write the spec.

        Raises:
            RunInUse: Another process writes it now; `NotOurs`: with a newer lease.
            OutputError: It cannot be written, or holds something else.
        """
        with translated_errors(self.paths.root):
            self.paths.root.mkdir(parents=True, exist_ok=True)
        if self.paths.run.exists():
            run = read_run_file(self.paths)
            if run.service is None:
                self._check_job(run)
                locked(self.paths.run).close()  # or a command is at it
                replace(run, service=mark).write(self.paths)
            self._check(mark)
        else:
            check_new_run(self.paths)
            RunFile.new(self.job_id, mark).write(self.paths)
        with translated_errors(self.paths.tables):  # of the files as an earlier command found them
            self.paths.tables.unlink(missing_ok=True)
        write_spec(spec, self.paths)
        self._begin_status(spec)

    def add(self, view: JobView, mark: ServiceMark) -> None:
        """Record what is new in a view.

        Raises:
            NotOurs: The directory is another's by now; nothing was written.
            OutputError: Something could not be written; `metrics.jsonl` holds whole lines. The
                view must be given again, or be told of as missed.
            InputError: The files that are there cannot be read.
        """
        if self._has_all_of(view, mark):
            return
        fresh = self._fresh(view) if mark == self._mark and not view.missed else None
        is_there = self._end is not None and self._end.inode != 0
        if not fresh or not is_there:  # else `_append` looks, as near to its write as can be
            self._check(mark)
            fresh = None if view.missed else self._fresh(view)
        if fresh is None or not self._append(fresh, mark):
            self._merge(view, mark)
        self._resumed |= {
            entry.attempt: entry.step
            for entry in view.progress
            if isinstance(entry, AttemptStarted)
        }
        if not view.state.is_final:
            self._write_status(view)

    def finish(self, view: JobView, mark: ServiceMark) -> Summary:
        """Record a job's last view, and write its summary; errors as `add`."""
        self.add(view, mark)
        summary = summarise(view, read_records(self.paths, MOST_BYTES), self._earlier())
        self._check(mark)
        write_json(self.paths.summary, summary.to_json())
        with translated_errors(self.paths.progress):
            self.paths.progress.unlink(missing_ok=True)
        if view.state is JobState.SUCCEEDED:
            remove_reports(self.paths)
        self.forget()  # it is at work no more
        return summary

    def is_at_work(self, mark: ServiceMark) -> bool:
        """Whether this writes here under a mark already, and so knows that it has not finished.

        Who finishes the run under a newer mark is found by the look before the next write.
        """
        return mark == self._mark and self._end is not None

    def is_finished(self) -> bool:
        """Whether all is written of the current submission, and it has ended."""
        if not is_finished(self.paths):
            return False
        attempts = (read_summary(self.paths) or {}).get("attempts") or 0
        return attempts >= self.first_attempt - 1  # one that was cancelled in the queue had none

    def has_begun(self) -> bool:
        """Whether there is a run."""
        return self.paths.run.exists()

    def is_drawn(self) -> bool:
        """Whether its report was drawn after its summary was written."""
        try:
            drawn_ns = self.paths.report.stat().st_mtime_ns
        except FileNotFoundError:
            return False
        return drawn_ns >= self.paths.summary.stat().st_mtime_ns

    def has_unrecorded_attempts(self) -> bool:
        """Whether this submission follows others, and has recorded no attempt of its own yet."""
        status = read_status(self.paths) or {}
        return self.first_attempt > 1 and (status.get("attempts") or 0) < self.first_attempt

    def last_attempt(self) -> int:
        """The highest attempt that left anything in the directory; 0: none did."""
        return last_attempt(self.paths)

    def forget(self) -> None:
        """Take nothing for granted: the files are read before the next write."""
        self._seen, self._end = (), None
        self._before = self._status = None

    # Whose it is.

    def _check(self, mark: ServiceMark) -> None:
        """Raise unless the directory is this service's, and no newer holder's; take it over."""
        if mark != self._mark:
            self.forget()
        try:
            file = no_pipe(self._run_file, os.O_RDONLY)  # opened, so that NFS asks the server
            try:
                seen = _identity(os.fstat(file))
            finally:
                os.close(file)
        except OSError as error:
            raise OutputError(
                f"the run directory cannot be used: {error.strerror or error}",
                where={"path": str(self.paths.run)},
                hint="Was it removed while its job ran?",
            ) from None
        if seen == self._seen:
            return
        self._seen, self._mark = (), mark
        run = read_run_file(self.paths)
        self._check_job(run)
        if run.service is None:
            raise self._not_ours("a command has gone on with the run")
        if run.service.id != mark.id:
            raise self._occupied(f"another service keeps the run, {run.service.id}")
        if run.service.generation > mark.generation:
            newer = run.service.generation
            raise self._not_ours(
                f"a newer holder of the lease writes the run: generation {newer}, this one has "
                f"{mark.generation}"
            )
        if run.service != mark:
            replace(run, service=mark).write(self.paths)
            self.forget()
        with translated_errors(self.paths.run):
            self._seen = _identity(self.paths.run.stat())

    def _check_job(self, run: RunFile) -> None:
        if run.job_id != self.job_id:
            raise self._occupied(f"the directory holds the run of another job, {run.job_id}")

    def _occupied(self, message: str) -> OutputError:
        self.forget()
        return OutputError(
            message,
            where={"path": str(self.paths.root), "job": self.job_id},
            hint="Remove or rename the directory, or correct the cluster's run_root.",
        )

    def _not_ours(self, message: str) -> NotOurs:
        self.forget()
        where = {"path": str(self.paths.root), "job": self.job_id}
        return NotOurs(message, where=where, hint="This process writes nothing more there.")

    # The records.

    def _fresh(self, view: JobView) -> list[Record] | None:
        """The records that follow those of the file; `None` if they must be merged with them."""
        if self._end is None:
            return None
        attempt, steps = self._end.attempt, dict(self._end.steps)
        fresh = []
        for entry in view.progress:
            if isinstance(entry, AttemptStarted):
                if entry.attempt <= attempt or any(step > entry.step for step in steps.values()):
                    return None
                attempt = entry.attempt
            elif isinstance(entry, Record):
                last = steps.get(entry.split, -1)
                if entry.step == last:
                    continue
                if entry.step < last or entry.attempt != attempt:
                    return None
                steps[entry.split] = entry.step
                fresh.append(entry)
        self._next = attempt, steps
        return fresh

    def _append(self, fresh: list[Record], mark: ServiceMark) -> bool:
        """Append records; `False` if the file is not as it was left."""
        assert self._end is not None
        attempt, steps = self._next
        if fresh:
            path = self.paths.metrics
            with translated_errors(path), ExitStack() as stack:
                try:
                    file = stack.enter_context(open(path, "ab", buffering=0, opener=no_pipe))
                except FileNotFoundError:
                    return False  # nor is the directory there, as who looks next will say
                self._check(mark)
                if self._end is None or not self._end.is_that_of(file.fileno()):
                    return False
                append(file, lines_of(fresh))
                self._end = _End.of(file.fileno(), attempt, steps)
        else:
            self._end = replace(self._end, attempt=attempt, steps=steps)
        return True

    def _merge(self, view: JobView, mark: ServiceMark) -> None:
        """Merge a view with what the files hold, and write `metrics.jsonl` anew if it differs."""
        history = History(read_records(self.paths, MOST_BYTES), self._resumed)
        if view.missed or self.has_unrecorded_attempts():
            history.complete(replay_reports(self.paths))
        history.add(view.progress)
        path = self.paths.metrics
        found = read_file(path, MOST_BYTES) if path.exists() else b""
        lines = lines_of(history.records)
        self._check(mark)
        if lines != found:
            with whole_file(path) as partial:
                partial.write_bytes(lines)
        self._resumed = dict(history.resumed)
        steps: dict[str, int] = {}
        for record in history.records:
            steps[record.split] = max(record.step, steps.get(record.split, -1))
        known = [*history.resumed, *(record.attempt for record in history.records)]
        self._end = _End.of(path, max(known, default=0), steps)

    # How it stands.

    def _has_all_of(self, view: JobView, mark: ServiceMark) -> bool:
        """Whether the files have all of a view, as when one rank of many has reported."""
        if view.progress or view.missed or view.state.is_final:
            return False
        if mark != self._mark or self._end is None or self._status is None:
            return False
        return RunStatus.of(view, self._earlier(), self.first_attempt) == self._status

    def _begin_status(self, spec: JobSpec) -> None:
        """Write that the submission waits, with what earlier ones left; once."""
        found = read_status(self.paths)
        if (found or {}).get("first_attempt") == self.first_attempt:
            return
        summary = read_summary(self.paths) or {}
        if found is None and (summary.get("attempts") or 0) >= self.first_attempt:
            return  # it has ended
        before = dict(found or summary)
        if before.get("first_attempt") and before.get("attempts"):
            before |= self._lost()
        self._before = before
        pending = JobView(
            self.job_id,
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
        """What earlier submissions left."""
        if self._before is None:
            self._before = (read_status(self.paths) or {}).get("earlier") or {}
        return self._before

    def _write_status(self, view: JobView) -> None:
        status = RunStatus.of(view, self._earlier(), self.first_attempt)
        if status != self._status:
            status.write(self.paths)
            self._status = status


@dataclass(frozen=True)
class _End:
    """The end of `metrics.jsonl` as this process left it.

    Attributes:
        inode: The file.
        attempt: The last attempt that is known.
        steps: By split, the last step.
    """

    inode: int
    size_bytes: int
    attempt: int
    steps: Mapping[str, int]

    @classmethod
    def of(cls, file: int | Path, attempt: int, steps: Mapping[str, int]) -> "_End":
        try:
            found = os.stat(file)
        except FileNotFoundError:  # there are no records yet
            return cls(0, 0, attempt, steps)
        return cls(found.st_ino, found.st_size, attempt, steps)

    def is_that_of(self, file: int) -> bool:
        found = os.fstat(file)
        same = found.st_ino == self.inode or not self.size_bytes
        return same and found.st_size == self.size_bytes


def last_attempt(paths: RunPaths) -> int:
    """The highest attempt that left anything in a run directory; 0: none did."""
    return max(0, told_attempts(paths), *paths.attempts())


def told_attempts(paths: RunPaths) -> int:
    """The highest attempt that status or summary tell of."""
    found = (read_status(paths) or {}, read_summary(paths) or {})
    return max(document.get("attempts") or 0 for document in found)


def _identity(found: os.stat_result) -> tuple[int, ...]:
    return found.st_ino, found.st_mtime_ns, found.st_size
