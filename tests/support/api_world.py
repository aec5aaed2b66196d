"""A service's API over a real database, with users of every role, for tests."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from fastapi import FastAPI
from starlette.testclient import TestClient

from distrain.service.access import token_sha256
from distrain.service.access.sessions import make_token
from distrain.service.api import make_app
from distrain.service.settings import ClusterProfile, Limits, Settings
from distrain.service.store import Attempt, JobChange, Store, Token, migrate, open_store
from distrain.service.values import Job, Phase, Quota, Role, Scope

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
    keys: int = field(default=0)

    def headers(self, user: str, **more: str) -> dict[str, str]:
        """Who sends a request."""
        named = {name.replace("_", "-"): value for name, value in more.items()}
        return {"Authorization": f"Bearer {self.tokens[user]}", **named}

    def ask(
        self, user: str, method: str, path: str, body: object = None, **headers: str
    ) -> httpx2.Response:
        """One request of a user."""
        return self.client.request(method, path, headers=self.headers(user, **headers), json=body)

    def key(self) -> str:
        """A new idempotency key."""
        self.keys += 1
        return f"key-{self.keys}"

    def submit(self, user: str = "alice", **body: Any) -> dict[str, Any]:
        """A job of a user."""
        wanted = {"spec": SPEC, "project": "ads", **body}
        answer = self.ask(user, "POST", "/v1/jobs", wanted, Idempotency_Key=self.key())
        assert answer.status_code == 201, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def change(self, job_id: str, **columns: Any) -> Job:
        """Write a job as a reconciler would."""
        job = self.store.job(job_id)
        assert job is not None
        lease = self.store.take_lease(f"cluster:{job.cluster}", "test")
        assert lease is not None
        assert not self.store.record(lease, [JobChange(job.id, job.rev, columns)])
        changed = self.store.job(job_id)
        assert changed is not None
        return changed

    def hold(self, job_id: str, since_s: float) -> None:
        """Have a job's ranks held since then, as a reconciler writes it."""
        job = self.store.job(job_id)
        assert job is not None
        lease = self.store.take_lease(f"cluster:{job.cluster}", "test")
        assert lease is not None
        attempts = [Attempt(job.id, 1, "boot", since_s)]
        assert not self.store.record(lease, [JobChange(job.id, job.rev, {}, attempts)])

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
        row = self.store.token_by_sha256(token_sha256(text))
        assert row is not None
        self.store.revoke_token(row.id)


@contextmanager
def api_world(folder: Path, **changes: Any) -> Iterator[World]:
    """A service with the clusters `gpu` and `own`, of which `ads` may use one, and `USERS`."""
    profile = {"url": "http://127.0.0.1:1", "allowed_roots": (ROOT, "s3://clicks/raw")}
    settings = Settings(
        data_dir=folder,
        admins=(),
        **{
            "clusters": {
                "gpu": ClusterProfile(**profile, model_packages=("clickmodels",), max_priority=100),
                "own": ClusterProfile(**profile, projects=("other",)),
            },
            "limits": Limits(submits_per_s=1e6, reads_per_s=1e6, tokens=10**6),
            **changes,
        },
    )
    migrate(settings)
    with open_store(settings) as store:
        for project in ("ads", "web", "other"):
            store.put_project(project, Quota(max_queued_per_user=None, max_priority=10))
        for user, roles in USERS.items():
            store.ensure_user(user, is_admin=user == "admin")
            for project, role in roles.items():
                store.set_member(project, user, role)
        app = make_app(store, settings)
        with TestClient(app, raise_server_exceptions=False) as client:
            world = World(store, settings, app, {}, client)
            world.tokens |= {user: world.token(user) for user in USERS}
            yield world
