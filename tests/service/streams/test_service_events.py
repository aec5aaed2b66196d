"""Streams of events: nothing lost, nothing seen by others, an end that can be told from a break."""

from itertools import islice

import pytest
from event_streams import Told, stream_of
from live_service import LiveService
from sqlalchemy import delete
from waiting import until

from distrain.service.store import tables
from distrain.service.values import Role


def steps(told: list[Told]) -> list[object]:
    return [event.data.get("step") for event in told if event.kind == "job.progress"]


def test_a_stream_tells_all_to_the_end(service: LiveService, alice) -> None:
    job = service.job()
    with stream_of(alice, f"/v1/jobs/{job.id}/events") as events:
        first = next(events)
        assert (first.kind, first.data["id"], first.data["state"]) == (
            "job.state",
            job.id,
            "queued",
        )
        service.change(job, state="running", phase="handed_over", attempt=1)
        service.change(job, progress={"step": 7, "loss": 0.5})
        service.end(job)
        rest = list(events)
    assert [event.kind for event in rest][-1] == "end"
    assert rest[-1].data["state"] == "succeeded"
    assert steps(rest) == [7]
    states = [event.data["state"] for event in rest if event.kind == "job.state"]
    assert states == ["running", "succeeded"]
    ids = [event.id for event in rest[:-1]]
    assert ids == sorted(set(ids))
    assert first.id < ids[0]


def test_streams_leave_descriptors_for_requests(
    service: LiveService, alice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service.app.state.streams, "_most", 0)
    assert alice.get("/v1/events").status_code == 429
    assert alice.get("/v1/me").status_code == 200


def test_the_stream_of_an_ended_job_ends_at_once(service: LiveService, alice) -> None:
    job = service.job()
    before = service.store.last_seq()
    service.end(job, "failed")
    with stream_of(alice, f"/v1/jobs/{job.id}/events") as events:
        assert [event.kind for event in events] == ["job.state", "end"]
    with stream_of(alice, f"/v1/jobs/{job.id}/events", after=before) as events:
        told = list(events)
        assert told[-1].kind == "end"
        assert told[-2].data["state"] == "failed"
    with stream_of(alice, f"/v1/jobs/{job.id}/events", after=service.store.last_seq()) as events:
        assert [event.kind for event in events] == ["end"]


def test_a_job_that_was_resumed_has_not_ended(service: LiveService, alice) -> None:
    before = service.store.last_seq()
    job = service.job()
    service.end(job, "failed")
    service.change(job, state="queued", phase="queued", finished_at_s=None)
    with stream_of(alice, f"/v1/jobs/{job.id}/events", after=before) as events:
        seen = [next(events) for _ in range(3)]
        assert [event.data["state"] for event in seen] == ["queued", "failed", "queued"]
        service.end(job, "succeeded")
        assert [event.kind for event in events] == ["job.state", "end"]


def test_a_cursor_whose_events_were_pruned_gives_the_job_anew(service: LiveService, alice) -> None:
    job = service.job()
    service.change(job, state="running", phase="handed_over")
    before = service.store.first_seq()
    last = service.store.last_seq()
    with service.store.db.write() as connection:
        connection.execute(delete(tables.events).where(tables.events.c.seq < last))
    for cursor in (max(before - 1, 0), last + 1000):
        with stream_of(alice, f"/v1/jobs/{job.id}/events", after=cursor) as events:
            first = next(events)
            assert (first.kind, first.id) == ("reset", last)
            assert first.data["state"] == "running"
        with stream_of(alice, "/v1/events", after=cursor) as events:
            first = next(events)
            assert first.kind == "reset"
            assert job.id in [shown["id"] for shown in first.data["jobs"]]
    service.end(job)


def test_the_stream_of_all_jobs_begins_with_the_cursor(service: LiveService, alice) -> None:
    service.end(service.job())
    service.publish()
    with alice.stream("GET", "/v1/events") as answer:
        ids = (line for line in answer.iter_lines() if line.startswith("id: "))
        assert next(ids) == f"id: {service.store.last_seq()}"


def test_everybody_hears_of_their_own_jobs_alone(service: LiveService) -> None:
    first = service.store.last_seq()
    theirs = {owner: service.job(owner=owner) for owner in ("alice", "bob")}
    service.publish()
    expected = {"alice": ["alice"], "bob": ["bob"], "eve": [], "watcher": ["alice", "bob"]}
    roles = {"alice": Role.SUBMITTER, "bob": Role.SUBMITTER, "eve": Role.SUBMITTER}
    for user, owners in expected.items():
        with (
            service.client(user, roles.get(user, Role.VIEWER)) as client,
            stream_of(client, "/v1/events", after=first) as events,
        ):
            mark = service.job(owner=user)
            if user == "watcher":
                owners = ["alice", "bob", "alice", "bob", "eve"]
            seen = list(islice(events, len(owners) + 1))
            assert [event.data["owner"] for event in seen] == [*owners, user]
            assert seen[-1].data["id"] == mark.id
    with service.client("carol", None) as client:
        assert client.get(f"/v1/jobs/{theirs['bob'].id}/events").status_code == 404


@pytest.mark.slow
def test_who_loses_the_right_loses_the_stream_without_an_end(service: LiveService) -> None:
    job = service.job(owner="bob")
    token = service.token("mallory", Role.VIEWER)
    with (
        service.client_with(token) as client,
        stream_of(client, f"/v1/jobs/{job.id}/events") as events,
    ):
        assert next(events).data["id"] == job.id
        service.store.revoke_token(token.id)
        assert list(events) == []
    with (
        service.client("nina", Role.VIEWER) as client,
        stream_of(client, f"/v1/jobs/{job.id}/events") as events,
    ):
        next(events)
        service.store.remove_member("default", "nina")
        assert list(events) == []


def test_a_token_has_so_many_streams(service: LiveService) -> None:
    most = service.app.state.parts.settings.limits.streams_per_token
    job = service.job()
    token = service.token("alice", Role.SUBMITTER)
    path = f"/v1/jobs/{job.id}/events"
    with service.client_with(token) as client:
        answers = [client.build_request("GET", path) for _ in range(most)]
        open_ones = [client.send(request, stream=True) for request in answers]
        refused = client.get(path)
        assert (refused.status_code, refused.json()["code"]) == (429, "rate")
        assert "Retry-After" in refused.headers
        for answer in open_ones:
            answer.close()
        until(lambda: not service.app.state.streams.open[token.id])
        with stream_of(client, path) as events:
            next(events)


def test_nobody_asks_the_store_when_nobody_listens(service: LiveService, alice) -> None:
    feed = service.app.state.streams.feed
    until(lambda: feed._task is None)
    job = service.job()
    with stream_of(alice, f"/v1/jobs/{job.id}/events") as events:
        next(events)
        assert feed._task is not None
    until(lambda: feed._task is None)


@pytest.mark.parametrize("cursor", ["x", "-1", "1.5", "9" * 30])
def test_what_is_no_cursor_is_refused(service: LiveService, alice, cursor: str) -> None:
    assert alice.get("/v1/events", headers={"Last-Event-ID": cursor}).status_code == 400
    assert alice.get("/v1/events", params={"after": cursor}).status_code == 400
