"""Where a rank's time goes, and what its loader did meanwhile."""

import json
import threading
import time
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from small_jobs import make_spec
from ticks import Ticks
from trained import new_trainer, of_kind

from distrain.errors import DataError
from distrain.jobs.events import STEP_BOUNDS_S, Event, RankFinished, StepsDone, TrainingStarted
from distrain.jobs.run_paths import RunPaths
from distrain.launch.inline import run_inline
from distrain.loader import EpochIterator
from distrain.runs.attempts import read_records
from distrain.runs.finish_run import finish_run
from distrain.train.loop import setup as set_up
from distrain.train.loop.trainer import Trainer

INLINE = "resources={backend: inline, num_ranks: 1}"


def trainer_of(prepared: Path, root: Path, *overrides: str) -> tuple[Trainer, list[Event]]:
    return new_trainer(make_spec(prepared, INLINE, *overrides), root)


@pytest.fixture(scope="module")
def told(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Event]:
    """The events of two epochs with validation."""
    trainer, events = trainer_of(
        prepared,
        tmp_path_factory.mktemp("run"),
        "train={global_batch_size: 500, epochs: 2, log_every_steps: 5}",
        "evaluate.every_steps=10",
    )
    trainer.run()
    return events


def test_setup_and_phases_sum_to_the_wall_time_measured_from_outside(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Ticks()
    monkeypatch.setattr("distrain.train.timing.phases.time", clock)
    monkeypatch.setattr("distrain.train.loop.trainer.time", clock)
    steps = "train={global_batch_size: 1000, max_steps: 12, log_every_steps: 5}"
    trainer, events = trainer_of(prepared, tmp_path, steps)
    trainer.run()
    (finished,) = of_kind(events, RankFinished)
    assert clock.now_s > 100
    assert sum(finished.seconds.values()) == pytest.approx(finished.elapsed_s, abs=1e-6)
    # The first look begins the set-up, the last one ends the last lap; the clock of the phases
    # begins one look before the set-up ends.
    assert finished.setup_s + finished.elapsed_s == (clock.now_s - 1) + 1


def test_every_step_is_counted_by_its_own_time(told: list[Event]) -> None:
    reports = of_kind(told, StepsDone)
    first = 0
    for report in reports:
        assert sum(report.step_counts) == report.step - first
        first = report.step
        assert report.memory["host_bytes"] > 2**20
        assert report.cpu_s > 0
        assert "device_bytes" not in report.memory, "it trains on the CPU"
        least_s = sum(
            bound_s * count
            for bound_s, count in zip((0.0, *STEP_BOUNDS_S), report.step_counts, strict=True)
        )
        assert least_s <= sum(report.seconds.values())


def test_waiting_for_the_first_batch_of_every_epoch_is_waiting_for_data(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class SlowTime:
        """A clock that leaps whenever the first batch of an epoch is asked for."""

        leaps_s = 0.0

        def perf_counter(self) -> float:
            return time.perf_counter() + self.leaps_s

    slow = SlowTime()
    monkeypatch.setattr("distrain.train.timing.phases.time", slow)
    take, taken = EpochIterator.__next__, count()

    def leap(self: EpochIterator) -> Any:
        slow.leaps_s += 100.0 if next(taken) % 3 == 0 else 0.0  # steps of an epoch
        return take(self)

    monkeypatch.setattr(EpochIterator, "__next__", leap)
    trainer, events = trainer_of(
        prepared,
        tmp_path,
        "train={global_batch_size: 3500, epochs: 3}",
        "evaluate.at_end=false",
    )
    trainer.run()
    (finished,) = of_kind(events, RankFinished)
    assert 300.0 <= finished.seconds["data_wait"] <= 310.0
    assert finished.seconds["other"] < 50.0


def test_metrics_and_summary_tell_what_was_done_and_held(prepared: Path, tmp_path: Path) -> None:
    steps = "train={global_batch_size: 200, max_steps: 10, log_every_steps: 5}"
    spec = make_spec(prepared, INLINE, steps)
    paths = RunPaths(tmp_path / "run")
    view = run_inline(spec, paths.root, "job", lambda _: None)
    summary = finish_run(paths, view, 1)
    lines = [record.to_json() for record in read_records(paths)]
    train = [line["loader"] for line in lines if line["split"] == "train"]
    assert [loader["rows"] for loader in train] == [1000, 1000]
    assert all(0 <= loader["mean_queue_depth"] <= 4 for loader in train)
    assert [line["loader"] for line in lines if line["split"] == "valid"] == [None]
    written = json.loads(paths.summary.read_text())
    assert written["loader"] == [dict(of_rank) for of_rank in summary.loader]
    assert summary.loader[0]["rows"] == 2000
    exchanges = [line["exchange"] for line in lines]
    assert [exchange and exchange["steps"] for exchange in exchanges] == [5, 5, None]
    assert exchanges[0]["lookups"] == 26 * 1000
    assert 0 < exchanges[0]["unique_ratio"] < 1
    assert exchanges[0]["sent_bytes_per_step"] == 0  # a rank alone
    assert [line["device_seconds"] for line in lines] == [{}, {}, None]
    assert written["exchange"][0]["lookups"] == 26 * 2000
    assert written["device_seconds"] == [{}]
    assert written["peak_memory"][0]["host_bytes"] > 50e6
    assert written["peak_memory"][0]["device_bytes"] == 0
    assert summary.setup_s[0] > 0


def own_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith(("loader", "decode"))]


def test_a_job_that_fails_before_its_first_batch_leaves_no_thread(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(set_up, "build_model", Mock(side_effect=MemoryError))
    trainer, events = trainer_of(prepared, tmp_path)
    with pytest.raises(MemoryError):
        trainer.run()
    assert own_threads() == []
    assert not of_kind(events, TrainingStarted)


def test_a_job_that_fails_on_its_way_leaves_no_thread(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, _ = trainer_of(prepared, tmp_path, "train={global_batch_size: 3500, epochs: 3}")
    monkeypatch.setattr(trainer, "_one_step", Mock(side_effect=DataError("gone")))
    with pytest.raises(DataError, match="gone"):
        trainer.run()
    assert own_threads() == []
