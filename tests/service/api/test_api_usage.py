"""Hours of ranks and GPUs: days of UTC, what callers may see, and a table for spreadsheets."""

import csv
from datetime import UTC, datetime

from api_world import World

from distrain.service.api.routes.usage import summed
from distrain.service.store.listing import Worked

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()


def worked(hours, *, user="alice", job="a", ranks=4, gpus=0, tags=None):
    return Worked("ads", user, "gpu", tags or {}, job, ranks, gpus, NOON, NOON + hours * 3600)


def test_hours_fall_on_the_days_in_which_they_were():
    rows = summed([worked(24), worked(6, job="b", gpus=2)], ["day", "user"])
    found = [(str(row.day), row.user, row.jobs, row.rank_hours, row.gpu_hours) for row in rows]
    assert found == [
        ("2026-03-02", "alice", 1, 48.0, 0.0),
        ("2026-03-01", "alice", 2, 72.0, 12.0),
    ]


def test_rows_tell_apart_what_is_asked_for():
    every = [worked(1, tags={"team": "x"}), worked(2, user="bob", job="b")]
    [row] = summed(every, ["project"])
    assert (row.project, row.day, row.jobs, row.rank_hours) == ("ads", None, 2, 12.0)
    assert [(row.tag, row.rank_hours) for row in summed(every, [], "team")] == [("", 8), ("x", 4)]


def test_submitters_see_their_own_and_operators_all(world: World):
    begun = world.store.now_s() - 3600
    for user in ("alice", "bob"):
        job = world.submit(user, tags={"team": "=1+1"})
        world.hold(job["id"], begun)
    mine = world.ask("alice", "GET", "/v1/usage?by=user").json()["rows"]
    assert [(row["user"], row["jobs"]) for row in mine] == [("alice", 1)]
    assert 0 < mine[0]["rank_hours"] == round(mine[0]["rank_hours"], 4)
    every = world.ask("operator", "GET", "/v1/usage?by=user").json()["rows"]
    assert [row["user"] for row in every] == ["alice", "bob"]
    answer = world.ask("operator", "GET", "/v1/usage?by=project&tag=team&format=csv")
    head, row = csv.reader(answer.text.splitlines())
    assert head == ["project", "tag", "jobs", "rank_hours", "gpu_hours"]
    assert row[:3] == ["ads", "'=1+1", "2"]  # no formula
    assert answer.headers["Content-Type"].startswith("text/csv")


def test_days_that_are_too_many_or_turned_round_are_refused(world: World):
    for words in ("since=2020-01-01", "since=2026-01-02&until=2026-01-01"):
        answer = world.ask("alice", "GET", f"/v1/usage?{words}")
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")
