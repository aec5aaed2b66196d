"""What goes wrong with one job: its words, its run directory, a full disk. Others go on."""

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fake_scheduler import FakeScheduler
from served_jobs import SPEC

from distrain.errors import OutputError
from distrain.runs import RunInUse
from distrain.service.reconcile.reconciler import Reconciler
from distrain.service.recorder import Recorder
from distrain.service.settings import ClusterProfile, Settings
from distrain.service.store import Store, migrate, open_store
from distrain.service.values import Job, NewJob, Phase, Quota, RequestKey

WITHIN_S = 30.0


@pytest.fixture
def fake() -> Iterator[FakeScheduler]:
    with FakeScheduler(num_workers=8) as fake:
        yield fake


@pytest.fixture
def settings(tmp_path: Path, fake: FakeScheduler) -> Settings:
    profile = ClusterProfile(url=fake.url, run_root=tmp_path / "runs")
    return Settings(data_dir=tmp_path, clusters={"east": profile})


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    migrate(settings)
    with open_store(settings) as store:
        store.put_project("default", Quota())
        yield store


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
def reconciler(settings: Settings, store: Store) -> Iterator[TroubledRecorder]:
    made: list[TroubledRecorder] = []

    def make(held: Callable[[str], int | None]) -> TroubledRecorder:
        made.append(TroubledRecorder(settings, held, store.service_id))
        return made[0]

    one = Reconciler(settings, store, recorder=make)
    stop = threading.Event()
    thread = threading.Thread(target=one.run, args=(stop,))
    thread.start()
    try:
        yield made[0]
    finally:
        stop.set()
        thread.join()


def submit(settings: Settings, store: Store, job_id: str) -> None:
    run_dir = str(settings.run_root("east") / "default" / job_id)
    new = NewJob(job_id, "default", "alice", "ctr", "east", 0, 1, run_dir, SPEC)
    store.submit(new, RequestKey("alice", job_id, "0" * 64))


def job_of(store: Store, job_id: str) -> Job:
    job = store.job(job_id)
    assert job is not None
    return job


def until(holds: Callable[[], bool]) -> None:
    ends_s = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < ends_s
        time.sleep(0.02)


def test_words_that_no_database_holds_keep_no_other_job_from_being_written(
    settings: Settings, store: Store, fake: FakeScheduler
) -> None:
    with reconciler(settings, store):
        for job_id in ("job-1", "job-2"):
            submit(settings, store, job_id)
        until(lambda: all(job_of(store, one).state == "running" for one in ("job-1", "job-2")))
        fake.jobs["job-1"].message = "ValueError: \ud800 and \0 and " + 100_000 * "x"
        for job_id in ("job-1", "job-2"):
            fake.end(job_id, "failed")
        until(lambda: all(job_of(store, one).phase is Phase.FINAL for one in ("job-1", "job-2")))
    message = job_of(store, "job-1").message or ""
    assert message.startswith("ValueError: \ufffd and \ufffd and xxx")
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
    where: str, error: Exception, settings: Settings, store: Store
) -> None:
    with reconciler(settings, store) as recorder:
        recorder.where, recorder.error = where, error
        submit(settings, store, "job-1")
        until(lambda: recorder.calls >= 2)
        submit(settings, store, "job-2")
        until(lambda: job_of(store, "job-2").state == "running")
        calls, waits = recorder.calls, job_of(store, "job-1")
        assert waits.phase in (Phase.QUEUED, Phase.HANDING_OVER)
        assert "run directory cannot be" in waits.why_pending or str(error) in waits.why_pending
        until(lambda: recorder.calls > calls)
        assert job_of(store, "job-1").rev == waits.rev  # a reason that stays is written once
        recorder.error = None
        until(lambda: job_of(store, "job-1").state == "running")


def test_a_run_directory_that_can_never_be_made_ends_its_job_with_that(
    settings: Settings, store: Store
) -> None:
    with reconciler(settings, store) as recorder:
        recorder.where, recorder.error = "begin", _os_error(errno.EACCES)
        submit(settings, store, "job-1")
        until(lambda: job_of(store, "job-1").phase is Phase.FINAL)
        job = job_of(store, "job-1")
        assert (job.state, job.reason) == ("failed", "OutputError")
        assert "Permission denied" in (job.message or "")
        assert not recorder._runs  # nothing of it is remembered
