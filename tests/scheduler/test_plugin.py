"""The coordinator inside a real scheduler with workers in this process; no rank is started."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from distributed import Client, Scheduler, Worker
from monitored import beside, with_workers

from distrain.jobs.job_view import Notice
from distrain.jobs.spec import parse_spec
from distrain.jobs.states import JobState
from distrain.runs.records.entries import KEPT_ENTRIES
from distrain.scheduler import gangs as gangs_module, plugin as plugin_module, rendezvous
from distrain.scheduler.lifecycle.lifecycle import Lifecycle
from distrain.scheduler.lifecycle.messages import Cancel
from distrain.scheduler.plugin import PLUGIN_NAME, CoordinatorPlugin
from distrain.version import build
from distrain.workers.supervisor import SupervisorPlugin, rank_key

SPEC = parse_spec(
    {
        "data": {"train": "nowhere"},
        "model": {"kind": "mlp"},
        "restart": {"max_rank_failures": 0},
    }
).model_dump(mode="json")


@asynccontextmanager
async def new_scheduler(num_workers: int = 2) -> AsyncIterator[Scheduler]:
    """A scheduler and its workers."""
    new = Scheduler(port=0, dashboard=False, dashboard_address="127.0.0.1:0", host="127.0.0.1")
    async with new as scheduler, with_workers(scheduler, num_workers):
        yield scheduler


async def coordinator_of(scheduler: Scheduler) -> CoordinatorPlugin:
    await scheduler.register_scheduler_plugin(
        CoordinatorPlugin(), name=PLUGIN_NAME, idempotent=True
    )
    plugin: CoordinatorPlugin = scheduler.plugins[PLUGIN_NAME]
    return plugin


async def slots_of(coordinator: CoordinatorPlugin, num_slots: int) -> None:
    """Wait until so many workers have told their build."""
    while len(coordinator.lifecycle.slots) != num_slots:
        await asyncio.sleep(0.01)


async def end_of(coordinator: CoordinatorPlugin, *job_ids: str) -> None:
    while not all(coordinator.lifecycle.jobs[job_id].state.is_final for job_id in job_ids):
        await asyncio.sleep(0.01)


@beside(new_scheduler)
async def test_clients_that_come_together_share_one_coordinator(
    scheduler: Scheduler,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started = []

    def lifecycle() -> Lifecycle:
        started.append(Lifecycle())
        return started[-1]

    monkeypatch.setattr(plugin_module, "Lifecycle", lifecycle)
    first, second = await asyncio.gather(coordinator_of(scheduler), coordinator_of(scheduler))
    assert first is second
    assert started == [first.lifecycle]  # no other ticks on, unseen
    assert scheduler.plugins[PLUGIN_NAME] is first
    await slots_of(first, 2)


@beside(new_scheduler)
async def test_a_worker_of_another_build_gets_no_rank_and_the_waiting_job_says_why(
    scheduler: Scheduler,
    tmp_path: Path,
) -> None:
    coordinator = await coordinator_of(scheduler)
    await slots_of(coordinator, 2)
    older, newer = sorted(scheduler.workers)
    coordinator.worker_runs(worker=older, build="0.1.0+bother")
    [slot] = coordinator.lifecycle.slots
    assert slot.worker == newer
    spec = {**SPEC, "resources": {**SPEC["resources"], "num_ranks": 2}}
    coordinator.queue("a", parse_spec(spec), str(tmp_path))
    why = coordinator.view("a")["why_pending"]
    assert f"{build()}, such as {older} (0.1.0+bother)" in why

    # One of a version that tells nothing is another build, too.
    del coordinator.builds[older]
    coordinator._workers_changed()
    assert "1 more have not reported their build" in coordinator.view("a")["why_pending"]
    coordinator.handle_stimulus(Cancel("a"))
    coordinator.worker_runs(worker=older, build=build())
    assert len(coordinator.lifecycle.slots) == 2
    coordinator.worker_runs(worker="tcp://127.0.0.1:1", build=build())  # it left meanwhile
    assert set(coordinator.builds) == {older, newer}


@pytest.mark.parametrize(
    ("trouble", "told"),
    [
        ("no supervisor", "rank 0: its supervisor failed: KeyError('distrain-supervisor')"),
        ("unreadable report", "from_the_future"),
        ("no store", "OSError('no port is free')"),
    ],
)
@beside(new_scheduler)
async def test_a_gang_that_cannot_work_fails_its_job_with_the_cause(
    scheduler: Scheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str, told: str
) -> None:
    if trouble == "no store":
        broken = Mock(side_effect=OSError("no port is free"))
        monkeypatch.setattr(rendezvous, "make_store", broken)
    clients = Mock(side_effect=Client)
    monkeypatch.setattr(gangs_module, "Client", clients)
    coordinator = await coordinator_of(scheduler)
    await scheduler.unregister_worker_plugin(None, SupervisorPlugin.name)
    for job_id in ("a", "b"):
        coordinator.queue(job_id, parse_spec(SPEC), str(tmp_path))
    if trouble == "unreadable report":
        coordinator.rank_reported("a", 1, {"kind": "from_the_future", "rank": 0})
    await end_of(coordinator, "a", "b")
    view = coordinator.view("a")
    assert view is not None
    assert (view["state"], view["reason"]) == (JobState.FAILED, "RankFailed")
    assert told in view["message"]
    assert len(coordinator.gangs) == 0
    assert len(scheduler.workers) == 2
    assert clients.call_count <= 1, "gangs launched together share one client"


@beside(new_scheduler)
async def test_a_store_that_opens_after_its_job_ended_is_not_kept(
    scheduler: Scheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator = await coordinator_of(scheduler)
    opening, ended = threading.Event(), threading.Event()
    make = rendezvous.make_store

    def slow(*where: Any) -> Any:
        opening.set()
        assert ended.wait(60)
        return make(*where)

    monkeypatch.setattr(rendezvous, "make_store", slow)
    monkeypatch.setattr("distrain.scheduler.lifecycle.lifecycle.CANCEL_GRACE_S", 0.0)
    monkeypatch.setattr("distrain.scheduler.lifecycle.lifecycle.GIVE_UP_S", 0.0)
    coordinator.queue("a", parse_spec(SPEC), str(tmp_path))
    assert await asyncio.to_thread(opening.wait, 120)
    coordinator.handle_stimulus(Cancel("a"))
    await end_of(coordinator, "a")
    launches = list(coordinator._tasks)
    ended.set()
    await asyncio.gather(*launches)
    assert coordinator.lifecycle.jobs["a"].state is JobState.CANCELLED
    assert len(coordinator.gangs) == 0


@beside(partial(new_scheduler, num_workers=1))
async def test_a_worker_whose_supervisor_never_ran_is_used_again(
    scheduler: Scheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker's thread ran a task of somebody else until the job was cancelled."""
    monkeypatch.setattr("distrain.scheduler.lifecycle.lifecycle.CANCEL_GRACE_S", 0.0)
    monkeypatch.setattr("distrain.scheduler.lifecycle.lifecycle.GIVE_UP_S", 0.0)
    coordinator = await coordinator_of(scheduler)
    await slots_of(coordinator, 1)
    began, over = threading.Event(), threading.Event()
    _BUSY.update(began=began, over=over)
    async with Client(scheduler.address, asynchronous=True, set_as_default=False) as client:
        other = client.submit(_wait_in_the_workers_thread, pure=False)
        assert await asyncio.to_thread(began.wait, 60)
        coordinator.queue("a", parse_spec(SPEC), str(tmp_path))
        key = rank_key("a", 1, 0)
        (worker,) = (w for w in Worker._instances if w.address in scheduler.workers)
        while key not in worker.state.tasks or worker.state.tasks[key].state != "ready":
            await asyncio.sleep(0.01)
        coordinator.handle_stimulus(Cancel("a"))
        await end_of(coordinator, "a")
        while not coordinator.lifecycle.usable_slots:
            await asyncio.sleep(0.01)
        over.set()
        await other


_BUSY: dict[str, threading.Event] = {}


def _wait_in_the_workers_thread() -> None:
    _BUSY["began"].set()
    assert _BUSY["over"].wait(60)


@beside(partial(new_scheduler, num_workers=0))
async def test_a_mistake_in_the_coordinator_is_logged_and_harms_no_other_job(
    scheduler: Scheduler,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    coordinator = await coordinator_of(scheduler)
    handle = coordinator.lifecycle.handle

    def broken(stimulus: object, now_s: float) -> Any:
        if isinstance(stimulus, Cancel) and stimulus.job_id == "bad":
            raise RuntimeError("a mistake")
        return handle(stimulus, now_s)  # type: ignore[arg-type]

    monkeypatch.setattr(coordinator.lifecycle, "handle", broken)
    coordinator.queue("good", parse_spec(SPEC), str(tmp_path))
    coordinator.handle_stimulus(Cancel("bad"))
    coordinator.handle_stimulus(Cancel("good"))
    await asyncio.wait_for(end_of(coordinator, "good"), 120)
    assert coordinator.lifecycle.jobs["good"].state is JobState.CANCELLED
    told = [r for r in caplog.records if r.name == "distrain.coordinator"]
    assert ["the coordinator failed on Cancel" in r.getMessage() for r in told] == [True]
    assert told[0].exc_info is not None


@beside(partial(new_scheduler, num_workers=0))
async def test_the_oldest_jobs_that_ended_are_forgotten_everywhere(
    scheduler: Scheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin_module, "KEPT_JOBS", 3)
    coordinator = await coordinator_of(scheduler)
    for job_id in ("waits", "long"):
        coordinator.queue(job_id, parse_spec(SPEC), str(tmp_path))
    for number in range(5):
        coordinator.queue(f"ended-{number}", parse_spec(SPEC), str(tmp_path))
        coordinator.handle_stimulus(Cancel(f"ended-{number}"))
        if number != 1:  # whose summary is not written yet
            coordinator.recordings.heard(f"ended-{number}", None, "")
    coordinator.handle_stimulus(Cancel("long"))
    coordinator.queue("last", parse_spec(SPEC), str(tmp_path))
    kept = ["waits", "long", "ended-1", "ended-3", "ended-4", "last"]
    assert list(coordinator.lifecycle.jobs) == kept
    assert list(coordinator.collectors) == list(coordinator.histories) == kept
    for job_id in ("ended-4", "waits"):
        entries = coordinator.collectors[job_id].entries
        for number in range(KEPT_ENTRIES):
            entries.append(Notice(str(number)))
        few = plugin_module.ENDED_ENTRIES if job_id == "ended-4" else KEPT_ENTRIES
        assert len(entries.since(0)) == few
