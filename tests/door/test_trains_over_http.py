"""On a real cluster, over HTTP alone: a job is put, trains on two ranks and ends; specs checked."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from dask_world import DaskWorld, free_port, wait_for
from small_jobs import small_document, write_prepared

from distrain.jobs import Entry, Record
from distrain.service.clusters import Refused, SchedulerClient, Unreachable
from distrain.service.clusters.scheduler_client import SeenPreflight

pytestmark = pytest.mark.slow
TOKEN = "a-token-of-a-scheduler"


class _World(DaskWorld):
    """With a dashboard at a known port."""

    dashboard_port = 0

    def _spawn(self, *words: object, wrapper: object = ()) -> object:  # type: ignore[override]
        if words[0] == "scheduler":
            self.dashboard_port = free_port()
            at = words.index("--dashboard-address") + 1
            words = (*words[:at], f"127.0.0.1:{self.dashboard_port}", *words[at + 1 :])
        return super()._spawn(*words, wrapper=wrapper)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_World]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DISTRAIN_DASHBOARD_TOKEN", TOKEN)
        with _World(tmp_path_factory.mktemp("world"), 2) as started:
            yield started


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_prepared(tmp_path_factory.mktemp("data") / "prepared")


@pytest.fixture
def client(world: _World) -> Iterator[SchedulerClient]:
    url = f"http://127.0.0.1:{world.dashboard_port}"
    with SchedulerClient(url, TOKEN, service="here") as one:

        def has_workers() -> bool:
            try:
                return one.changes().workers.free == 2
            except (Refused, Unreachable):
                return False

        wait_for(has_workers, "two workers came")
        yield one


def test_a_job_trains_to_its_end(client: SchedulerClient, prepared: Path, tmp_path: Path) -> None:
    changes = client.changes()
    spec, run_dir = small_document(prepared), tmp_path / "run"
    _, new = client.put(
        "job-1", spec, str(run_dir), first_attempt=1, epoch=changes.epoch, generation=1
    )
    assert new
    entries: list[Entry] = []
    states: list[str] = []
    until_s = time.monotonic() + 120
    while not (states and states[-1] == "succeeded"):
        assert time.monotonic() < until_s, states
        for job in changes.jobs:
            assert job.view is not None
            states.append(job.state)
            assert job.view.next_record - len(job.view.progress) == len(entries)
            entries += job.view.progress
            assert not job.is_final or job.state == "succeeded", job.view.message
        time.sleep(0.2)
        changes = client.changes(changes.revision, changes.epoch)
    records = [one for one in entries if isinstance(one, Record)]
    assert [one.step for one in records if one.split == "train"] == [5, 10, 15, 20]
    (job,) = (one for one in client.changes().jobs if one.job_id == "job-1")
    assert (job.step, job.attempt, job.run_dir) == (20, 1, str(run_dir))
    assert (run_dir / "model").exists()


@pytest.mark.release
def test_specs_are_checked_on_a_worker(client: SchedulerClient, prepared: Path) -> None:
    spec = small_document(prepared)
    nowhere = {**spec, "data": {"train": "/nowhere/at/all"}}
    ids = [client.preflight(one, "alice") for one in (spec, nowhere, {"model": 1})]

    def results() -> list[SeenPreflight]:
        return [client.preflight_result(one) for one in ids]

    wait_for(lambda: all(one.is_over for one in results()), "the checks ended", 180)
    good, missing, wrong = results()
    assert (good.state, good.errors, good.error) == ("passed", (), None)
    assert good.plan is not None
    assert good.plan["rows"] == 10_500
    assert any("resources.device" in note for note in good.notes)
    assert missing.state == "failed"
    (mistake,) = missing.errors
    assert "/nowhere/at/all" in str(mistake)
    assert mistake["hint"]
    assert wrong.state == "failed"
    assert "model" in wrong.errors[0]["message"]
