"""The documents that a scheduler serves of its jobs."""

import json
import math
from typing import Any

import pytest
from hypothesis import given, strategies as st
from monitored import Site, beside, new_site, steps_done

from distrain.jobs.api_answers import utc
from distrain.jobs.events import RankExited, RankFinished, RankStopped
from distrain.jobs.job_view import AttemptStarted, JobView, Record
from distrain.jobs.spec import parse_spec
from distrain.jobs.states import JobState
from distrain.scheduler.history.job_history import JobHistory
from distrain.scheduler.history.job_json import Watched, job_document, time_left_s
from distrain.scheduler.history.ranks import shown_ranks
from distrain.scheduler.lifecycle.job import Job
from distrain.scheduler.lifecycle.messages import Cancel, Submit, Tick


@beside(new_site)
async def test_a_job_is_shown_with_its_ranks(site: Site) -> None:
    site.submit("old")
    site.submit("a", tags={"team": "ads"})
    for step in (10, 20):
        site.step("a", step)
    listed = (await site.json("/distrain/v1/jobs"))["jobs"]
    assert [job["id"] for job in listed] == ["a", "old"]
    job = await site.json("/distrain/v1/jobs/a")
    assert listed[0] == {name: job[name] for name in listed[0]}
    over_comm = site.scheduler.handlers["distrain_request"]  # Dask's call answers the same
    assert json.loads(over_comm("GET", "/v1/jobs/a", "", b"")["text"]) == job
    head = await site.get("/distrain/v1/jobs/a", method="HEAD")
    assert (head.code, head.body) == (200, b"")
    expected = {
        "name": "test", "tags": {"team": "ads"}, "state": "running", "attempt": 1,
        "num_ranks": 2, "step": 20, "num_steps": 100, "epoch": 0, "rows_total": 400,
        "total_rows": 10_000, "stall_mean_pct": pytest.approx((12.5 + 25.0) / 2),
        "elapsed_s": 2.0,
        "rows_per_s": pytest.approx(200.0), "eta_s": pytest.approx(9_600 / 200),
        "run_dir": "runs/a", "restarts": 0, "checkpoints": 0, "reader": "arrow: it is a test",
        "slowest": {"rank": 1, "step_time_s": 0.1, "median_step_time_s": pytest.approx(0.075)},
    }  # fmt: skip
    assert {name: job[name] for name in expected} == expected
    assert job["spec"]["resources"]["num_ranks"] == 2
    rank = job["ranks"][1]
    assert (rank["pid"], rank["host"], rank["worker"]) == (1001, "host-1", "tcp://a-1:1")
    assert (rank["step"], rank["doing"], rank["gpu"]) == (20, "forward_backward", None)
    assert rank["rows_per_s"] == pytest.approx(1000.0)
    assert rank["total_seconds"]["data_wait"] == pytest.approx(0.5)
    assert [m["text"] for m in job["timeline"]] == ["pending", "starting", "running"]


@beside(new_site)
async def test_curves_come_piece_by_piece(site: Site) -> None:
    path = "/distrain/v1/jobs/a/curves"
    site.submit("a")
    site.step("a", 10)
    first = await site.json(path)
    assert first["restart"]
    assert (first["train"]["step"], first["train"]["rows_total"]) == ([10], [200])
    nothing = await site.json(f"{path}?since={first['cursor']}")
    assert (nothing["restart"], nothing["train"]["step"]) == (False, [])
    site.step("a", 20)
    more = await site.json(f"{path}?since={first['cursor']}")
    assert (more["restart"], more["train"]["step"]) == (False, [20])
    assert more["valid"]["auc"] == []
    site.coordinator._forget("a")  # and submitted again
    site.submit("a")
    replaced = await site.json(f"{path}?since={more['cursor']}")
    assert (replaced["restart"], replaced["train"]["step"]) == (True, [])


@beside(new_site)
async def test_a_job_that_ends_is_shown_until_it_is_forgotten(site: Site) -> None:
    site.submit("good")
    site.submit("bad")
    site.step("good", 10)
    for rank in range(2):
        site.tell("good", RankFinished(rank, 10, 100, 1.0, {}))
        site.tell("good", RankExited(rank, 0, stopped=False))
    site.coordinator.handle_stimulus(Cancel("bad"))
    for rank in range(2):
        site.tell("bad", RankStopped(rank, 0, saved=False))
        site.tell("bad", RankExited(rank, 0, stopped=True))
    jobs = {job["id"]: job for job in (await site.json("/distrain/v1/jobs"))["jobs"]}
    assert jobs["good"]["state"] == "succeeded"
    assert jobs["good"]["rows_per_s"] == pytest.approx(200.0), "of the whole run"
    assert jobs["bad"]["rows_per_s"] is None
    assert (jobs["bad"]["state"], jobs["bad"]["reason"]) == ("cancelled", "Cancelled")
    texts = [m["text"] for m in (await site.json("/distrain/v1/jobs/bad"))["timeline"]]
    assert [text.partition(":")[0] for text in texts[-2:]] == ["stopping", "cancelled"]
    site.coordinator._forget("good")
    assert await site.json("/distrain/v1/jobs/good", 404)
    assert list(site.coordinator.histories) == ["bad"]


@beside(new_site)
async def test_a_history_that_fails_harms_nobody(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    site.submit("a")
    history = site.coordinator.histories["a"]
    monkeypatch.setattr(history, "observe", broken)
    site.step("a", 10)
    view = site.coordinator.view("a")
    assert view is not None
    assert view["next_record"] == history.num_entries == 2  # it began, and a record
    assert history.last_train is not None, "the record is kept, though not the reports"
    with monkeypatch.context() as patch:
        patch.setattr(history, "take", broken)
        site.step("a", 20)
    site.step("a", 30)
    assert history.last_train.step == 30, "an entry that failed does not hold up later ones"
    for rank in range(2):
        site.tell("a", RankFinished(rank, 30, 100, 1.0, {}))
        site.tell("a", RankExited(rank, 0, stopped=False))
    await assert_ended(site, "a", "succeeded", ["pending", "starting", "running", "succeeded"])
    assert num_failures_logged(caplog) == 2, "one for each of the two places"


@pytest.mark.parametrize("where", ["stop", "end of the attempt", "end of the job", "summary"])
@beside(new_site)
async def test_an_instruction_that_fails_stays_out_of_the_history(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    site.submit("a")
    site.queue("waits")
    site.step("a", 10)
    gangs, recordings = site.coordinator.gangs, site.coordinator.recordings
    whose, name = {
        "stop": (gangs, "command"),
        "end of the attempt": (gangs, "end"),
        "end of the job": (recordings, "end_job"),
        "summary": (recordings, "advance"),
    }[where]
    monkeypatch.setattr(whose, name, broken)
    site.coordinator.handle_stimulus(Cancel("waits"))
    site.coordinator.handle_stimulus(Cancel("a"))
    for rank in range(2):
        site.tell("a", RankExited(rank, 0, stopped=True))
    await assert_ended(site, "waits", "cancelled", ["pending", "cancelled"])
    states = ["pending", "starting", "running", "stopping", "cancelled"]
    await assert_ended(site, "a", "cancelled", states)
    monkeypatch.undo()
    assert num_failures_logged(caplog) == 1


@beside(new_site)
async def test_a_record_that_fails_at_an_attempts_end_leaves_no_gang(
    site: Site,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site.submit("a")
    ended = []
    gangs, recordings = site.coordinator.gangs, site.coordinator.recordings
    monkeypatch.setattr(recordings, "end_attempt", broken)
    monkeypatch.setattr(gangs, "end", lambda job_id, attempt: ended.append((job_id, attempt)))
    site.coordinator.handle_stimulus(Cancel("a"))
    for rank in range(2):
        site.tell("a", RankExited(rank, 0, stopped=True))
    assert ended == [("a", 1)]


@beside(new_site)
async def test_a_failing_instruction_does_not_prevent_those_of_other_jobs(
    site: Site,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for job_id in ("bad", "good"):
        site.submit(job_id, deadlines={"total_s": 60.0})
    coordinator, stopped = site.coordinator, []

    def command(gang: Any, op: str, **_: object) -> None:
        stopped.append(gang.job_id)
        if gang.job_id == "bad":
            broken()

    monkeypatch.setattr(coordinator.gangs, "command", command)
    for job in coordinator.lifecycle.jobs.values():
        job.submitted_s -= 61.0  # both are late
    coordinator.handle_stimulus(Tick())
    assert stopped == ["bad", "good"]


def broken(*_: object, **__: object) -> None:
    raise ValueError("a mistake")


async def assert_ended(site: Site, job_id: str, state: str, timeline: list[str]) -> None:
    job = await site.json(f"/distrain/v1/jobs/{job_id}")
    assert job["state"] == state
    moments = [m for m in job["timeline"] if m["kind"] == "state"]
    assert [m["text"].partition(":")[0] for m in moments] == timeline
    assert job["finished_at"] == utc(moments[-1]["at_s"]) > job["created_at"]


def num_failures_logged(caplog: pytest.LogCaptureFixture) -> int:
    failed = [r for r in caplog.records if "the coordinator failed" in r.getMessage()]
    return sum(record.exc_info is not None and record.levelname == "ERROR" for record in failed)


@beside(new_site)
async def test_of_a_large_job_those_ranks_come_that_tell_most_or_all(site: Site) -> None:
    num_ranks = 100
    site.submit("a", num_ranks)
    for rank in range(num_ranks):
        site.tell("a", steps_done(rank, 10, own_s=0.3 + 0.2 * (rank == 77), wall_s=1.0))
    job = await site.json("/distrain/v1/jobs/a")
    shown = [rank["rank"] for rank in job["ranks"]]
    assert len(shown) == 64
    assert shown == sorted(shown)
    assert 77 in shown
    assert (job["num_ranks"], job["slowest"]["rank"]) == (num_ranks, 77)
    every = (await site.json("/distrain/v1/jobs/a?ranks=all"))["ranks"]
    assert [rank["rank"] for rank in every] == list(range(num_ranks))
    assert [rank for rank in every if rank["rank"] in shown] == job["ranks"]
    refused = await site.json("/distrain/v1/jobs/a?ranks=some", 400)
    assert "'some'" in refused["detail"]


@given(
    st.dictionaries(st.integers(0, 999), st.one_of(st.none(), st.floats(0, 9)), max_size=60),
    st.integers(3, 30),
)
def test_shown_ranks_have_the_slowest_and_the_fastest(
    times_s: dict[int, float | None], limit: int
) -> None:
    shown = shown_ranks(times_s, limit)
    assert shown == sorted(set(shown))
    assert len(shown) == min(limit, len(times_s))
    by_speed = sorted(times_s.values(), key=lambda time_s: time_s or 0.0)
    told = sorted((times_s[rank] or 0.0) for rank in shown)
    if by_speed:
        assert (told[0], told[-1]) == (by_speed[0] or 0.0, by_speed[-1] or 0.0)


def watched_of(*, rows_before: int, elapsed_before_s: float, records: list[Record]) -> Watched:
    """A running job whose last attempt went on from a checkpoint."""
    view = JobView(
        "a", "test", JobState.RUNNING, 2, 1, total_rows=10_000,
        rows_before=rows_before, elapsed_before_s=elapsed_before_s,
    )  # fmt: skip
    history = JobHistory(0.0)
    history.take([AttemptStarted(2, 5, 1), *records], 1.0)
    spec = parse_spec({"data": {"train": "nowhere"}, "model": {"kind": "mlp"}})
    return Watched(view, Job(Submit("a", spec, "runs/a", 0), 0.0, 0), history, 200.0)


def record_at(rows_total: int, elapsed_s: float, loss: float = 0.5) -> Record:
    step = rows_total // 100
    return Record("train", 0, step, 1_000, rows_total, elapsed_s, 1.0, loss, math.nan, 0.7, 0.0)


def test_the_time_to_go_is_that_of_this_attempt() -> None:
    job = watched_of(rows_before=5_000, elapsed_before_s=1_000.0, records=[record_at(6_000, 1_010)])
    assert time_left_s(job) == pytest.approx(40.0), "1,000 rows in 10 s, 4,000 to go"
    nothing_yet = watched_of(rows_before=5_000, elapsed_before_s=1_000.0, records=[])
    assert time_left_s(nothing_yet) is None


def test_what_is_not_finite_is_null() -> None:
    records = [record_at(6_000, 1_010, math.nan), record_at(7_000, 1_020, math.inf)]
    document = job_document(watched_of(rows_before=0, elapsed_before_s=0.0, records=records))
    assert document["loss"] is None
    assert json.dumps(document, allow_nan=False)
