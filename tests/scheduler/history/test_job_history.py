"""What a job's ranks told becomes curves, ranks and a time line; taken-back records go."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from distrain.jobs.events import (
    CheckpointSaved,
    Heartbeat,
    RankExited,
    RankFinished,
    RankStarted,
    StepsDone,
    TrainingStarted,
)
from distrain.jobs.job_view import AttemptStarted, Notice, Record
from distrain.jobs.states import JobState
from distrain.runs.history import History
from distrain.runs.records.series import CAPACITY
from distrain.scheduler.history.job_history import KEPT_MOMENTS, TRAIN, JobHistory


def record(step, split="train", elapsed_s=None):
    return Record(
        split=split,
        epoch=0,
        step=step,
        rows=100,
        rows_total=20 * step,
        elapsed_s=float(step) if elapsed_s is None else elapsed_s,
        rows_per_s=50.0 if split == "train" else None,
        loss=1.0 / step,
        normalised_entropy=1.0,
        auc=0.5 + step / 10_000,
        auc_bound=0.001,
        stall_pct=(10.0, 30.0) if split == "train" else (),
        lr=0.1 if split == "train" else None,
    )


def steps_done(rank, step, own_s=1.0, exchange_s=1.0, rows=500, elapsed_s=None):
    seconds = {"data_wait": own_s / 4, "forward_backward": 3 * own_s / 4, "exchange": exchange_s}
    seconds["evaluate"] = 7.0
    return StepsDone(
        rank, 0, step, elapsed_s or float(step), seconds, {}, 0.1, loader={"rows": rows}
    )


def started(rank, first_step=0, elapsed_before_s=0.0):
    return TrainingStarted(
        rank, 100, 2000, 2000, 7, "arrow", first_step, 20 * first_step, elapsed_before_s
    )


entries = st.lists(
    st.one_of(
        st.tuples(st.just("train"), st.integers(1, 5)),
        st.tuples(st.just("valid"), st.just(0)),
        st.tuples(st.just("resumed"), st.integers(0, 60)),
    ),
    max_size=60,
)


@given(entries)
@settings(max_examples=30)
def test_the_curves_have_the_records_that_count(story):
    step, told = 0, []
    for kind, number in story:
        if kind == "train":
            step += number
            told.append(record(step))
        elif kind == "valid" and step:
            told.append(record(step, "valid"))
        elif kind == "resumed":
            step = min(step, number)
            told.append(AttemptStarted(1, step, 2))
    recorded, history = History(), JobHistory(0.0)
    recorded.add(told)
    history.take(told, now_s=1.0)
    for split, series in (("train", history.train), ("valid", history.valid)):
        counted = [r for r in recorded.records if r.split == split]
        shown = series.since()
        assert shown["step"] == [r.step for r in counted]
        assert shown["loss"] == pytest.approx([r.loss for r in counted])
        assert shown["rows_total"] == [r.rows_total for r in counted]


def test_a_restart_takes_back_what_came_after_its_checkpoint() -> None:
    history = JobHistory(0.0)
    history.observe(1, started(0), 0.0)
    history.take([AttemptStarted(1, 0, 1)], 0.0)
    for step in (10, 20, 30):
        history.observe(1, steps_done(0, step), float(step))
        history.take([record(step), record(step, "valid")], float(step))
    generation = history.generation
    history.observe(2, started(0, first_step=20, elapsed_before_s=20.0), 40.0)
    history.take([AttemptStarted(2, 20, 1)], 40.0)
    assert history.generation > generation
    assert history.step == 20
    assert (history.last_train, history.last_valid) == (None, None)
    assert history.train.since()["step"] == history.valid.since()["step"] == [10, 20]
    history.observe(2, steps_done(0, 30, elapsed_s=10.0), 50.0)
    history.take([record(20), record(30)], 50.0)  # 20 was told before
    assert history.train.since()["step"] == [10, 20, 30]
    assert history.now[0].total_seconds == steps_done(0, 30).seconds  # of this attempt
    assert history.phase_seconds == Counter(
        {"data_wait": 1.0, "forward_backward": 3.0, "exchange": 4.0, "evaluate": 28.0}
    )


def test_a_ranks_step_time_leaves_out_its_waits_for_others() -> None:
    history = JobHistory(0.0)
    for rank, own_s in enumerate((1.0, 3.0, 2.0)):
        history.observe(1, started(rank), 0.0)
        history.observe(1, steps_done(rank, 10, own_s, exchange_s=4.0 - own_s), 1.0)
    times = [history.now[rank].step_time_s for rank in range(3)]
    assert times == pytest.approx([0.1, 0.3, 0.2])
    assert history.slowest() == {
        "rank": 1,
        "step_time_s": pytest.approx(0.3),
        "median_step_time_s": pytest.approx(0.2),
    }
    assert history.now[0].rows_per_s == pytest.approx(500 / 4.0)  # all 4 s, without validation
    assert history.step_times.cumulative()[-1] == (float("inf"), 30)
    assert history.step_times.sum_s == pytest.approx(3 * 4.0)
    assert dict(history.step_times.cumulative())[0.5] == 30
    assert dict(history.step_times.cumulative())[0.2] == 0


def test_ranks_tell_who_and_where_they_are_and_what_they_do() -> None:
    history = JobHistory(0.0)
    history.observe(1, RankStarted(0, 4711, "host-a", "cuda:0"), 1.0)
    history.observe(1, Heartbeat(0, 3, 3, "exchange", "peers"), 2.0)
    rank = history.now[0]
    assert (rank.pid, rank.host, rank.device) == (4711, "host-a", "cuda:0")
    assert (rank.doing, rank.waiting_for) == ("exchange", "peers")
    history.observe(1, RankFinished(0, 3, 60, 3.0, {}), 3.0)
    history.observe(1, RankExited(0, 0, stopped=False), 9.0)
    assert (rank.doing, rank.waiting_for) == ("finished", "")
    history.observe(2, RankExited(1, -9, stopped=False), 10.0)
    assert {r: now.doing for r, now in history.now.items()} == {1: "exited"}  # attempt 1 is over


def test_the_time_line_keeps_the_last_moments_of_each_kind() -> None:
    history = JobHistory(0.0)
    history.move(1, JobState.RUNNING, 0.5)
    for step in range(1, 3 * KEPT_MOMENTS):
        saved = CheckpointSaved(0, step, "s3://b/c", 3 * 2**20, 0.1, 0.2)
        history.observe(1, saved, float(step))
    history.take([Notice("an odd thing"), record(9, "valid")], 500.0)
    moments = history.moments
    assert [m.at_s for m in moments] == sorted(m.at_s for m in moments)
    kinds = Counter(m.kind for m in moments)
    assert kinds == {"state": 1, "checkpoint": KEPT_MOMENTS, "notice": 1, "validated": 1}
    assert moments[0].text == "running"
    assert moments[1].text == f"checkpoint of step {2 * KEPT_MOMENTS}, 3.00 MiB"
    assert moments[-1].text == "AUC 0.5009 of 100 rows"


def test_the_curve_of_a_job_that_ended_has_its_last_point() -> None:
    history = JobHistory(0.0)
    history.take([AttemptStarted(1, 0, 2)], 0.0)
    steps = range(1, CAPACITY + 4)
    for step in steps:
        history.take([record(step)], float(step))
    history.move(1, JobState.SUCCEEDED, 1000.0)
    assert history.train.since()["step"][-1] == steps[-1]


def test_rows_per_second_are_told_while_steps_are_taken():
    history = JobHistory(0.0)
    history.move(1, JobState.RUNNING, 1.0)
    history.take([AttemptStarted(1, 0, 2), record(10)], 2.0)
    assert history.rows_per_s == 50.0
    history.move(1, JobState.STOPPING, 3.0, "RankDied: rank 1 was killed")
    assert history.rows_per_s is None
    history.move(2, JobState.RUNNING, 4.0)
    history.take([AttemptStarted(2, 10, 2)], 4.0)
    assert history.rows_per_s is None, "nothing was trained in this attempt"
    history.take([replace(record(20), rows=300, rows_per_s=100.0)], 5.0)
    assert history.rows_per_s == 100.0
    assert history.mean_rows_per_s == 400 / (100 / 50 + 300 / 100)


def test_further_targets_have_curves_of_their_main_metric():
    history = JobHistory(0.0)
    of_targets = {"price": {"mae": 1.0, "rmse": 2.0}, "like": {"auc": 0.75, "auc_bound": 0.1}}
    later = of_targets | {"buy": {"auc": 0.75}}  # a metric that is defined later
    first = of_targets | {"buy": {"auc": None}}
    records = [replace(record(10), targets=first), replace(record(20), targets=later)]
    valid = replace(records[-1], split="valid", loss=None, auc=None)
    history.take([AttemptStarted(1, 0, 2), *records, valid], 1.0)
    train, validated = history.train.since(), history.valid.since()
    assert train["price.rmse"] == [2.0, 2.0]
    assert train["like.auc"] == [0.75, 0.75]
    assert set(train) - {"price.rmse", "like.auc", "buy.auc"} == {column.name for column in TRAIN}
    assert train["buy.auc"] == [None, 0.75]
    assert validated["price.rmse"] == [2.0]
    assert "price RMSE 2, like AUC 0.75" in history.moments[-1].text
    history.take([AttemptStarted(2, 10, 2)], 2.0)
    assert history.train.since()["price.rmse"] == [2.0]
