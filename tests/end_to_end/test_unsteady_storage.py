"""A job whose data lies behind a network and a server that fail: the same model, somewhat later."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest
from distributed import Client
from object_stores import s3fs, serving
from small_jobs import make_spec, saved_weights
from unsteady_proxy import UnsteadyProxy, unsteady

from distrain.jobs.job_view import JobView
from distrain.jobs.run_paths import new_job_id
from distrain.jobs.states import JobState
from distrain.launch.job_handle import JobHandle
from distrain.runs.open_run import open_run
from distrain.workers.local import local_cluster

pytestmark = pytest.mark.release  # `tests/loader/test_waiting_for_storage.py` holds the laws


class Place(NamedTuple):
    """Where jobs run and data lies."""

    client: Client
    proxy: UnsteadyProxy
    prepared: Path


@pytest.fixture(scope="module")
def place(prepared: Path) -> Iterator[Place]:
    with serving("unsteady") as server, unsteady(os.environ["AWS_ENDPOINT_URL"]) as proxy:
        server.put(f"{prepared}/train/", "unsteady/train/", recursive=True)
        server.put(f"{prepared}/valid/", "unsteady/valid/", recursive=True)
        s3fs.S3FileSystem.clear_instance_cache()
        # One try by botocore, five by s3fs, and the rest is up to distrain.
        environment = {"AWS_ENDPOINT_URL": proxy.url, "AWS_MAX_ATTEMPTS": "1"}
        with mock.patch.dict(os.environ, environment), local_cluster(2, 1, "cpu", ":0") as client:
            yield Place(client, proxy, prepared)


def train(place: Place, root: Path, *overrides: str) -> tuple[JobView, set[str]]:
    """A job's end, and what its views told of waits."""
    spec = make_spec(
        place.prepared,
        "data={train: s3://unsteady/train, valid: s3://unsteady/valid}",
        f"data.schema={place.prepared}/schema.pbtxt",
        "train.max_steps=160",
        "train.epochs=20",
        "checkpoint={every_steps: 40}",
        "restart.backoff_s=0.1",
        *overrides,
    )
    job = JobHandle(place.client, new_job_id(spec.name))
    told: set[str] = set()
    with open_run(root, spec, job.job_id):
        job.submit(spec, root)

        def watch(view: JobView) -> None:
            if view.why_pending:
                told.add(view.why_pending)

        view = job.watch(watch)
    return view, told


@pytest.fixture(scope="module")
def in_peace(place: Place, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    root = tmp_path_factory.mktemp("peace")
    view, told = train(place, root)
    assert (view.state, view.restarts, told) == (JobState.SUCCEEDED, (), set())
    return saved_weights(root)


def test_resets_and_bursts_of_503_cost_no_restart(
    place: Place, in_peace: dict[str, bytes], tmp_path: Path
) -> None:
    place.proxy.done.clear()
    with mock.patch.multiple(place.proxy, reset_every=5, burst=6, burst_every=30):
        view, _ = train(place, tmp_path)
    assert view.state is JobState.SUCCEEDED, view.message
    assert view.restarts == ()
    assert saved_weights(tmp_path) == in_peace
    for fate in ("reset", "cut", "slow down"):
        assert place.proxy.done[fate] > 2, place.proxy.done


def test_one_that_stays_away_longer_than_it_is_waited_for_costs_a_restart(
    place: Place, in_peace: dict[str, bytes], tmp_path: Path
) -> None:
    place.proxy.done.clear()
    with mock.patch.multiple(place.proxy, away_from=30, away_s=8.0, _back_s=None):
        view, _ = train(place, tmp_path, "data.retry_s=1", "restart.max_rank_failures=20")
    assert view.state is JobState.SUCCEEDED, view.message
    assert view.restarts[0].reason == "StorageUnavailable"
    assert "s3://unsteady/" in view.restarts[0].message
    assert saved_weights(tmp_path) == in_peace
