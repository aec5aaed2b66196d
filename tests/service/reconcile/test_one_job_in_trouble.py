"""Faults of one job, in its texts, its run folder or a full disk, do not stop other jobs."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from reconciled import Service
from told_scheduler import ToldScheduler
from waiting import until

from distrain.errors import InputError, OutputError
from distrain.jobs.spec import JobSpec
from distrain.runs.run_file import RunInUse
from distrain.service.reconcile.run_folders import RunFolders
from distrain.service.values import Job, Phase


class TroubledFolders(RunFolders):
    """The folder of the first job raises an error while there is one."""

    error: Exception | None = None
    calls = 0

    def prepare(self, job: Job, spec: JobSpec) -> int:
        if job.id == "job-1" and self.error is not None:
            self.calls += 1
            raise self.error
        return super().prepare(job, spec)


@contextmanager
def troubled(service: Service, error: Exception) -> Iterator[TroubledFolders]:
    """A reconciler that cannot prepare the first job's folder."""
    folders = TroubledFolders(service.settings, service.store.service_id)
    folders.error = error
    with service.reconciler(folders=folders):
        yield folders


def test_words_that_no_database_holds_keep_no_other_job_from_being_written(
    service: Service, east: ToldScheduler
) -> None:
    with service.reconciler():
        jobs = [service.submit(name) for name in ("job-1", "job-2")]
        service.comes_to("running", *jobs)
        for job, words in zip(jobs, ("\ud800 and \0 and " + 100_000 * "x", "short"), strict=True):
            east.end(job, f"ValueError: {words}")
        service.ends(*jobs)
    message = service.job().message or ""
    assert "ValueError: ? and \ufffd and xxx" in message
    assert len(message) <= 8000


def _os_error(number: int) -> OutputError:
    error = OutputError(f"could not write: {os.strerror(number)}")
    error.__cause__ = OSError(number, os.strerror(number))
    return error


@pytest.mark.parametrize(
    "error",
    [
        _os_error(errno.ENOSPC),
        RunInUse("a command trains in the run folder"),
        RuntimeError("a mistake"),
    ],
)
def test_a_run_directory_in_trouble_delays_its_job_alone(
    error: Exception, service: Service
) -> None:
    with troubled(service, error) as folders:
        service.submit("job-1")
        until(lambda: folders.calls >= 2)
        service.submit("job-2")
        service.comes_to("running", "job-2")
        calls, waits = folders.calls, service.job()
        assert waits.phase is Phase.QUEUED
        assert str(error) in waits.why_pending
        until(lambda: folders.calls > calls)
        assert service.job().rev == waits.rev, "a reason that stays is written once"
        folders.error = None
        service.comes_to("running", "job-1")


@pytest.mark.parametrize("error", [_os_error(errno.EACCES), InputError("run.json is a link")])
def test_a_run_directory_that_can_never_be_used_ends_its_job_with_that(
    service: Service, error: Exception
) -> None:
    with troubled(service, error):
        service.submit()
        service.ends()
        assert (service.job().state, service.job().reason) == ("failed", "OutputError")
