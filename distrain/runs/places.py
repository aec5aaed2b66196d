"""Where a run directory lies, and whether this process may write it.

A service's processes are fenced off from each other by the generations of their leases: `run.json`
names the highest that has written. It is compared before each write; a lower one writes nothing.
Between that check and the write another may have come; so `metrics.jsonl` is appended to only if
it is as this process left it, and is else read and written anew.
"""

import os
from dataclasses import replace
from pathlib import Path

from distrain.errors import OutputError
from distrain.jobs.run_paths import RunPaths
from distrain.runs.records.kept_reports import remove_reports
from distrain.runs.run_file import (
    RunFile,
    RunInUse,
    ServiceMark,
    check_new_run,
    locked,
    read_run_file,
)
from distrain.storage.outputs import no_pipe, translated_errors


class NotOurs(RunInUse):
    """A service's run directory has another writer: a newer holder of its lease, or a command."""


class RunPlace:
    """A folder that nobody else writes: its `run.json` is locked."""

    def __init__(self, paths: RunPaths):
        self.paths = paths  # of the folder of this machine in which files are written
        self.mark: ServiceMark | None = None  # the lease under which it was checked last

    def fetch(self, mark: ServiceMark | None) -> bool:
        """Bring the published files into the folder; returns whether they have changed."""
        return False

    def check(self, mark: ServiceMark | None) -> bool:
        """Raise unless this process may write; returns whether another may have written."""
        return False

    def publish(self, mark: ServiceMark | None, *, whole: bool) -> None:
        """Publish what was written; with `whole` the records as one object."""

    def look(self) -> None:
        """Bring what `is_finished` asks for into the folder."""

    def forget(self) -> None:
        """Drop what was not published, and check `run.json` itself before the next write."""

    def attempts(self) -> tuple[int, ...]:
        return self.paths.attempts()

    def bring_reports(self) -> None: ...

    def remove_reports(self) -> None:
        remove_reports(self.paths)

    def is_drawn(self) -> bool:
        try:
            drawn_ns = self.paths.report.stat().st_mtime_ns
        except FileNotFoundError:
            return False
        return drawn_ns >= self.paths.summary.stat().st_mtime_ns


class LeasedFolder(RunPlace):
    """A folder that a service writes, without a lock and without an open file."""

    def __init__(self, root: Path, job_id: str):
        super().__init__(RunPaths(root))
        self.job_id = job_id
        self._run_file = str(self.paths.run)
        self._seen: tuple[int, ...] = ()  # the `run.json` that was checked last

    def begin(self, mark: ServiceMark) -> None:
        """Make the folder this service's; errors as `ServedRun.begin`."""
        with translated_errors(self.paths.root):
            self.paths.root.mkdir(parents=True, exist_ok=True)
        if not self.paths.run.exists():
            check_new_run(self.paths)
            RunFile.new(self.job_id, mark).write(self.paths)
            return
        run = read_run_file(self.paths)
        if run.service is None:
            self.check_job(run.job_id)
            locked(self.paths.run).close()  # a command may be at it
            replace(run, service=mark).write(self.paths)

    def check(self, mark: ServiceMark | None) -> bool:
        assert mark is not None
        try:
            return self._check(mark)
        except BaseException:
            self.forget()
            raise

    def _check(self, mark: ServiceMark) -> bool:
        changed = mark != self.mark
        try:
            file = no_pipe(self._run_file, os.O_RDONLY)  # opened, so that NFS asks the server
            try:
                identity = _identity(os.fstat(file))
            finally:
                os.close(file)
        except OSError as error:
            raise self.no_run(error.strerror or str(error)) from None
        if identity == self._seen and not changed:
            return False
        self._seen, self.mark = (), mark
        run = read_run_file(self.paths)
        self.check_job(run.job_id)
        if run.service is None:
            raise self.not_ours("a command has gone on with the run")
        self.check_mark(run.service, mark)
        if run.service != mark:
            replace(run, service=mark).write(self.paths)
            changed = True
        with translated_errors(self.paths.run):
            self._seen = _identity(self.paths.run.stat())
        return changed

    def check_mark(self, written: ServiceMark, mark: ServiceMark) -> None:
        """Raise if another service, or a newer holder of the lease, has written."""
        if written.id != mark.id:
            raise self._occupied(f"another service keeps the run, {written.id}")
        if written.generation > mark.generation:
            raise self.not_ours(
                f"a newer holder of the lease writes the run: generation {written.generation}, "
                f"this one has {mark.generation}"
            )

    def forget(self) -> None:
        self._seen = ()

    def check_job(self, job_id: str) -> None:
        if job_id != self.job_id:
            raise self._occupied(f"the directory holds the run of another job, {job_id}")

    def _where(self) -> dict[str, object]:
        return {"path": str(self.paths.root), "job": self.job_id}

    def no_run(self, why: str) -> OutputError:
        return OutputError(
            f"the run directory cannot be used: {why}",
            where=self._where(),
            hint="Was it removed while its job ran?",
        )

    def _occupied(self, message: str) -> OutputError:
        hint = "Remove or rename the directory, or correct the cluster's run_root."
        return OutputError(message, where=self._where(), hint=hint)

    def not_ours(self, message: str) -> NotOurs:
        return NotOurs(message, where=self._where(), hint="This process writes nothing more there.")


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return status.st_ino, status.st_mtime_ns, status.st_size
