"""A job service's API on a free port, in a thread of the test, over a database of its own."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from api_world import publish, served, write_job
from service_store import UNLIMITED, submitted

from distrain.jobs.run_paths import RunPaths
from distrain.service.access.sessions import make_token
from distrain.service.api.app import make_app
from distrain.service.settings import ClusterProfile, Settings
from distrain.service.store.people import Token
from distrain.service.store.store import Store, migrate, open_store
from distrain.service.values import Job, Phase, Quota, Role, Scope

YEAR_S = 365 * 86400.0


@dataclass
class LiveService:
    """The service, and what tests do to it behind its back."""

    url: str
    store: Store
    folder: Path
    app: Any

    def token(self, user: str, role: Role | None = None, project: str = "default") -> Token:
        """A new token, whose text is its label; its user gets a role."""
        made = make_token()
        if role is not None:
            self.store.set_member(project, user, role)
        now_s = time.time()
        token = Token(
            made.id, made.sha256, user, made.text, frozenset(Scope), now_s, now_s + YEAR_S
        )
        self.store.put_token(token)
        return token

    def client(self, user: str = "alice", role: Role | None = Role.SUBMITTER) -> httpx2.Client:
        """A client with a token of its own."""
        return self.client_with(self.token(user, role))

    def client_with(self, token: Token) -> httpx2.Client:
        """A client with that token."""
        headers = {"Authorization": f"Bearer {token.label}"}
        return httpx2.Client(base_url=self.url, headers=headers, timeout=90)

    def job(self, **fields: Any) -> Job:
        """A job of alice's, with a run folder."""
        run_dir = self.folder / "runs" / str(time.monotonic_ns())
        run_dir.mkdir(parents=True)
        job = submitted(self.store, **({"run_dir": str(run_dir)} | fields))
        publish(self.store)
        return job

    def paths(self, job: Job) -> RunPaths:
        """Its files."""
        return RunPaths(Path(job.run_dir))

    def change(self, job: Job, **columns: Any) -> Job:
        """Write what a reconciler would that has just heard of it, and publish the event."""
        changed = write_job(self.store, job.id, {"observed_at_s": time.time()} | columns)
        publish(self.store)
        return changed

    def end(self, job: Job, state: str = "succeeded") -> Job:
        """Let it end."""
        return self.change(job, state=state, phase=Phase.FINAL, finished_at_s=time.time())

    def publish(self) -> None:
        """Number the events that wait."""
        publish(self.store)


@contextmanager
def live_service(folder: Path, options: Mapping[str, Any] | None = None) -> Iterator[LiveService]:
    """Serve in the block; `options` are settings besides the data folder."""
    settings = Settings(data_dir=folder / "data", **dict(options or {}))
    migrate(settings)
    with open_store(settings) as store:
        store.put_project("default", UNLIMITED)
        app = make_app(store, settings)
        with served(app) as url:
            yield LiveService(url, store, folder, app)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    """A service with a cluster that nobody can reach, for modules that import it."""
    profile = ClusterProfile(url="http://127.0.0.1:1", allowed_roots=("/data",), max_priority=100)
    options = {"clusters": {"gpu": profile}}
    with live_service(tmp_path_factory.mktemp("service"), options) as service:
        service.store.put_project("default", Quota(max_queued_per_user=None, max_priority=10))
        yield service


@pytest.fixture(scope="module")
def token(service: LiveService) -> str:
    """The text of a token of alice's, who submits jobs."""
    return service.token("alice", Role.SUBMITTER).label
