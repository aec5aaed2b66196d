"""Reports of ranks become records of the whole job."""

import json
import math
from dataclasses import asdict, replace
from functools import cache

import numpy as np
import pytest
from counted_rows import counted
from hypothesis import given, settings, strategies as st

from distrain.jobs.events import (
    PHASES,
    CheckpointSaved,
    CheckpointTrouble,
    EvaluationDone,
    ModelSaved,
    RankFinished,
    RankStarted,
    StepsDone,
    TrainingStarted,
)
from distrain.jobs.job_view import (
    AttemptStarted,
    Checkpoints,
    Notice,
    Record,
    record_from_json,
)
from distrain.metrics import BinaryMetrics
from distrain.metrics.targets import TargetMetrics
from distrain.runs.records.collector import Collector
from distrain.runs.records.merging import stall_pct

NUM_RANKS = 3


def records_in(collector: Collector) -> list[Record]:
    return [entry for entry in collector.entries.since(0) if isinstance(entry, Record)]


def rows_of(rank, step):
    """Some rows that only this rank scored in the window up to this step."""
    rng = np.random.default_rng([rank, step])
    rows = 20 + 5 * rank
    return rng.normal(size=rows).astype(np.float32), rng.integers(0, 2, rows)


def state(rows):
    """A metrics state as it travels."""
    metrics = BinaryMetrics()
    metrics.update(*rows)
    return json.loads(json.dumps(metrics.to_json()))


def seconds_of(rank, step):
    seconds = dict.fromkeys(PHASES, 0.0)
    return {**seconds, "data_wait": 1.0 + rank, "optimizer": 3.0, "evaluate": float(step % 2)}


def loader_of(rank, step):
    depth = {"queue_depth_sum": 4 * step + rank, "mean_queue_depth": 4.0 + rank / step}
    return {"batches": step, "rows": 100 * step, "decode_s": 0.5 + rank, **depth}


def exchange_of(rank, step):
    counts = {"lookups": 40 * step, "distinct": 10 * step, "updated": 20, "route_s": 0.5}
    return {"steps": step, **counts, "sent_bytes": 100 * step * rank}


def device_seconds_of(rank):
    return {"optimizer": 1.0 + rank, "data_wait": 0.5}


def steps_done(rank, step, epoch=0):
    metrics, loader = state(rows_of(rank, step)), loader_of(rank, step)
    return StepsDone(
        rank,
        epoch,
        step,
        10.0 * step + rank,
        seconds_of(rank, step),
        metrics,
        0.5,
        loader,
        exchange_of(rank, step),
        device_seconds_of(rank),
    )


def finished(rank):
    return RankFinished(
        rank,
        30,
        75,
        40.0,
        seconds_of(rank, 30),
        1.5,
        loader_of(rank, 30),
        exchange_of(rank, 30),
        device_seconds_of(rank),
        {"host_bytes": 1000 + rank, "device_bytes": 0},
    )


def evaluated(rank, step):
    return EvaluationDone(rank, 0, step, 10.0 * step + rank, state(rows_of(rank, -step % 97)))


@cache
def story_of(rank):
    """What one rank reports, in its order."""
    return (
        RankStarted(rank, 1, "host", "cpu"),
        TrainingStarted(rank, 30, 75, 150, 7),
        steps_done(rank, 10),
        steps_done(rank, 20),
        evaluated(rank, 20),
        steps_done(rank, 30, epoch=1),
        evaluated(rank, 30),
        *([ModelSaved(0, "runs/a/model")] if rank == 0 else []),
        finished(rank),
    )


@cache
def whole_story():
    return collected(event for rank in range(NUM_RANKS) for event in story_of(rank))


def collector_of(num_ranks, attempt=1, **why):
    collector = Collector()
    collector.begin_attempt(attempt, num_ranks, **why)
    return collector


def collected(events):
    collector = collector_of(NUM_RANKS)
    for event in events:
        collector.add(event)
    return collector


def naive(rows):
    """Log loss, normalised entropy and AUC of some rows, straight from their definitions."""
    logits, labels = rows[0].astype(np.float64), rows[1]
    p = 1 / (1 + np.exp(-logits))
    loss = float(np.mean(-np.log(np.where(labels == 1, p, 1 - p))))
    rate = labels.mean()
    entropy = -rate * math.log(rate) - (1 - rate) * math.log(1 - rate)
    above = logits[labels == 1][:, None] - logits[labels == 0][None, :]
    return loss, loss / entropy, float(np.mean((above > 0) + 0.5 * (above == 0)))


@pytest.mark.parametrize("label", [0, 1])
def test_a_validation_whose_rows_have_one_label_is_told_of_once(label):
    """Nothing is judged by its AUC, which nobody would see from a curve that is not there."""
    collector = Collector()
    collector.begin_attempt(1, 2)
    metrics = state((np.arange(5, dtype=np.float32), np.full(5, label)))
    for step, own in ((5, {"recall_at_10": 0.5}), (10, {}), (20, {})):
        assert (
            not [entry for entry in collector.entries.since(0) if isinstance(entry, Notice)]
            or step > 10
        )
        for rank in range(2):
            collector.add(EvaluationDone(rank, 0, step, 1.0, metrics, own=own))
    (told,) = [entry.text for entry in collector.entries.since(0) if isinstance(entry, Notice)]
    assert f"label {label}" in told
    assert [record.auc for record in records_in(collector)] == [None] * 3


def test_a_window_that_a_constant_predicts_better_is_told_of_once():
    collector = Collector()
    collector.begin_attempt(1, 1)
    labels = np.array([0, 1, 0, 1])
    metrics = state((np.zeros(4, np.float32), labels))
    for windows, entropy in ((0, None), (1, 1.5), (2, 1.2), (3, 0.99), (4, 1.0), (5, 1.1)):
        so_far = {"windows": windows, "normalised_entropy": entropy} if windows else {}
        name = f"day {windows}" if windows else ""
        done = EvaluationDone(0, 0, windows, 1.0, metrics, window=name, progressive=so_far)
        collector.add(done)
    (told,) = [entry.text for entry in collector.entries.since(0) if isinstance(entry, Notice)]
    assert "day 4" in told


def test_records_say_what_a_naive_computation_over_all_rows_says():
    collector = whole_story()
    splits = [(r.split, r.epoch, r.step) for r in records_in(collector)]
    assert splits == [
        ("train", 0, 10), ("train", 0, 20), ("valid", 0, 20), ("train", 1, 30), ("valid", 0, 30)
    ]  # fmt: skip
    for record in records_in(collector):
        seed = record.step if record.split == "train" else -record.step % 97
        parts = [rows_of(rank, seed) for rank in range(NUM_RANKS)]
        rows = tuple(np.concatenate(part) for part in zip(*parts, strict=True))
        loss, entropy, auc = naive(rows)
        assert record.rows == len(rows[0]) == 75
        assert record.loss == pytest.approx(loss)
        assert record.normalised_entropy == pytest.approx(entropy)
        assert abs(record.auc - auc) <= record.auc_bound + 1e-12
        assert record.elapsed_s == 10.0 * record.step + NUM_RANKS - 1
        if record.split == "valid":
            told = record.reliability
            assert sum(told["rows"]) == record.rows
            seen = zip(told["observed"], told["rows"], strict=True)
            assert sum(rate * count for rate, count in seen) == pytest.approx(rows[1].sum())
    assert [r.rows_total for r in records_in(collector)] == [75, 150, 150, 225, 225]


def test_a_training_record_has_the_speed_times_and_counts_of_all_ranks():
    (record,) = records_in(collected(steps_done(rank, 5) for rank in range(NUM_RANKS)))
    # The slowest rank trained for 3 + 3 s; the second of validation does not count.
    assert record.rows_per_s == 75 / 6
    assert record.stall_pct == (100 / 5, 200 / 6, 300 / 7)
    assert sum(record.seconds.values()) == 2.0 + 3.0 + 1.0
    assert (record.seconds["data_wait"], record.lr) == (2.0, 0.5)
    assert record.loader["mean_queue_depth"] == 63 / 15
    assert (record.loader["rows"], record.loader["decode_s"]) == (1500, 4.5)
    sent = [record.exchange[name] for name in ("steps", "unique_ratio", "sent_bytes_per_step")]
    assert sent == [5, 0.25, 300.0]
    assert record.device_seconds == {"data_wait": 0.5, "optimizer": 2.0}
    shown, ranks = whole_story().shown(), range(NUM_RANKS)
    assert shown["rank_exchange"] == tuple(exchange_of(rank, 30) for rank in ranks)
    assert shown["rank_device_seconds"] == tuple(device_seconds_of(rank) for rank in ranks)
    assert shown["rank_loader"] == tuple(loader_of(rank, 30) for rank in ranks)
    assert shown["rank_setup_s"] == (1.5, 1.5, 1.5)
    assert shown["rank_stall_pct"] == tuple(stall_pct(seconds_of(rank, 30)) for rank in ranks)
    assert [held["host_bytes"] for held in shown["rank_peak_memory"]] == [1000, 1001, 1002]
    assert stall_pct({}) == stall_pct({"data_wait": 0.0}) == 0.0


@given(st.data())
@settings(deadline=None, max_examples=10)
def test_the_order_in_which_ranks_report_does_not_matter(data):
    expected = whole_story()
    stories = [list(story_of(rank)) for rank in range(NUM_RANKS)]
    turns = data.draw(st.permutations([r for r, story in enumerate(stories) for _ in story]))
    mixed = collected(stories[rank].pop(0) for rank in turns)
    assert mixed.entries.since(0) == expected.entries.since(0)
    shown = mixed.shown()
    assert shown == expected.shown()
    assert (shown["model_path"], shown["num_steps"]) == ("runs/a/model", 30)
    assert (shown["total_rows"], shown["parameters"]) == (150, 7)


def test_rows_of_one_class_have_a_loss_and_no_auc():
    rows = np.array([0.0, 1.0], np.float32), np.array([0, 0])
    collector = collector_of(1)
    collector.add(StepsDone(0, 0, 1, 1.0, {}, state(rows), 0.1))
    (record,) = records_in(collector)
    assert record.loss == pytest.approx((math.log(2) + math.log(1 + math.e)) / 2)
    assert record.auc is record.auc_bound is record.normalised_entropy is record.rows_per_s is None
    assert record.stall_pct == (0.0,)
    assert (record.exchange, record.device_seconds) == ({}, {})
    assert collector.shown()["rank_seconds"] == ()
    collector.add(EvaluationDone(0, 0, 5, 1.0, state((*rows, np.zeros(2)))))
    assert any(isinstance(entry, Notice) for entry in collector.entries.since(0)), (
        "rows that weigh 0"
    )
    assert records_in(collector)[1].rows_per_s is records_in(collector)[1].seconds is None


def resumed_story(rank, first_step, steps, **fields):
    """What a rank reports that goes on from a checkpoint."""
    started = TrainingStarted(rank, 30, 75, 150, 7, first_step=first_step, **fields)
    return [started, *(steps_done(rank, step) for step in steps)]


def mixed(stories):
    return [event for turn in zip(*stories, strict=True) for event in turn]


def test_an_attempt_that_goes_on_says_from_where_and_why():
    collector = collector_of(2)
    for event in mixed(resumed_story(rank, 0, (10, 20, 30)) for rank in (0, 1)):
        collector.add(event)
    collector.add(steps_done(0, 40))  # half reported: the other rank dies
    collector.begin_attempt(2, 2, "RankDied", "rank 1 was killed")
    before = {"rows_before": 90, "elapsed_before_s": 20.5, "checkpoint": "step-20"}
    for event in mixed(resumed_story(rank, 20, (30, 40), **before) for rank in (0, 1)):
        collector.add(event)
    kinds = [
        (entry.attempt, entry.step) if isinstance(entry, AttemptStarted) else entry.step
        for entry in collector.entries.since(0)
    ]
    assert kinds == [(1, 0), 10, 20, 30, (2, 20), 30, 40]
    assert collector.entries.since(0)[4] == AttemptStarted(
        2, 20, 2, "RankDied", "rank 1 was killed"
    )
    first, again = collector.entries.since(0)[3], collector.entries.since(0)[5]
    assert (again.rows, again.rows_total, again.loss) == (45, 90 + 45, first.loss)
    assert first.rows_total == 3 * 45
    assert again.elapsed_s == 20.5 + first.elapsed_s
    assert collector.shown()["rows_before"] == 90
    assert collector.shown()["elapsed_before_s"] == 20.5


def test_rows_of_the_window_that_a_checkpoint_left_open_are_counted_once():
    collector = collector_of(2, attempt=3)
    before = {"rows_before": 100, "open_rows": 8}
    for event in mixed(resumed_story(rank, 17, (20, 30), **before) for rank in (0, 1)):
        collector.add(event)
    _, open_window, next_window = collector.entries.since(0)
    assert (open_window.rows, open_window.rows_total) == (45, 100 + 45 - 16)
    assert (next_window.rows, next_window.rows_total) == (45, 100 + 45 - 16 + 45)
    slowest_s = max(sum(seconds_of(rank, 20).values()) for rank in (0, 1))
    assert open_window.rows_per_s == (45 - 16) / slowest_s


def test_checkpoints_are_counted_over_attempts_and_trouble_is_noticed():
    collector = collector_of(2)
    collector.add(CheckpointSaved(0, 10, "c/step-10", 1000, 0.25, 1.0))
    collector.add(CheckpointTrouble(0, "checkpoint of step 15: the disk is full"))
    collector.begin_attempt(2, 2)
    collector.add(CheckpointSaved(0, 20, "c/step-20", 1000, 0.5, 2.0))
    assert collector.shown()["checkpoints"] == Checkpoints(2, 20, "c/step-20", 0.75, 3.0)
    assert collector.entries.since(0) == [Notice("checkpoint of step 15: the disk is full")]
    collector.add(CheckpointTrouble(0, "the checkpoint of step 25 was not written", 25))
    collector.begin_attempt(2, 2)
    collector.add(CheckpointTrouble(0, "the checkpoint of step 25 was not written", 25))
    told = collector.shown()["checkpoints"]
    assert told == Checkpoints(2, 20, "c/step-20", 0.75, 3.0, failed=2), "over all attempts"
    assert told.outcome == "2 written, 2 failed"


def test_an_attempt_that_finds_its_checkpoints_gone_says_so():
    collector = collector_of(1)
    collector.add(CheckpointSaved(0, 10, "c/step-10", 1000, 0.25, 1.0))
    collector.begin_attempt(2, 1, "RankDied", "rank 0 was killed")
    for event in resumed_story(0, 0, ()):
        collector.add(event)
    assert "c/step-10" in collector.entries.since(0)[-1].text


def test_a_record_of_many_ranks_does_not_grow_with_them() -> None:
    sizes = {}
    for num_ranks in (64, 65, 1000):
        collector = Collector()
        collector.begin_attempt(1, num_ranks)
        for rank in range(num_ranks):
            seconds = {"data_wait": rank / num_ranks, "forward_backward": 1 - rank / num_ranks}
            report = StepsDone(rank, 0, 5, 1.0, seconds, BinaryMetrics().to_json(), 0.1)
            used = {"memory": {"host_bytes": rank + 1}, "cpu_s": 2.0}
            collector.add(replace(report, **used, device_seconds={"forward_backward": rank / 64}))
        (record,) = records_in(collector)
        sizes[num_ranks] = len(json.dumps(asdict(record)))
        assert len(record.stall_pct) == (64 if num_ranks == 64 else 0)
        each = [round(100 * rank / 64, 1) for rank in range(64)]
        usage = {"cpu_pct": [200.0] * 64, "gpu_pct": each, "host_bytes": [*range(1, 65)]}
        assert record.usage == (usage if num_ranks == 64 else None)
        assert record.stall_max_pct == pytest.approx(100 * (num_ranks - 1) / num_ranks)
        assert record.stall_mean_pct == pytest.approx(50 * (num_ranks - 1) / num_ranks)
    assert record.stall_summary is not None
    assert [rank for rank, _ in record.stall_summary["worst"]] == list(range(999, 991, -1))
    assert sizes[1000] < sizes[64]
    assert sizes[1000] - sizes[65] < 100
    assert record_from_json(json.loads(json.dumps(asdict(record)))) == record
    assert Record("train", 0, 5, 1, 1, 1.0, 1.0, None, None, None, None).stall_max_pct is None


def states_of_targets(rank, step):
    """States of three targets of a rank's rows, as they travel."""
    logits, labels = rows_of(rank, step)
    metrics = TargetMetrics(
        {
            "price": counted("regression", logits, labels),
            "click": counted("binary", logits, labels),
            "buy": counted("binary", -logits, labels),
        }
    )
    return json.loads(json.dumps(metrics.to_json()))


def test_each_target_has_its_metrics_and_the_first_binary_one_those_of_the_job():
    collector = Collector()
    collector.begin_attempt(1, NUM_RANKS)
    aucs = {"target_aucs": {"buy": [0.25, 0.0]}, "auc": 0.75, "auc_bound": 0.0}
    for rank in range(NUM_RANKS):
        seconds = seconds_of(rank, 10)
        done = StepsDone(rank, 0, 10, 1.0, seconds, states_of_targets(rank, 10), 0.1)
        collector.add(done)
        collector.add(EvaluationDone(rank, 0, 10, 2.0, states_of_targets(rank, 10), **aucs))
    train, valid = records_in(collector)
    rows = [rows_of(rank, 10) for rank in range(NUM_RANKS)]
    errors = np.concatenate([logits - labels for logits, labels in rows])
    alone = BinaryMetrics()
    for pair in rows:
        alone.update(*pair)
    assert (train.rows, train.auc) == (len(errors), alone.compute().auc)
    assert list(train.targets) == ["price", "buy"]
    assert train.targets["price"]["rmse"] == pytest.approx(np.sqrt((errors**2).mean()))
    assert train.targets["buy"]["auc"] == pytest.approx(1 - train.auc)
    assert (valid.auc, valid.targets["buy"]["auc"]) == (0.75, 0.25)
    assert sum(valid.reliability["rows"]) == len(errors)
