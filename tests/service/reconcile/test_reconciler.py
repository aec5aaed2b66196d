"""A reconciler with a real database and run directories, and schedulers over HTTP."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fake_scheduler import FakeScheduler
from served_jobs import SPEC

from distrain.service.decide import shown
from distrain.service.reconcile import Reconciler
from distrain.service.settings import ClusterProfile, Settings
from distrain.service.store import Store, migrate, open_store
from distrain.service.values import Job, Key, NewJob, Quota

WITHIN_S = 30.0


def _settings(folder: Path, **fakes: FakeScheduler) -> Settings:
    clusters = {
        name: ClusterProfile(url=fake.url, run_root=folder / "runs") for name, fake in fakes.items()
    }
    return Settings(data_dir=folder / "data", clusters=clusters)


class Service:
    """A database with reconcilers that may be started and stopped."""

    def __init__(self, settings: Settings, store: Store):
        self.settings, self.store = settings, store
        self.submitted = 0

    @contextmanager
    def reconciler(self, **parts: Any) -> Iterator[Reconciler]:
        """One that runs in the block."""
        one = Reconciler(self.settings, self.store, **parts)
        stop = threading.Event()
        thread = threading.Thread(target=one.run, args=(stop,))
        thread.start()
        try:
            yield one
        finally:
            stop.set()
            thread.join()

    def submit(self, cluster: str = "east", num_ranks: int = 1) -> str:
        """A job's id."""
        self.submitted += 1
        job_id = f"job-{self.submitted}"
        run_dir = str(self.settings.run_root(cluster) / "default" / job_id)
        spec = {**SPEC, "resources": {"num_ranks": num_ranks}}
        new = NewJob(job_id, "default", "alice", "ctr", cluster, 0, num_ranks, run_dir, spec)
        self.store.submit(new, Key("alice", job_id, "0" * 64))
        return job_id

    def job(self, job_id: str) -> Job:
        """It as it is now."""
        job = self.store.job(job_id)
        assert job is not None
        return job

    def state(self, job_id: str) -> str:
        """Its shown state."""
        contact = {row.name: row.observed_at_s for row in self.store.clusters()}
        job = self.job(job_id)
        return shown(job, self.store.now_s(), contact_s=contact.get(job.cluster)).state


def until(holds: Callable[[], bool], what: str = "") -> None:
    """Wait for a condition."""
    ends_s = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < ends_s, what or "it never holds"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def east() -> Iterator[FakeScheduler]:
    with FakeScheduler(num_workers=1000) as fake:
        yield fake


@pytest.fixture
def service(tmp_path: Path, east: FakeScheduler) -> Iterator[Service]:
    east.reboot()
    settings = _settings(tmp_path, east=east)
    settings.data_dir.mkdir()
    migrate(settings)
    with open_store(settings) as store:
        store.put_project("default", Quota(max_queued_per_user=None))
        yield Service(settings, store)


def test_a_job_is_handed_over_runs_and_ends(service: Service, east: FakeScheduler) -> None:
    with service.reconciler():
        job_id = service.submit()
        until(lambda: service.state(job_id) == "running")
        assert service.job(job_id).attempt == 1
        run_dir = Path(service.job(job_id).run_dir)
        assert (run_dir / "run.json").exists()
        east.end(job_id)
        until(lambda: service.state(job_id) == "succeeded")
        assert (run_dir / "summary.json").exists()
        until(lambda: {"running", "succeeded"} <= _told(service, job_id))
    assert [attempt.attempt for attempt in service.store.attempts(job_id)] == [1]


def _told(service: Service, job_id: str) -> set[str]:
    return {event.body["state"] for event in service.store.job_events_after(job_id, 0, 100)}
