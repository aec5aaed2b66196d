"""Begins and resumes run folders, one command at a time."""

from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from distrain.jobs.run_paths import RunPaths
from distrain.jobs.spec.job import JobSpec
from distrain.runs.run_file import (
    RunFile,
    RunInUse,
    check_new_run,
    exclusive_run_dir,
    is_finished,
    locked,
    read_run_file,
    remove_run,
    write_spec,
)
from distrain.storage.outputs import atomic_file, check_writable


class OpenRun(AbstractContextManager["OpenRun"]):
    """A run folder whose `run.json` is locked, so that no other command begins or resumes its run.

    The lock ends with the `with` block.

    Args:
        lock: The locked file.
        spec_before: The spec's text before the run was resumed; `None` for a new run.
    """

    def __init__(self, paths: RunPaths, lock: BinaryIO, spec_before: bytes | None = None):
        self.paths = paths
        self._lock = lock
        self._spec_before = spec_before

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    def forget(self) -> None:
        """Remove the files of a job that was never submitted; restore the spec of a resumed run."""
        if self._spec_before is None:
            _forget(self.paths)
        else:
            self.restore_spec()

    def restore_spec(self) -> None:
        """Restore the spec of a run whose resumption failed; does nothing for a new run."""
        if self._spec_before is not None:
            with atomic_file(self.paths.spec) as partial:
                partial.write_bytes(self._spec_before)


def open_run(root: Path, spec: JobSpec, job_id: str, *, overwrite: bool = False) -> OpenRun:
    """Begin a run folder with its `run.json` and the resolved spec.

    An earlier run in the folder is removed if it never trained, or, with `overwrite`, if no service
    has its job.

    Raises:
        OutputError: There is an earlier run that is not removed; the folder remains as it was. Or
            the folder cannot be written.
        RunInUse: Another command uses the run, or begins a run there.
    """
    paths = RunPaths(root)
    check_writable(root)
    with exclusive_run_dir(root), ExitStack() as unless_opened:
        check_new_run(paths, overwrite=overwrite)
        if paths.run.exists():
            with locked(paths.run):
                remove_run(paths)
        unless_opened.callback(_forget, paths)
        RunFile.new(job_id).write(paths)
        write_spec(spec, paths)
        run = OpenRun(paths, locked(paths.run))
        unless_opened.pop_all()
    return run


def reopen_run(root: Path, spec: JobSpec) -> OpenRun:
    """Open the run folder of a job that is resumed; `spec` replaces the stored one.

    Raises `OutputError` if the folder cannot be written, and `RunInUse` if another command uses the
    run, or a service has its job and the job has not ended.
    """
    paths = RunPaths(root)
    check_writable(root)
    _leave_service(paths)
    with ExitStack() as unless_opened:
        lock = unless_opened.enter_context(locked(paths.run))
        spec_before = paths.spec.read_bytes()
        write_spec(spec, paths)
        unless_opened.pop_all()
    return OpenRun(paths, lock, spec_before)


def _leave_service(paths: RunPaths) -> None:
    """Remove the service's id from `run.json`, so that a command may resume the run.

    Raises `RunInUse` if the service's job has not ended. Does nothing if no service has the run's
    job.
    """
    run = read_run_file(paths)
    if run.service is None:
        return
    if not is_finished(paths):
        raise RunInUse(
            "a job service has this run's job",
            where={"path": str(paths.root), "service": run.service},
            hint="Ask the service to cancel or resume the job. If it is gone for good, remove "
            '"service" from run.json.',
        )
    with exclusive_run_dir(paths.root):
        replace(run, service=None).write(paths)


def _forget(paths: RunPaths) -> None:
    """Remove the files written by `open_run`, and the folder if it is then empty."""
    with suppress(OSError):
        for file in (paths.tables, paths.features, paths.job, paths.spec, paths.run):
            file.unlink(missing_ok=True)
        paths.root.rmdir()
