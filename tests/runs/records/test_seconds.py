"""Reports by seconds: fewer of them, with the same sums."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from distrain.jobs.events import (
    CheckpointSaved,
    Heartbeat,
    RankExited,
    StepsDone,
    from_json,
    to_json,
)
from distrain.jobs.job_view import Record
from distrain.jobs.spec import parse_spec
from distrain.metrics import BinaryMetrics
from distrain.runs.records.collector import Collector
from distrain.runs.records.merging import ReportJoiner

RANKS = 3


def window(rank: int, number: int, elapsed_s: float) -> dict[str, Any]:
    rng = np.random.default_rng((rank, number))
    metrics = BinaryMetrics()
    metrics.update(rng.normal(size=20), rng.integers(0, 2, 20))
    seconds = {"data_wait": 0.25, "forward_backward": 0.5}
    counts = [0] * 15
    counts[number % 15] = 10
    event = StepsDone(
        rank, 0, 10 * number, elapsed_s, seconds, metrics.to_json(), 0.1, step_counts=counts
    )
    return to_json(event)


def sent(joiner: ReportJoiner, rank: int, times_s: list[float]) -> list[Mapping[str, Any]]:
    out: list[Mapping[str, Any]] = []
    for number, at_s in enumerate(times_s, start=1):
        out += joiner.take(window(rank, number, at_s))
    return out + joiner.take(to_json(RankExited(rank, 0, stopped=False)))


def records_in(collector: Collector) -> list[Record]:
    return [entry for entry in collector.entries.since(0) if isinstance(entry, Record)]


def collected(per_rank: list[list[Mapping[str, Any]]]) -> Collector:
    collector = Collector()
    collector.begin_attempt(1, len(per_rank))
    for events in per_rank:
        for event in events:
            collector.add(from_json(dict(event)))
    return collector


@settings(max_examples=10, deadline=None)
@given(
    spans=st.lists(st.lists(st.floats(0.01, 0.9), min_size=13, max_size=13), min_size=3, max_size=3)
)
def test_ranks_that_join_unlike_windows_give_the_same_sums(spans: list[list[float]]) -> None:
    times = [np.cumsum(of_rank).tolist() for of_rank in spans]
    plain = collected([sent(ReportJoiner(0.0), r, times[r]) for r in range(RANKS)])
    joined = collected([sent(ReportJoiner(1.0), r, times[r]) for r in range(RANKS)])
    assert joined.rows_total == plain.rows_total == RANKS * 13 * 20
    assert records_in(joined)[-1].step == records_in(plain)[-1].step == 130
    assert sum(record.rows for record in records_in(joined)) == plain.rows_total
    assert {record.step for record in records_in(joined)} <= {
        record.step for record in records_in(plain)
    }

    def loss(collector: Collector) -> float:
        return sum(record.loss * record.rows for record in records_in(collector) if record.loss)

    assert loss(joined) == pytest.approx(loss(plain))


def test_a_second_of_windows_is_one_report_of_the_same_counts() -> None:
    times = [n / 16 for n in range(1, 65)]
    events = sent(ReportJoiner(1.0), 0, times)
    reports = [event for event in events if event["kind"] == StepsDone.kind]
    assert [report["step"] for report in reports] == [160, 320, 480, 640]
    assert [report["windows"] for report in reports] == [16] * 4
    plain = [BinaryMetrics.from_json(window(0, n, 0)["metrics"]) for n in range(1, 65)]
    total = BinaryMetrics.from_json(*(report["metrics"] for report in reports))
    assert (total.negatives == sum(one.negatives for one in plain)).all()
    assert (total.positives == sum(one.positives for one in plain)).all()
    assert reports[0]["seconds"] == {"data_wait": 4.0, "forward_backward": 8.0}


def test_signs_of_life_pass_and_all_else_comes_after_the_windows_before_it() -> None:
    joiner = ReportJoiner(1.0)
    assert joiner.take(window(0, 1, 0.1)) == []
    for event in (Heartbeat(0, 1, 1, "setup"), CheckpointSaved(0, 10, "a", 1, 0.0, 0.0)):
        assert joiner.take(to_json(event)) == [to_json(event)]
    assert joiner.take(window(0, 2, 0.2)) == []
    ended = to_json(RankExited(0, -9, stopped=False))
    assert joiner.take(ended) == [window(0, 1, 0.1), window(0, 2, 0.2), ended]


@pytest.mark.parametrize(("ranks", "every_s"), [(1, 0.0), (8, 0.0), (16, 0.5), (128, 4.0)])
def test_few_ranks_send_all_and_many_share_a_rate(ranks: int, every_s: float) -> None:
    document = {
        "name": "a",
        "data": {"train": "x"},
        "model": {"kind": "mlp"},
        "resources": {"num_ranks": ranks},
    }
    assert parse_spec(document).log_every_s == every_s
    said = parse_spec(document | {"train": {"log_every_s": 0.0}})
    assert said.log_every_s == 0.0
