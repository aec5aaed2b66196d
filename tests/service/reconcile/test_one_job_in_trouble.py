"""What goes wrong with one job: its words, its run directory, a full disk. Others go on."""

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from reconciled import Service
from told_scheduler import ToldScheduler
from waiting import until

from distrain.errors import OutputError
from distrain.runs.run_file import RunInUse
from distrain.service.recorder.recorder import Recorder
from distrain.service.values import Job, Phase


class TroubledRecorder(Recorder):
    """Some calls for the first job raise an error while there is one."""

    error: Exception | None = None
    where = ""
    calls = 0

    def _raise(self, job: Job, where: str) -> None:
        if job.id == "job-1" and where == self.where and self.error is not None:
            self.calls += 1
            raise self.error

    def begin(
        self, job: Job, spec: Mapping[str, Any], generation: int, within_s: float = 9
    ) -> None:
        self._raise(job, "begin")
        super().begin(job, spec, generation, within_s)

    def attempts(self, job: Job, within_s: float = 9) -> int:
        self._raise(job, "attempts")
        return super().attempts(job, within_s)


@contextmanager
def troubled(service: Service, where: str, error: Exception) -> Iterator[TroubledRecorder]:
    """A reconciler whose recorder fails for the first job."""
    made: list[TroubledRecorder] = []

    def make(held: Callable[[str], int | None]) -> TroubledRecorder:
        made.append(TroubledRecorder(service.settings, held, service.store.service_id))
        made[0].where, made[0].error = where, error
        return made[0]

    with service.reconciler(recorder=make):
        yield made[0]


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
    assert "ValueError: \ufffd and \ufffd and xxx" in message
    assert len(message) <= 8000


def _os_error(number: int) -> OutputError:
    error = OutputError(f"could not write: {os.strerror(number)}")
    error.__cause__ = OSError(number, os.strerror(number))
    return error


@pytest.mark.parametrize(
    ("where", "error"),
    [
        ("begin", _os_error(errno.ENOSPC)),
        ("begin", RunInUse("a command trains in the run directory")),
        ("attempts", RuntimeError("a mistake")),
    ],
)
def test_a_run_directory_in_trouble_delays_its_job_alone(
    where: str, error: Exception, service: Service
) -> None:
    with troubled(service, where, error) as recorder:
        service.submit("job-1")
        until(lambda: recorder.calls >= 2)
        service.submit("job-2")
        service.comes_to("running", "job-2")
        calls, waits = recorder.calls, service.job()
        assert waits.phase in (Phase.QUEUED, Phase.HANDING_OVER)
        assert "run directory cannot be" in waits.why_pending or str(error) in waits.why_pending
        until(lambda: recorder.calls > calls)
        assert service.job().rev == waits.rev, "a reason that stays is written once"
        recorder.error = None
        service.comes_to("running", "job-1")


def test_a_run_directory_that_can_never_be_made_ends_its_job_with_that(service: Service) -> None:
    with troubled(service, "begin", _os_error(errno.EACCES)) as recorder:
        service.submit()
        service.ends()
        assert (service.job().state, service.job().reason) == ("failed", "OutputError")
        assert not recorder._runs  # nothing of it is remembered
