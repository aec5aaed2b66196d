"""Databases of the service for tests: SQLite and PostgreSQL, with a project and jobs to put in."""

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from distrain.service.settings import Settings
from distrain.service.store.store import Store, migrate, open_store
from distrain.service.values import Job, Quota

_numbers = itertools.count(1)
UNLIMITED = Quota(max_queued_per_user=None)


def settings_for(folder: Path, database_url: str | None = None) -> Settings:
    """Settings of a service whose data go to a folder."""
    return Settings(data_dir=folder, database_url=database_url)


@contextlib.contextmanager
def new_store(settings: Settings, quota: Quota = UNLIMITED) -> Iterator[Store]:
    """A database with its tables and the project `default`."""
    migrate(settings)
    with open_store(settings) as store:
        store.put_project("default", quota)
        yield store


SPEC = {"train": {"epochs": 1}}


def new_job(**fields: Any) -> Job:
    """A job of alice's in the project `default`, for the cluster `gpu`."""
    job_id = fields.pop("id", None) or f"job-{next(_numbers):06}"
    values: dict[str, Any] = {
        "project": "default",
        "owner": "alice",
        "name": "ctr",
        "cluster": "gpu",
        "priority": 0,
        "num_ranks": 2,
        "run_dir": f"/runs/default/{job_id}",
    }
    return Job(id=job_id, **values | fields)


def submitted(store: Store, **fields: Any) -> Job:
    """A job that is in the queue."""
    new = new_job(**fields)
    job, created = store.submit(new, SPEC)
    assert created
    return job
