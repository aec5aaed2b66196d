"""A reconciler with a real database and run folders, and real schedulers over HTTP."""

import json
from pathlib import Path
from typing import Any

import pytest
from reconciled import Service, service_of
from sqlalchemy import update
from told_scheduler import ToldScheduler
from waiting import until

from distrain.service.clusters.scheduler_client import SchedulerClient
from distrain.service.decisions.api_values import shown
from distrain.service.settings import ClusterProfile
from distrain.service.store.store import open_store
from distrain.service.store.tables import jobs


def test_a_job_runs_and_has_its_summary_when_it_has_ended(
    service: Service, east: ToldScheduler
) -> None:
    service.submit()
    run_dir = Path(service.job().run_dir)
    with service.reconciler():
        service.comes_to("running")
        assert (service.job().attempt, (run_dir / "run.json").exists()) == (1, True)
        east.end("job-1")
        service.comes_to("succeeded")
        assert json.loads((run_dir / "summary.json").read_text())["state"] == "succeeded"
    assert [attempt.attempt for attempt in service.store.attempts("job-1")] == [1]


@pytest.mark.slow
def test_an_end_that_was_seen_stays_one_while_nobody_writes_the_summary(
    service: Service, east: ToldScheduler
) -> None:
    east.writes_summaries = False
    with service.reconciler() as reconciler:
        jobs = [service.submit(name) for name in ("job-1", "job-2")]
        service.comes_to("running", *jobs)
        east.end("job-1")
        finishing = reconciler.loops["east"]._memory.finishing
        until(lambda: "job-1" in finishing)
        assert service.state("job-1") == "running"
        east.reboot()  # the scheduler is lost before a worker has answered
        service.comes_to("succeeded", "job-1")
    assert east.started["job-1", 1] == 1
    assert ("job-1", 2) not in east.started


@pytest.mark.slow
def test_the_number_of_an_attempt_without_files_is_not_given_again(
    service: Service, east: ToldScheduler
) -> None:
    """The scheduler restarts a job by itself, is seen doing so, and dies before a file is there."""
    with service.reconciler():
        service.submit()
        service.comes_to("running")
        east.fail_rank("job-1")
        until(lambda: service.job().attempt == 2)
        run_dir = Path(service.job().run_dir)
        assert not (run_dir / "logs").exists()
        until(lambda: not service.job().why_pending)
        east.reboot()
        until(lambda: service.job().attempt == 3, "it is handed over again")
    assert east.started == {("job-1", number): 1 for number in (1, 2, 3)}
    assert service.job().scheduler_losses == 1


@pytest.mark.slow
def test_an_orphan_is_cancelled(service: Service, east: ToldScheduler) -> None:
    with service.reconciler():
        spec = {"name": "x", "data": {"train": "/x"}, "model": {"kind": "mlp"}}
        words = {"first_attempt": 1, "epoch": east.coordinator.epoch}
        for owner in (service.store.service_id, "another"):
            with SchedulerClient(east.url, None, service=owner) as client:
                client.put(f"of-{owner}", spec, "/runs/x", priority=0, **words)
        until(lambda: east.state(f"of-{service.store.service_id}") == "cancelled")
    assert east.is_running("of-another")


@pytest.mark.parametrize("has_ended", [False, True])
def test_somebody_elses_job_of_the_same_id_is_not_taken_for_ours(
    service: Service, east: ToldScheduler, has_ended: bool
) -> None:
    spec = {"name": "x", "data": {"train": "/x"}, "model": {"kind": "mlp"}}
    words = {"first_attempt": 1, "epoch": east.coordinator.epoch}
    with SchedulerClient(east.url, None, service="another") as client:
        client.put("job-1", spec, "/runs/x", priority=0, **words)
    until(lambda: east.is_running("job-1"))
    if has_ended:
        east.end("job-1")
        until(lambda: east.state("job-1") == "succeeded")
    with service.reconciler():
        service.submit()
        service.ends("job-1")
    assert (service.job().state, service.job().reason) == ("failed", "InvalidSpec")
    assert east.is_running("job-1") is not has_ended


def test_deadlines_count_the_time_in_the_queue_of_the_service(
    service: Service, east: ToldScheduler
) -> None:
    for job_id, num_ranks, deadlines in (
        ("waits", 9, {"queue_s": 60.0}),  # one worker more than there are
        ("trains", 1, {"total_s": 3600.0}),
    ):
        service.submit(job_id, num_ranks=num_ranks, **deadlines)
    with service.store.db.write() as connection:
        connection.execute(update(jobs).values(created_at_s=jobs.c.created_at_s - 61.0))
    with service.reconciler():
        service.ends("waits")
        service.comes_to("running", "trains")
    waits = service.job("waits")
    assert (waits.state, waits.reason) == ("failed", "QueueDeadlineExceeded")
    assert "in the queue for more than 60 s" in str(waits.message)
    request = east.coordinator.lifecycle.jobs["trains"].request
    assert (request.age_s > 60.0, request.has_run) == (True, False)


def test_a_spec_without_room_on_disk_fails_its_job(service: Service, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "default").write_text("not a folder")
    with service.reconciler():
        service.submit()
        service.comes_to("failed")
    assert service.job().reason == "OutputError"
    assert "default" in str(service.job().message)


def test_each_cluster_has_one_of_two_reconcilers_and_the_other_takes_over(
    tmp_path: Path, east: ToldScheduler, postgres: Any
) -> None:
    profile = ClusterProfile(url=east.url, run_root=tmp_path / "runs")
    with (
        service_of(tmp_path, postgres.new_database(), east=profile) as service,
        open_store(service.settings) as other,
        service.reconciler() as first,
    ):
        until(lambda: service.store.locks.since("cluster:east"))
        with Service(service.settings, other).reconciler() as second:
            service.submit()
            service.comes_to("running")
            assert other.locks.since("cluster:east") is None
            first.loops["east"].turn = lambda: False  # type: ignore[method-assign]
            service.store.locks.release()
            second.loops["east"].wake.set()
            until(lambda: other.locks.since("cluster:east"))
            service.store.cancel("job-1", "", None, "alice")
            service.comes_to("cancelled")
    assert east.started == {("job-1", 1): 1}


def test_a_silent_scheduler_leaves_jobs_unknown_and_delays_no_other_cluster(
    tmp_path: Path, east: ToldScheduler
) -> None:
    with ToldScheduler() as west:
        profiles = {
            name: ClusterProfile(url=one.url, run_root=tmp_path / "runs")
            for name, one in (("east", east), ("west", west))
        }
        with service_of(tmp_path, **profiles) as service, service.reconciler():
            service.submit("before", "west")
            service.comes_to("running", "before")
            west.hang()
            contact = {row.name: row.observed_at_s for row in service.store.clusters()}
            job, later_s = service.job("before"), service.store.now_s() + 40
            assert shown(job, later_s, contact_s=contact["west"])["state"] == "unknown"
            stuck = service.submit("stuck", "west")
            for number in range(3):
                service.comes_to("running", service.submit(f"job-{number}"))
            assert service.state(stuck) in ("queued", "handing_over")
            west.answer()
            service.comes_to("running", "before", stuck)
        assert west.started == {("before", 1): 1, ("stuck", 1): 1}


@pytest.mark.usefixtures("told_at_once")
def test_why_it_waits_is_written(service: Service, east: ToldScheduler) -> None:
    with service.reconciler():
        service.submit(num_ranks=2000)
        until(lambda: "8 workers" in service.job().why_pending)
        east.shut()
        until(lambda: "reachable" in service.job().why_pending)
