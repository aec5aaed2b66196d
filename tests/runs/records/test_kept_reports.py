"""Reports kept within a limit, and the records made from them again."""

import json
import tracemalloc
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from distrain.jobs.events import (
    EvaluationDone,
    Event,
    StepsDone,
    TrainingStarted,
    from_json,
    to_json,
)
from distrain.jobs.run_paths import RunPaths
from distrain.jobs.view import Entry, Notice, Record
from distrain.metrics import BinaryMetrics
from distrain.runs.history import History
from distrain.runs.records import kept_reports, replay as replay_module
from distrain.runs.records.collector import Collector
from distrain.runs.records.kept_reports import KeptItem, ReportWriter, joinable
from distrain.runs.records.replay import replay_reports
from distrain.runs.records.report_file import read_reports, tail_offset

ROWS, STEPS_PER_REPORT = 8, 10


@cache
def state(seed: int) -> dict[str, object]:
    """The metrics of a few rows, whose sums are exact in any order."""
    rng = np.random.default_rng(seed)
    metrics = BinaryMetrics()
    metrics.update(rng.normal(size=ROWS).astype(np.float32), rng.integers(0, 2, ROWS))
    metrics.log_loss_sum, metrics.prediction_sum = float(seed % 64), 0.5 * (seed % 16)
    return metrics.to_json()


def reports(rank: int, num_reports: int, validate_every: int = 4) -> Iterator[Event]:
    """What a rank tells in an attempt."""
    steps = num_reports * STEPS_PER_REPORT
    total_rows = 2 * ROWS * num_reports
    yield TrainingStarted(rank, steps, total_rows, total_rows, 7, "arrow")
    for number in range(1, num_reports + 1):
        step = number * STEPS_PER_REPORT
        seconds = {"data_wait": 0.25, "forward_backward": 0.75}
        exchange = {"steps": 10, "lookups": 8.0, "distinct": 4.0, "updated": 4.0,
                    "sent_bytes": 64.0, "route_s": 0.5}  # fmt: skip
        yield StepsDone(
            rank, 0, step, float(number), seconds, state(7 * number + rank), 0.01,
            {"batches": 10, "queue_depth_sum": 20}, exchange, {"copy": 0.5},
        )  # fmt: skip
        if number % validate_every == 0:
            yield EvaluationDone(rank, 0, step, float(number), state(number + rank))


def keep(
    paths: RunPaths, rank: int, events: Iterable[Event], limit_bytes: int, num_ranks: int = 2
) -> ReportWriter:
    paths.reports(rank, 1).parent.mkdir(parents=True, exist_ok=True)
    keeper = ReportWriter(paths.reports(rank, 1), num_ranks, limit_bytes)
    for event in events:
        document = to_json(event)
        keeper.keep(document, json.dumps(document).encode() + b"\n")
        assert not paths.reports(rank, 1).exists() or (
            paths.reports(rank, 1).stat().st_size <= limit_bytes
        )
    keeper.close()
    assert keeper.num_lost == 0, keeper.error
    return keeper


def collected(num_reports: int) -> list[Record]:
    """The records of a scheduler that saw all of it."""
    collector = Collector()
    collector.begin_attempt(1, 2)
    for events in zip(*(reports(rank, num_reports) for rank in (0, 1)), strict=True):
        for event in events:
            collector.add(event)
    return collector.records


def split(entries: Iterable[Entry], name: str) -> list[Record]:
    return [e for e in entries if isinstance(e, Record) and e.split == name]


@settings(deadline=None, max_examples=3)
@given(st.lists(st.sampled_from([6_000, 9_000, 15_000, 10**7]), min_size=2, max_size=2))
def test_what_is_made_again_is_coarser_and_has_the_same_sums(
    tmp_path_factory: pytest.TempPathFactory, limits: list[int]
) -> None:
    paths, num_reports = RunPaths(tmp_path_factory.mktemp("run")), 60
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept_reports, "NUM_RECENT", 4)
        for rank, limit_bytes in enumerate(limits):
            keep(paths, rank, reports(rank, num_reports), limit_bytes)
    told = list(replay_reports(paths))
    fine = collected(num_reports)
    train, valid = split(told, "train"), split(told, "valid")
    exact = {record.step: record for record in split(fine, "train")}
    assert [r.step for r in train] == sorted(r.step for r in train)
    assert train[-1].step == num_reports * STEPS_PER_REPORT
    assert sum(record.rows for record in train) == 2 * ROWS * num_reports
    assert sum(record.reports for record in train) == num_reports
    begin = 0
    for record in train:
        parts = [exact[step] for step in range(begin + 10, record.step + 1, 10)]
        assert record.reports == len(parts)
        for name in ("rows_total", "elapsed_s", "lr", "epoch", "stall_pct", "rows_per_s"):
            assert getattr(record, name) == getattr(parts[-1], name), name
        losses = sum((part.loss or 0.0) * part.rows for part in parts)
        assert record.loss == pytest.approx(losses / record.rows, rel=1e-12)
        assert record.exchange is not None
        assert record.exchange["steps"] == 10 * len(parts)
        assert record.exchange["sent_bytes"] == 128.0 * len(parts)
        assert record.seconds is not None
        assert record.seconds["data_wait"] == pytest.approx(0.25 * len(parts))
        begin = record.step
    by_step = {record.step: record for record in split(fine, "valid")}
    assert valid[-1] == by_step[valid[-1].step]
    assert all(record == by_step[record.step] for record in valid)
    if min(limits) == 10**7:
        assert [e for e in told if isinstance(e, Record)] == fine
    else:
        assert len(train) < num_reports
    assert [record.reports for record in train[-2:]] == [1, 1]  # the newest stay as they are


@pytest.mark.parametrize("open_files", [256, 1])
def test_a_rank_that_joins_reports_while_they_are_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_files: int
) -> None:
    """Its job runs on while a command makes up for what the scheduler has forgotten."""
    paths = RunPaths(tmp_path)
    for rank in (0, 1):
        keep(paths, rank, reports(rank, 40), limit_bytes=10**7)
    find, found = replay_module._common_steps, []

    def find_and_thin(files: list[Path]) -> tuple[set[int], set[int]]:
        found.append(find(files))
        if len(found) == 1:
            paths.reports(1, 1).unlink()
            keep(paths, 1, reports(1, 40), limit_bytes=9_000)
        return found[-1]

    monkeypatch.setattr(replay_module, "_common_steps", find_and_thin)
    monkeypatch.setattr(replay_module, "OPEN_FILES", open_files)
    entries = list(replay_reports(paths))
    assert len(found) == 2
    assert found[1][0] < found[0][0]
    history = History()
    history.complete(entries)
    assert [e for e in entries if isinstance(e, Notice)] == []
    train = [record for record in history.records if record.split == "train"]
    assert train[-1].step == 400
    assert sum(record.rows for record in train) == 2 * ROWS * 40


def test_a_missing_rank_is_named_and_no_record_of_the_others_is_made(
    tmp_path: Path, wording: Any
) -> None:
    paths = RunPaths(tmp_path)
    keep(paths, 0, reports(0, 12), 10**7)
    (told,) = replay_reports(paths)
    assert isinstance(told, Notice)
    wording(told.text)


def test_a_report_that_was_not_kept_leaves_a_gap_that_is_told(tmp_path: Path, wording: Any) -> None:
    paths = RunPaths(tmp_path)
    keep(paths, 0, reports(0, 12), 10**7)
    keeper = ReportWriter(paths.reports(1, 1), 2)
    number = {"steps_done": 0, "evaluation_done": 0, "training_started": 0}
    for event in reports(1, 12):
        at, number[event.kind] = number[event.kind], number[event.kind] + 1
        if not (isinstance(event, StepsDone) and event.step in (50, 60)):
            keeper.keep(to_json(event), json.dumps(to_json(event)).encode(), at)
    keeper.close()
    told = list(replay_reports(paths))
    train = split(told, "train")
    assert [record.step for record in train] == [10, 20, 30, 40, 80, 90, 100, 110, 120]
    exact = {record.step: record for record in split(collected(12), "train")}
    assert train == [exact[record.step] for record in train]  # rows in all, too
    (notice,) = (entry.text for entry in told if isinstance(entry, Notice))
    wording(notice)


def test_what_cannot_be_read_ends_an_attempt_and_not_the_command(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    broken = {"kind": "binary"}
    for rank in (0, 1):
        events = [
            replace(event, metrics=broken) if getattr(event, "step", 0) == 30 else event
            for event in reports(rank, 5)
        ]
        keep(paths, rank, events, 10**7)
    told = list(replay_reports(paths))
    assert [record.step for record in split(told, "train")] == [10, 20]
    assert isinstance(told[-1], Notice)
    assert "attempt 1" in told[-1].text


def test_the_last_reports_are_found_from_the_end(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    path = paths.reports(0, 1)
    events = [from_json(json.loads(json.dumps(to_json(event)))) for event in reports(0, 30)]
    keep(paths, 0, events, 10**7)
    ends = [kept.end for kept in read_reports(path)]
    for limit_bytes in (1, 500, 2_000, 10_000, 10**7):
        begin = tail_offset(path, limit_bytes)
        assert begin in (0, *ends)
        assert begin == 0 or path.stat().st_size - begin <= limit_bytes
        assert [kept.event for kept in read_reports(path, begin)] == [
            event for event, end in zip(events, ends, strict=True) if end > begin
        ]


def test_a_replay_holds_a_window_and_not_an_attempt(tmp_path: Path) -> None:
    peaks = {}
    for num_reports in (10, 110):
        paths = RunPaths(tmp_path / str(num_reports))
        for rank in (0, 1):
            keep(paths, rank, reports(rank, num_reports), 10**9)
        tracemalloc.start()
        count = sum(isinstance(entry, Record) for entry in replay_reports(paths))
        peaks[num_reports] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert count == num_reports + num_reports // 4
    # The reports of an attempt of 110 take 1.1 MB more; other threads take some memory, too.
    assert peaks[110] < peaks[10] + 2**19, peaks


def test_ranks_metrics_are_added_up_while_they_are_read(tmp_path: Path) -> None:
    """More ranks than are held at once, and than files are held open."""
    paths, num_ranks, num_reports = RunPaths(tmp_path), 12, 3
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("distrain.runs.records.replay.OPEN_FILES", 4)
        collector = Collector()
        collector.begin_attempt(1, num_ranks)
        for rank in range(num_ranks):
            events = list(reports(rank, num_reports))
            keep(paths, rank, events, 10**7, num_ranks)
            for event in events:
                collector.add(event)
        assert split(replay_reports(paths), "train") == collector.records


@given(st.lists(st.integers(1, 5), max_size=30), st.integers(0, 5))
def test_what_two_ranks_join_has_common_ends(rounds: list[int], recent: int) -> None:
    def joined(items: list[KeptItem], num_rounds: int) -> set[int]:
        for _ in range(num_rounds):
            pairs = joinable(items, "a", recent)
            later = {b: a for a, b in pairs.items()}
            items = [
                KeptItem("a", items[later[n]].first, 2 * item.count, 1) if n in later else item
                for n, item in enumerate(items)
                if n not in pairs
            ]
        return {item.first + item.count for item in items}

    items = [KeptItem("a", number, 1, 1) for number in range(3 * len(rounds))]
    ends = [joined(items, num_rounds) for num_rounds in sorted(rounds)]
    for fine, coarse in pairwise(ends):
        assert coarse <= fine
