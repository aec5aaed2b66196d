"""A service's API over a real database, with users of every role, for tests.

It is asked in this process, or over HTTP where `served` gives it a port.
"""

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx2
import uvicorn
from fastapi import FastAPI
from starlette.testclient import TestClient
from waiting import until

from distrain.service.access.sessions import make_token
from distrain.service.api.app import make_app
from distrain.service.process import api_server
from distrain.service.settings import ClusterProfile, Limits, Settings
from distrain.service.store.people import Token
from distrain.service.store.store import Store, migrate, open_store
from distrain.service.values import Attempt, Change, Job, Phase, Quota, Role, Scope

ROOT = "/data"
SPEC: dict[str, Any] = {
    "name": "clicks",
    "data": {"train": f"{ROOT}/clicks/day_*"},
    "model": {"kind": "mlp"},
}

USERS = {
    "admin": {},
    "viewer": {"ads": Role.VIEWER},
    "alice": {"ads": Role.SUBMITTER},
    "bob": {"ads": Role.SUBMITTER},
    "operator": {"ads": Role.OPERATOR},
    "stranger": {"web": Role.SUBMITTER},
}


@dataclass
class World:
    """The parts of a service that tests look at.

    Attributes:
        tokens: The text of a token of all scopes, by user.
        client: Sends requests to the application in this process.
    """

    store: Store
    settings: Settings
    app: FastAPI
    tokens: dict[str, str]
    client: TestClient
    ids: int = field(default=0)

    def headers(self, user: str, **more: str) -> dict[str, str]:
        """Who sends a request."""
        named = {name.replace("_", "-"): value for name, value in more.items()}
        return {"Authorization": f"Bearer {self.tokens[user]}", **named}

    def ask(
        self, user: str, method: str, path: str, body: object = None, **headers: str
    ) -> httpx2.Response:
        """One request of a user."""
        return self.client.request(method, path, headers=self.headers(user, **headers), json=body)

    def new_id(self) -> str:
        """The id of a job that is not there yet."""
        self.ids += 1
        return f"clicks-{self.ids}"

    def submit(self, user: str = "alice", **body: Any) -> dict[str, Any]:
        """A job of a user."""
        wanted = {"spec": SPEC, "project": "ads", **body}
        answer = self.ask(user, "PUT", f"/v1/jobs/{self.new_id()}", wanted)
        assert answer.status_code == 201, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def change(self, job_id: str, **columns: Any) -> Job:
        """Write a job as a reconciler would."""
        return write_job(self.store, job_id, columns)

    def hold(self, job_id: str, since_s: float) -> None:
        """Have a job's ranks held since then, as a reconciler writes it."""
        write_job(self.store, job_id, {}, [Attempt(job_id, 1, "boot", since_s)])

    def end(self, job_id: str, state: str = "succeeded") -> Job:
        """End a job as a reconciler would."""
        now_s = self.store.now_s()
        return self.change(job_id, phase=Phase.FINAL, state=state, finished_at_s=now_s)

    def token(self, user: str, *scopes: Scope, expires_at_s: float | None = None) -> str:
        """Another token of a user."""
        made, now_s = make_token(), self.store.now_s()
        until_s = now_s + 1e5 if expires_at_s is None else expires_at_s
        kept = frozenset(scopes or Scope)
        self.store.put_token(Token(made.id, made.sha256, user, "", kept, now_s, until_s))
        return made.text

    def revoke(self, text: str) -> None:
        """End a token."""
        self.store.revoke_token(text.split("_")[1])


def write_job(
    store: Store, job_id: str, columns: dict[str, Any], attempts: Sequence[Attempt] = ()
) -> Job:
    """Write a job as the reconciler of its cluster would, and return it."""
    job = store.job(job_id)
    assert job is not None
    assert not store.record(job.cluster, [Change(job, columns, attempts)])
    changed = store.job(job_id)
    assert changed is not None
    return changed


def publish(store: Store) -> None:
    """Number the events that wait."""
    while store.publish():
        pass


@contextmanager
def served(
    app: Any,
    server: uvicorn.Server | None = None,
    send_bytes: int = 0,
) -> Iterator[str]:
    """Serve an application on a free port until the end of the block; its URL.

    Args:
        server: Runs it in place of uvicorn's own.
        send_bytes: The size of sockets' send buffers; 0: the system's.
    """
    if server is None:
        quick: dict[str, Any] = {"log_level": "warning", "lifespan": "off"}
        quick["timeout_graceful_shutdown"] = 2
        logged = api_server.RequestLog(app)
        server = uvicorn.Server(uvicorn.Config(logged, proxy_headers=False, **quick))
    with (
        # It would print to the output of the commands under test.
        patch.object(api_server, "_log"),
        socket.create_server(("127.0.0.1", 0), backlog=512) as bound,
    ):
        if send_bytes:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_bytes)
        thread = threading.Thread(target=server.run, args=([bound],), name="service")
        thread.start()
        try:
            until(lambda: server.started or not thread.is_alive())
            yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        finally:
            app.state.streams.stop()
            server.should_exit = True
            thread.join(60)
    assert not thread.is_alive()


@contextmanager
def api_world(
    folder: Path, extend: Callable[[FastAPI], None] = lambda app: None, **changes: Any
) -> Iterator[World]:
    """A service with the clusters `gpu` and `own`, of which `ads` may use one, and `USERS`.

    `extend` is called with the application before it first serves.
    """
    profile = {"url": "http://127.0.0.1:1", "allowed_roots": (ROOT, "s3://clicks/raw")}
    settings = Settings(
        data_dir=folder,
        admins=("admin",),
        **{
            "clusters": {
                "gpu": ClusterProfile(**profile, model_packages=("clickmodels",), max_priority=100),
                "own": ClusterProfile(**profile, projects=("other",)),
            },
            "limits": Limits(tokens=10**6),
            **changes,
        },
    )
    migrate(settings)
    with open_store(settings) as store:
        for project in ("ads", "web", "other"):
            store.put_project(project, Quota(max_queued_per_user=None, max_priority=10))
        for user, roles in USERS.items():
            for project, role in roles.items():
                store.set_member(project, user, role)
        app = make_app(store, settings)
        extend(app)
        with TestClient(app, raise_server_exceptions=False) as client:
            world = World(store, settings, app, {}, client)
            world.tokens |= {user: world.token(user) for user in USERS}
            yield world
