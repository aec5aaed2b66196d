"""A service's database with reconcilers that tests start and stop."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from served_jobs import SPEC
from waiting import until

from distrain.service.decisions.api_values import shown
from distrain.service.reconcile.reconciler import Reconciler
from distrain.service.settings import ClusterProfile, Settings
from distrain.service.store.store import Store, migrate, open_store
from distrain.service.values import Job, Phase, Quota


class Service:
    """A database with reconcilers that may be started and stopped."""

    def __init__(self, settings: Settings, store: Store):
        self.settings, self.store = settings, store

    @contextmanager
    def reconciler(self, **parts: Any) -> Iterator[Reconciler]:
        """A reconciler that runs in the block."""
        one, stop = Reconciler(self.settings, self.store, **parts), threading.Event()
        thread = threading.Thread(target=one.run, args=(stop,))
        thread.start()
        try:
            yield one
        finally:
            stop.set()
            thread.join()

    def submit(
        self, job_id: str = "job-1", cluster: str = "east", num_ranks: int = 1, **deadlines: float
    ) -> str:
        """Submit a job; its id."""
        run_dir = str(self.settings.run_root(cluster) / "default" / job_id)
        sections = {"restart": {"backoff_s": 0.1}, "deadlines": deadlines}
        spec = {**SPEC, "resources": {"num_ranks": num_ranks}, **sections}
        new = Job(job_id, "default", "alice", "ctr", cluster, 0, num_ranks, run_dir)
        self.store.submit(new, spec)
        return job_id

    def job(self, job_id: str = "job-1") -> Job:
        job = self.store.job(job_id)
        assert job is not None
        return job

    def state(self, job_id: str = "job-1") -> str:
        """Its shown state."""
        contact = {row.name: row.observed_at_s for row in self.store.clusters()}
        job = self.job(job_id)
        seen = shown(job, self.store.now_s(), contact_s=contact.get(job.cluster))
        return str(seen["state"])

    def comes_to(self, state: str, *job_ids: str) -> None:
        for job_id in job_ids or ("job-1",):
            until(lambda job_id=job_id: self.state(job_id) == state, f"{job_id} is {state}")  # type: ignore[misc]

    def ends(self, *job_ids: str) -> None:
        for job_id in job_ids or ("job-1",):
            until(lambda job_id=job_id: self.job(job_id).phase is Phase.FINAL, job_id)  # type: ignore[misc]


@contextmanager
def service_of(
    folder: Path, database_url: str | None = None, **clusters: ClusterProfile
) -> Iterator[Service]:
    data_dir = folder / "data"
    settings = Settings(data_dir=data_dir, database_url=database_url, clusters=clusters)
    settings.data_dir.mkdir()
    migrate(settings)
    with open_store(settings) as store:
        store.put_project("default", Quota(max_queued_per_user=None))
        yield Service(settings, store)
