"""A database with reconcilers, and real schedulers over HTTP."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from reconciled import Service, service_of
from told_scheduler import ToldScheduler

from distrain.service.decisions import cluster_pass
from distrain.service.settings import ClusterProfile


@pytest.fixture(scope="package")
def scheduler() -> Iterator[ToldScheduler]:
    with ToldScheduler() as scheduler:
        yield scheduler


@pytest.fixture
def east(scheduler: ToldScheduler) -> ToldScheduler:
    """A scheduler without jobs, as no test before has changed it."""
    scheduler.num_workers, scheduler.writes_summaries = 8, True
    scheduler.reboot()
    scheduler.started.clear()
    return scheduler


@pytest.fixture
def service(tmp_path: Path, east: ToldScheduler) -> Iterator[Service]:
    profile = ClusterProfile(url=east.url, run_root=tmp_path / "runs")
    with service_of(tmp_path, east=profile) as service:
        yield service


@pytest.fixture
def told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes do not wait before they say why a job waits."""
    monkeypatch.setattr(cluster_pass, "PATIENCE_S", 0.0)
    monkeypatch.setattr(cluster_pass, "WHY_EVERY_S", 0.0)
