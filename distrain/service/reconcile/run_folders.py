"""Creates run folders, and writes the summaries of jobs that end without a scheduler.

A filesystem may hang, so each call runs in its own thread, with a timeout.
"""

import logging
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from distrain.errors import DistrainError, OutputError, Unavailable
from distrain.jobs.job_view import JobView
from distrain.jobs.spec.job import JobSpec
from distrain.runs.finish_run import finish_run
from distrain.runs.run_file import begin_run, paths_of
from distrain.runs.run_folder import NotInRun
from distrain.runs.stored.folder import open_job_folder, store_errors
from distrain.service.bounded_calls import BoundedCalls, NoAnswer
from distrain.service.settings import Settings
from distrain.service.values import Job
from distrain.storage.outputs import translated_errors

ANSWER_S = 10.0  # timeout for a filesystem
_MOST_HANGING = 16  # most calls of a cluster at the same time, including those that hang

_T = TypeVar("_T")

log = logging.getLogger(__name__)


class RunFolders:
    """Writes to the run folders of the service with the id `service`.

    A filesystem that does not answer within `timeout_s` seconds is an error.
    """

    def __init__(self, settings: Settings, service: str, timeout_s: float = ANSWER_S):
        self._settings, self._service, self._timeout_s = settings, service, timeout_s
        # By cluster, so that a hung mount of one cluster affects no other.
        self._calls = defaultdict[str, BoundedCalls](
            partial(BoundedCalls, "run-folder", _MOST_HANGING)
        )

    def prepare(self, job: Job, spec: JobSpec) -> int:
        """Create or update a job's run folder; return the highest attempt number in it, 0 if none.

        Called before each hand-over; may be repeated. Raises OutputError if the folder cannot be
        written or belongs to another job, and Unavailable if its filesystem does not answer.
        """
        return self._within(lambda: self._prepare(job, spec), job)

    def finish(self, job: Job, view: JobView) -> None:
        """Write the summary of a job that no scheduler has; failures are logged, not raised.

        It is not written if the run folder, or a folder between it and the run root, is a symbolic
        link.
        """
        paths = paths_of(job.run_dir)

        def write() -> None:
            if not paths.store:
                folders_inside(paths.root, self._settings.run_root(job.cluster))
            with store_errors(job.run_dir):
                finish_run(paths, view, job.first_attempt, lambda _: open_job_folder(job.run_dir))

        try:
            self._within(write, job)
        except (DistrainError, NotInRun) as error:
            log.warning("job %s ends without a summary: %s", job.id, error)

    def _prepare(self, job: Job, spec: JobSpec) -> int:
        paths = paths_of(job.run_dir)
        if not paths.store:
            make_folder(paths.root, self._settings.run_root(job.cluster))
        with store_errors(job.run_dir):
            begin_run(paths, spec, job.id, self._service)
            with open_job_folder(job.run_dir) as folder:
                return max(folder.attempts(), default=0)

    def _within(self, work: Callable[[], _T], job: Job) -> _T:
        try:
            return self._calls[job.cluster].result(work, self._timeout_s, job.id)
        except NoAnswer:
            raise Unavailable(
                f"the filesystem did not answer for {self._timeout_s:g} s",
                where={"path": job.run_dir},
                hint="Check its mount on the service's host.",
            ) from None


def make_folder(root: Path, run_root: Path) -> None:
    """Make a run folder; new folders in the run root get the permissions of the run root.

    Raises OutputError, also if a folder in the run root is a symbolic link.
    """
    with translated_errors(root):
        run_root.mkdir(parents=True, exist_ok=True)
        mode = run_root.stat().st_mode & 0o7777
        for folder in folders_inside(root, run_root):
            with suppress(FileExistsError):
                folder.mkdir()
                folder.chmod(mode)  # independent of the umask
        root.mkdir(parents=True, exist_ok=True)


def folders_inside(root: Path, run_root: Path) -> list[Path]:
    """Return the folders below the run root on the way to a run folder, and the run folder itself.

    The result is empty for a run folder elsewhere. Raises OutputError if one is a symbolic link.
    """
    inside = root.relative_to(run_root).parts if root.is_relative_to(run_root) else ()
    folders = [run_root.joinpath(*inside[:depth]) for depth in range(1, len(inside) + 1)]
    for folder in folders:
        if folder.is_symlink():
            raise OutputError(
                "a part of the path is a symbolic link",
                where={"path": str(folder)},
                hint="Remove it: run folders must be inside the cluster's run_root.",
            )
    return folders
