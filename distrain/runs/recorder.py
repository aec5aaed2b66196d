"""Run directories that a command keeps up to date while its job runs."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from distrain.errors import InputError, OutputError
from distrain.jobs.run_paths import RunPaths
from distrain.jobs.spec.job import JobSpec
from distrain.jobs.states import JobState
from distrain.jobs.view import AttemptStarted, Entry, JobView, Record
from distrain.runs.history import Followed, History
from distrain.runs.places import RunPlace
from distrain.runs.records.replay import replay_reports
from distrain.runs.run_file import (
    RunFile,
    RunInUse,
    alone_in,
    check_new_run,
    locked,
    read_records,
    read_run_and_spec,
    read_run_file,
    read_summary,
    remove_run,
    write_spec,
)
from distrain.runs.summary import Summary, read_status, summarise
from distrain.runs.writer import RunWriter
from distrain.storage.outputs import check_writable, whole_file

DrawCurves = Callable[[Sequence[Record], str, Path], None]


def open_run(root: Path, spec: JobSpec, job_id: str, *, overwrite: bool = False) -> "RunRecorder":
    """Make a run directory, and write its `run.json` and the resolved spec.

    A run that never trained is removed, with `overwrite` any run. After an `OutputError` the
    directory is as it was; `RunInUse`: another command begins a run there.
    """
    paths = RunPaths(root)
    check_writable(root)
    with alone_in(root), ExitStack() as unless_opened:
        check_new_run(paths, overwrite=overwrite)
        if paths.run.exists():
            with locked(paths.run):
                remove_run(paths)
        unless_opened.callback(_forget, paths)
        RunFile.new(job_id).write(paths)
        write_spec(spec, paths)
        recorder = RunRecorder(paths)
        unless_opened.pop_all()
    return recorder


def reopen_run(root: Path, spec: JobSpec) -> "RunRecorder":
    """Go on with the run directory of a job that is resumed; `spec` replaces the one there.

    A job that ends before it trains leaves a run that had succeeded as it was. An `OutputError`: it
    cannot be written, or another command is at it; an `InputError`: its records cannot be read.
    """
    paths = RunPaths(root)
    check_writable(root)
    _leave_service(paths)
    with _kept(paths) as lock:
        before = read_status(paths) or read_summary(paths)  # of a command that broke off or ended
        recorder = RunRecorder(paths, read_records(paths), before, lock)
        recorder.catch_up()
        recorder.spec_before = paths.spec.read_bytes()
        write_spec(spec, paths)
    return recorder


def take_over_run(root: Path, job_id: str) -> "RunRecorder":
    """Go on with the run directory of a job that no command follows.

    An `InputError`: it holds no run, or that of another job; an `OutputError`: it cannot be
    written, or (`RunInUse`) another command is at it.
    """
    paths = RunPaths(root)
    run, _ = read_run_and_spec(root)
    if run.job_id != job_id:
        raise InputError(
            f"the directory holds the run of another job, {run.job_id}",
            where={"path": str(root), "job": job_id},
        )
    if run.service is not None:
        raise _kept_by_a_service(paths, run.service.id)
    check_writable(root)
    with _kept(paths) as lock:
        before = read_status(paths)
        recorder = RunRecorder(paths, read_records(paths), before, lock)
        recorder.same_job()
    return recorder


class RunRecorder(RunWriter):
    """Writes a command's run directory, one at a time, and locks `run.json`.

    The records stay in memory, so that those which a full disk did not take are written later.
    `records` are those of earlier attempts, `before` is the summary or status that the command
    before left, and `lock` the `run.json` that is locked already.
    """

    def __init__(
        self,
        paths: RunPaths,
        records: Iterable[Record] = (),
        before: Mapping[str, Any] | None = None,
        lock: BinaryIO | None = None,
    ):
        super().__init__(RunPlace(paths))
        self.history = History(records)
        self._followed = Followed(self.history.records)
        self._missed: list[Entry] = []
        self._left = dict(before or {})
        self.spec_before: bytes | None = None
        self._trains = False
        self._lock = locked(paths.run) if lock is None else lock

    def __enter__(self) -> "RunRecorder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._lock.close()

    def forget(self) -> None:
        """Undo the beginning of a job that was never submitted."""
        if self.spec_before is None:
            _forget(self.paths)
        else:
            self._put_spec_back()

    def _put_spec_back(self) -> None:
        if self.spec_before is not None:
            with whole_file(self.paths.spec) as partial:
                partial.write_bytes(self.spec_before)

    def catch_up(self) -> None:
        """Take in what was reported and never recorded; the next `add` passes it on."""
        self.history.complete(self._followed.made_again(replay_reports(self.paths), self._missed))
        self._end = None

    def same_job(self) -> None:
        """Count restarts once: the job outlived the command before, and its views have them all."""
        self._left = dict(self._left.get("earlier", self._left))

    @property
    def records(self) -> list[Record]:
        return self.history.records

    def add(self, view: JobView) -> list[Entry]:
        """Record what is new in a view, and return the entries that were not passed on yet.

        After an `OutputError` the file is unchanged; the next call writes and returns them, too.
        """
        if view.missed:  # nobody came by for long: the scheduler has forgotten what came between
            self.catch_up()
        self.history.add(view.progress)
        self._trains |= any(isinstance(entry, AttemptStarted) for entry in view.progress)
        self._missed += self._followed.new(view.progress)
        try:
            self._record(view, None)
        except BaseException:
            self._end = None  # the next call writes all that is in memory
            raise
        passed_on, self._missed = self._missed, []
        return passed_on

    def _merged(self, view: JobView) -> History:
        return self.history

    def _earlier(self) -> Mapping[str, Any]:
        return self._left

    def _write_status(self, view: JobView) -> None:
        with suppress(OutputError):  # a full disk is reported when records are written
            super()._write_status(view)

    def sum_up(self, view: JobView) -> Summary:
        return summarise(view, self.records, self._left)

    def finish(self, view: JobView, draw: DrawCurves | None = None) -> Summary:
        """Write the summary and, with `draw`, the curves; unlock the run."""
        with self:  # whoever comes now finds a run that is finished
            before = read_summary(self.paths) or {}
            had_succeeded = before.get("state") == JobState.SUCCEEDED.value
            if view.reason and not self._trains and had_succeeded:
                self._put_spec_back()
                self.paths.progress.unlink(missing_ok=True)
                return self.sum_up(view)
            summary = self._write_summary(view, self.records, None)
            if view.state is JobState.SUCCEEDED:
                self.place.remove_reports()
            if self.records and draw is not None:
                with whole_file(self.paths.curves) as partial:
                    draw(self.records, view.name, partial)
            return summary


def _leave_service(paths: RunPaths) -> None:
    """Remove the service from the `run.json` of a run that is finished."""
    if not paths.run.exists() or read_run_file(paths).service is None:
        return
    with alone_in(paths.root):
        run = read_run_file(paths)
        if run.service is None:
            return
        if not paths.is_finished:
            raise _kept_by_a_service(paths, run.service.id)
        replace(run, service=None).write(paths)


def _kept_by_a_service(paths: RunPaths, service: str) -> RunInUse:
    return RunInUse(
        "a job service keeps this run directory",
        where={"path": str(paths.root), "service": service},
        hint="Ask the service to cancel or resume the job. If it is gone for good, remove "
        '"service" from run.json.',
    )


def _forget(paths: RunPaths) -> None:
    """Remove the files that a run begins with, and the directory if it is empty then."""
    with suppress(OSError):
        for file in (paths.tables, paths.spec, paths.run):
            file.unlink(missing_ok=True)
        paths.root.rmdir()


@contextmanager
def _kept(paths: RunPaths) -> Iterator[BinaryIO]:
    """A run directory's lock, which outlives the block unless that fails."""
    lock = locked(paths.run)
    try:
        yield lock
    except BaseException:
        lock.close()
        raise
