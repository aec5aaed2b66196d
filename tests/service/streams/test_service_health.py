"""Health that does not lie: what answers while the database is gone."""

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest
from live_service import LiveService

from distrain.errors import Unavailable
from distrain.service.api.streams.readiness import reconcile_lag_s, reconcile_trouble
from distrain.service.bounded_calls import BoundedCalls, NoAnswer
from distrain.service.values import Role


@pytest.fixture
def hanging(service: LiveService, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A database that holds every call until the event is set."""
    released = threading.Event()

    def hang(*_: object) -> None:
        released.wait(60)
        raise Unavailable("the database does not answer")

    for name in ("check", "report_ages_s", "alive_counts", "last_seq"):
        monkeypatch.setattr(service.store, name, hang)
    yield released
    released.set()
    service.app.state.streams.look.result(lambda: None, 60)  # the held calls have ended


def test_a_service_is_ready_while_its_reconcilers_are_at_work(
    service: LiveService, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert httpx2.get(f"{service.url}/livez").json() == {"status": "ok", "failed": {}}
    answer = httpx2.get(f"{service.url}/readyz")
    assert (answer.status_code, list(answer.json()["failed"])) == (503, ["reconcile"])
    service.store.put_cluster("local", {})
    answer = httpx2.get(f"{service.url}/readyz")
    assert (answer.status_code, answer.json()["status"]) == (200, "ok")
    monkeypatch.setattr(service.store, "report_ages_s", lambda: {"local": 21.0})
    answer = httpx2.get(f"{service.url}/readyz")
    assert (answer.status_code, list(answer.json()["failed"])) == (503, ["reconcile"])


@pytest.mark.slow
def test_while_the_database_hangs_the_process_lives_and_is_not_ready(
    service: LiveService, hanging: threading.Event
) -> None:
    with httpx2.Client(base_url=service.url, timeout=90) as client:
        for _ in range(5):  # no thread is lost with each
            answer = client.get("/readyz")
            assert answer.status_code == 503
            assert "database" in answer.json()["failed"]
            assert client.get("/livez").status_code == 200
        text = client.get("/metrics").text
        assert "distrain_service_database_up 0.0" in text
        assert "distrain_service_jobs" not in text


def test_metrics_have_few_labels(service: LiveService) -> None:
    job = service.job()
    with service.client("alice", Role.SUBMITTER) as alice:
        assert alice.get(f"/v1/jobs/{job.id}/artifacts").status_code == 200
        assert alice.get("/v1/nothing/like/that").status_code == 404
    text = httpx2.get(f"{service.url}/metrics").text
    assert job.id not in text
    assert "nothing" not in text
    assert (
        'distrain_service_requests_total{code="200",method="GET",process="'
        f'{os.getpid()}",route="/v1/jobs/{{job_id}}/artifacts"}} 1.0' in text
    )  # each process counts by itself: a scrape meets any of them
    assert 'distrain_service_jobs{phase="queued",state="queued"} 1.0' in text
    assert "distrain_service_request_duration_seconds_bucket" in text


def test_a_proxy_on_this_machine_needs_a_token_for_metrics(service: LiveService) -> None:
    forwarded = {"X-Forwarded-For": "203.0.113.9"}
    assert httpx2.get(f"{service.url}/metrics", headers=forwarded).status_code == 401
    with service.client("alice") as alice:
        assert alice.get("/metrics", headers=forwarded).status_code == 200


def test_the_lag_is_that_of_the_cluster_furthest_behind() -> None:
    assert reconcile_lag_s({}, []) == 0
    assert reconcile_lag_s({"a": 1.0}, ["a", "b"]) is None
    assert reconcile_lag_s({"a": 1.0, "b": 4.0, "gone": 1e6}, ["a", "b"]) == 4
    assert reconcile_trouble({"a": 25.0}, ["a"])
    assert not reconcile_trouble({"a": 7.0}, ["a"])


def test_two_who_ask_at_once_are_both_answered() -> None:
    look, begun, go_on = BoundedCalls("test-look"), threading.Event(), threading.Event()

    def first() -> str:
        begun.set()
        go_on.wait(60)
        return "first"

    with ThreadPoolExecutor(3) as threads:
        found = [threads.submit(look.result, first, 60)]
        begun.wait(60)
        found += [threads.submit(look.result, lambda: "other", 60) for _ in range(2)]
        go_on.set()
        assert [one.result(60) for one in found] == ["first", "other", "other"]


def test_a_call_that_hangs_since_long_is_not_waited_for() -> None:
    look, released = BoundedCalls("test-look"), threading.Event()
    for _ in range(3):
        with pytest.raises(NoAnswer):
            look.result(lambda: released.wait(60), 0.05)
    released.set()
    assert look.result(lambda: "back", 60) == "back"
    with pytest.raises(Unavailable):
        look.result(_fails, 60)


@pytest.mark.slow
def test_a_call_behind_late_ones_fails_at_once() -> None:
    look, released = BoundedCalls("test-look", 2), threading.Event()
    for _ in range(2):
        with pytest.raises(NoAnswer):
            look.result(lambda: released.wait(60), 0.5)
    time.sleep(0.5)
    began_s = time.monotonic()
    for _ in range(1000):  # jobs on a filesystem that hangs
        with pytest.raises(NoAnswer):
            look.result(lambda: None, 0.5)
    assert time.monotonic() - began_s < 60
    released.set()


def _fails() -> None:
    raise Unavailable("no")
