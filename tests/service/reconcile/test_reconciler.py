"""A reconciler with a real database and run directories, and schedulers over HTTP."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fake_scheduler import FakeScheduler
from served_jobs import SPEC

from distrain.errors import OutputError
from distrain.runs import ServedRun
from distrain.service.decide import passes, shown
from distrain.service.reconcile.reconciler import Reconciler
from distrain.service.settings import ClusterProfile, Settings
from distrain.service.store import Store, migrate, open_store
from distrain.service.values import Job, NewJob, Quota, RequestKey

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
        self.store.submit(new, RequestKey("alice", job_id, "0" * 64))
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


def test_the_summary_of_a_job_that_ended_unrecorded_is_written_after_a_restart(
    service: Service, east: FakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "FINISH_WITHIN_S", 0.0)
    with monkeypatch.context() as broken:

        def full(*_: Any) -> None:
            raise OutputError("the disk is full")

        broken.setattr(ServedRun, "finish", full)
        with service.reconciler():
            job_id = service.submit()
            until(lambda: service.state(job_id) == "running")
            east.end(job_id)
            until(lambda: service.state(job_id) == "succeeded")
    summary = Path(service.job(job_id).run_dir) / "summary.json"
    assert not summary.exists()
    with service.reconciler():
        until(summary.exists)
    assert json.loads(summary.read_text())["state"] == "succeeded"


def test_the_number_of_an_attempt_without_files_is_not_given_again(
    service: Service, east: FakeScheduler
) -> None:
    """The scheduler restarts a job by itself, is seen doing so, and dies before a file is there."""
    with service.reconciler():
        job_id = service.submit()
        until(lambda: service.state(job_id) == "running")
        with east._lock:
            east.jobs[job_id].attempt = 3
            east._stamp(east.jobs[job_id])
        until(lambda: service.job(job_id).attempt == 3)
        run_dir = Path(service.job(job_id).run_dir)
        assert not (run_dir / "logs").exists()
        until(lambda: not service.job(job_id).why_pending)
        for name in ("progress.json", "summary.json"):
            (run_dir / name).unlink(missing_ok=True)
        east.reboot()
        until(lambda: service.job(job_id).first_attempt > 1, "it is handed over again")
        assert service.job(job_id).first_attempt == 4


def test_a_job_is_handed_over_runs_and_ends(service: Service, east: FakeScheduler) -> None:
    with service.reconciler():
        job_id = service.submit()
        until(lambda: service.state(job_id) == "running")
        assert service.job(job_id).attempt == 1
        assert service.job(job_id).progress.items() >= {"auc": 0.78, "valid_auc": 0.61}.items()
        run_dir = Path(service.job(job_id).run_dir)
        assert (run_dir / "run.json").exists()
        east.end(job_id)
        until(lambda: service.state(job_id) == "succeeded")
        assert (run_dir / "summary.json").exists()
        until(lambda: {"running", "succeeded"} <= _told(service, job_id))
    assert [attempt.attempt for attempt in service.store.attempts(job_id)] == [1]


def _told(service: Service, job_id: str) -> set[str]:
    return {event.body["state"] for event in service.store.job_events_after(job_id, 0, 100)}


def test_lost_answers_start_nothing_twice(service: Service, east: FakeScheduler) -> None:
    east.started.clear()
    east.lose_answers = True
    with service.reconciler():
        job_ids = [service.submit() for _ in range(3)]
        until(lambda: east.orders["put"] >= 3)
        east.lose_answers = False
        until(lambda: all(service.state(job_id) == "running" for job_id in job_ids))
    assert east.started == {(job_id, 1): 1 for job_id in job_ids}


def test_a_cancelled_job_ends(service: Service, east: FakeScheduler) -> None:
    with service.reconciler():
        job_id = service.submit()
        until(lambda: service.state(job_id) == "running")
        service.store.cancel(job_id, "enough", None, "alice")
        assert service.state(job_id) == "cancelling"
        until(lambda: service.state(job_id) == "cancelled")
    assert service.job(job_id).reason == "Cancelled"


def test_a_scheduler_that_is_started_anew_gets_the_next_attempt(
    service: Service, east: FakeScheduler
) -> None:
    east.started.clear()
    with service.reconciler():
        job_id = service.submit()
        until(lambda: service.state(job_id) == "running")
        east.reboot()
        until(lambda: service.job(job_id).attempt == 2)
        until(lambda: service.state(job_id) == "running")
    assert east.started == {(job_id, 1): 1, (job_id, 2): 1}
    assert service.job(job_id).scheduler_losses == 1


def test_a_restart_of_the_reconciler_touches_no_job(service: Service, east: FakeScheduler) -> None:
    east.started.clear()
    with service.reconciler():
        job_id = service.submit()
        until(lambda: service.state(job_id) == "running")
    orders = east.orders.copy()
    with service.reconciler() as second:
        until(lambda: second.leases.held("cluster:east") is not None)
        before = service.store.clusters()[0].observed_at_s
        until(lambda: service.store.clusters()[0].observed_at_s != before)
        assert service.state(job_id) == "running"
    assert east.orders == orders
    assert east.started == {(job_id, 1): 1}


def test_an_orphan_is_cancelled(service: Service, east: FakeScheduler) -> None:
    with service.reconciler():
        order = {
            "service": service.store.service_id,
            "generation": 1,
            "epoch": east.epoch,
            "run_dir": "/runs/x",
            "first_attempt": 1,
            "spec": {},
        }
        assert east.handle("PUT", "/distrain/v1/jobs/nobodys", order)[0] == 201
        others = order | {"service": "another"}
        assert east.handle("PUT", "/distrain/v1/jobs/others", others)[0] == 201
        until(lambda: east.jobs["nobodys"].state == "cancelled")
    assert east.jobs["others"].state == "running"


def test_a_spec_without_room_on_disk_fails_its_job(service: Service, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "default").write_text("not a folder")
    with service.reconciler():
        job_id = service.submit()
        until(lambda: service.state(job_id) == "failed")
    assert service.job(job_id).reason == "OutputError"
    assert "default" in str(service.job(job_id).message)


def test_each_cluster_has_one_of_two_reconcilers_and_the_other_takes_over(
    service: Service, east: FakeScheduler
) -> None:
    east.started.clear()
    with service.reconciler() as first:
        until(lambda: first.leases.held("cluster:east") is not None)
        with service.reconciler() as second:
            job_id = service.submit()
            until(lambda: service.state(job_id) == "running")
            assert second.leases.held("cluster:east") is None
            generation = first.leases.must_hold("cluster:east").generation
            second_loop = second.loops["east"]
            first.leases.release_all()
            first.loops["east"].turn = lambda: False  # type: ignore[method-assign]
            second_loop.wake.set()
            until(lambda: second.leases.held("cluster:east") is not None)
            assert second.leases.must_hold("cluster:east").generation == generation + 1
            service.store.cancel(job_id, "", None, "alice")
            until(lambda: service.state(job_id) == "cancelled")
    assert east.started == {(job_id, 1): 1}


def test_a_silent_scheduler_leaves_jobs_unknown_and_starts_nothing_twice(
    service: Service, east: FakeScheduler
) -> None:
    east.started.clear()
    with service.reconciler():
        job_id = service.submit()
        until(lambda: service.state(job_id) == "running")
        east.gate.clear()  # as with SIGSTOP
        contact_s = service.store.clusters()[0].observed_at_s
        job = service.job(job_id)
        assert shown(job, service.store.now_s() + 40, contact_s=contact_s).state == "unknown"
        east.gate.set()
        until(lambda: service.store.clusters()[0].observed_at_s != contact_s)
        assert service.state(job_id) == "running"
    assert east.started == {(job_id, 1): 1}


def test_one_hung_cluster_delays_no_other(tmp_path: Path, east: FakeScheduler) -> None:
    east.reboot()
    with FakeScheduler() as west:
        west.gate.clear()
        settings = _settings(tmp_path, east=east, west=west)
        settings.data_dir.mkdir()
        migrate(settings)
        with open_store(settings) as store:
            store.put_project("default", Quota(max_queued_per_user=None))
            service = Service(settings, store)
            with service.reconciler():
                stuck = service.submit("west")
                for _ in range(3):
                    job_id = service.submit("east")
                    until(lambda job_id=job_id: service.state(job_id) == "running")  # type: ignore[misc]
                assert service.state(stuck) == "queued"
                west.gate.set()
                until(lambda: service.state(stuck) == "running")


def test_why_it_waits_is_written(
    service: Service, east: FakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "PATIENCE_S", 0.5)
    monkeypatch.setattr(passes, "WHY_EVERY_S", 0.5)
    with service.reconciler():
        job_id = service.submit(num_ranks=2000)
        until(lambda: "has 1000 workers" in service.job(job_id).why_pending)
        east.shut()
        until(lambda: "not been reachable since" in service.job(job_id).why_pending)
        east.open()
