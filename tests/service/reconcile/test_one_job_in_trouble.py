"""Faults of one job, in its texts, its run folder or a full disk, do not stop other jobs."""

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from reconciled import Service
from served_jobs import SPEC
from service_jobs import a_job
from service_model import SERVICE, Seat, World
from told_scheduler import ToldScheduler
from waiting import until

from distrain.errors import InputError, OutputError, Unavailable
from distrain.jobs.spec import JobSpec, parse_spec
from distrain.runs.run_file import RunInUse, begin_run
from distrain.service.decisions import cluster_state
from distrain.service.decisions.cluster_pass import Pass
from distrain.service.decisions.cluster_state import Memory
from distrain.service.decisions.world import NotBegun
from distrain.service.reconcile import cluster_loop, run_folders
from distrain.service.reconcile.run_folders import RunFolders
from distrain.service.settings import ClusterProfile, Settings
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
    error: Exception,
    service: Service,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(cluster_state, "PREPARE_LONGEST_S", 0.2)
    monkeypatch.setattr(cluster_loop, "EVERY_S", 0.1)
    with troubled(service, error) as folders:
        service.submit("job-1", num_ranks=8)  # all workers
        until(lambda: folders.calls >= 2)
        service.submit("job-2")
        service.comes_to("running", "job-2")
        calls, waits = folders.calls, service.job()
        assert waits.phase is Phase.QUEUED
        assert str(error) in waits.why_pending
        until(lambda: folders.calls > calls)
        assert service.job().rev == waits.rev, "a reason that stays is written once"
        assert caplog.text.count("its run folder is not ready") == 1
        folders.error = None
        service.store.cancel("job-2", "", None, "alice")
        service.comes_to("running", "job-1")


def test_pauses_between_tries_to_prepare_a_run_directory_grow() -> None:
    class Troubled(Seat):
        def prepare(self, job: Job) -> int:
            tried_s.append(one.now_s)
            raise NotBegun("OutputError", "the disk is full", for_now=True)

    tried_s: list[float] = []
    world, memory = World(), Memory("east")
    world.submit(0)
    for second in range(200):
        one = Pass(Troubled(world), memory, SERVICE, float(second))
        one.run()
        assert not one.active
    assert tried_s == [0, 2, 6, 14, 30, 62, 122, 182]


def test_a_mount_that_hangs_delays_its_cluster_alone_and_has_one_thread_for_each_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()

    def begun(paths: Any, *more: Any) -> None:
        if "hung" in str(paths.root):
            released.wait(60)
        begin_run(paths, *more)

    monkeypatch.setattr(run_folders, "begin_run", begun)
    monkeypatch.setattr(run_folders, "_MOST_HANGING", 2)
    profile = ClusterProfile(url="http://127.0.0.1:8787", run_root=tmp_path)
    clusters = {"east": profile, "west": profile}
    folders = RunFolders(Settings(data_dir=tmp_path, clusters=clusters), "s-1")

    def prepare(number: int, folder: str, timeout_s: float, cluster: str = "east") -> int:
        folders._timeout_s = timeout_s
        job = a_job(number, run_dir=str(tmp_path / folder), cluster=cluster)
        return folders.prepare(job, parse_spec(SPEC))

    try:
        for number in (1, 1, 1, 2):
            assert number == 1 or prepare(3, "works", 60.0) == 0
            with pytest.raises(Unavailable):
                prepare(number, f"hung-{number}", 0.1)
        assert prepare(4, "of-west", 60.0, "west") == 0
    finally:
        released.set()


@pytest.mark.parametrize("error", [_os_error(errno.EACCES), InputError("run.json is a link")])
def test_a_run_directory_that_can_never_be_used_ends_its_job_with_that(
    service: Service, error: Exception
) -> None:
    with troubled(service, error):
        service.submit()
        service.ends()
        assert (service.job().state, service.job().reason) == ("failed", "OutputError")
