"""A job service's API on a free port, in a thread of the test, over a database of its own."""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import uvicorn
from service_store import UNLIMITED, submitted

from distrain.run_paths import RunPaths
from distrain.service.access.sessions import make_token
from distrain.service.api import make_app
from distrain.service.settings import Limits, Settings
from distrain.service.store import JobChange, Store, Token, migrate, open_store
from distrain.service.values import Job, Phase, Role, Scope

YEAR_S = 365 * 86400.0
FAST = Limits(reads_per_s=1e6, submits_per_s=1e6)


@dataclass
class LiveService:
    """The service, and what tests do to it behind its back."""

    url: str
    store: Store
    folder: Path
    app: Any
    server: uvicorn.Server
    _generation: int = field(default=0)

    def token(self, user: str, role: Role | None = None, project: str = "default") -> Token:
        """A new token, whose text is its label; its user gets a role."""
        made = make_token()
        self.store.ensure_user(user)
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
        """A job of alice's, with a run directory."""
        run_dir = self.folder / "runs" / str(time.monotonic_ns())
        run_dir.mkdir(parents=True)
        job = submitted(self.store, **({"run_dir": str(run_dir)} | fields))
        self.publish()
        return job

    def paths(self, job: Job) -> RunPaths:
        """Its files."""
        return RunPaths(Path(job.run_dir))

    def change(self, job: Job, **columns: Any) -> Job:
        """Write what a reconciler would that has just heard of it, and publish the event."""
        columns = {"observed_at_s": time.time()} | columns
        lease = self.store.take_lease(f"cluster:{job.cluster}", "test", 60)
        assert lease is not None
        now = self.store.job(job.id)
        assert now is not None
        left = self.store.record(lease, [JobChange(job.id, now.rev, columns)])
        assert not left
        self.publish()
        changed = self.store.job(job.id)
        assert changed is not None
        return changed

    def end(self, job: Job, state: str = "succeeded") -> Job:
        """Let it end."""
        return self.change(job, state=state, phase=Phase.FINAL, finished_at_s=time.time())

    def publish(self) -> None:
        """Number the events that wait."""
        lease = self.store.take_lease("publisher", "test", 60)
        assert lease is not None
        while self.store.publish(lease):
            pass


@contextmanager
def live_service(
    folder: Path, options: Mapping[str, Any] | None = None, store: Store | None = None
) -> Iterator[LiveService]:
    """Serve in the block.

    Args:
        options: Settings besides the data folder and generous limits.
        store: An open one; without it a SQLite file is made.
    """
    values: dict[str, Any] = {"data_dir": folder / "data", "limits": FAST}
    settings = Settings(**(values | dict(options or {})))
    opened = None
    if store is None:
        migrate(settings)
        store = opened = open_store(settings)
    store.put_project("default", UNLIMITED)
    app = make_app(store, settings)
    server = uvicorn.Server(
        uvicorn.Config(app, port=0, log_level="warning", timeout_graceful_shutdown=2)
    )
    thread = threading.Thread(target=server.run, name="service")
    thread.start()
    try:
        port = _port(server, thread)
        yield LiveService(f"http://127.0.0.1:{port}", store, folder, app, server)
    finally:
        app.state.streams.stop()
        server.should_exit = True
        thread.join(30)
        if opened is not None:
            opened.close()
    assert not thread.is_alive()


def _port(server: uvicorn.Server, thread: threading.Thread) -> int:
    while not server.started:
        assert thread.is_alive(), "the server ended as it started"
        time.sleep(0.005)
    port: int = server.servers[0].sockets[0].getsockname()[1]
    return port
