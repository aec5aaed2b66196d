"""A run directory over several attempts, and over several commands."""

import json
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from distrain.errors import InputError, OutputError, SpecError
from distrain.jobs.events import Event, RankExited, StepsDone, TrainingStarted, to_json
from distrain.jobs.run_paths import RunPaths
from distrain.jobs.spec import parse_spec
from distrain.jobs.states import JobState
from distrain.jobs.view import (
    AttemptStarted,
    Checkpoints,
    Entry,
    JobView,
    Notice,
    Record,
    Restart,
)
from distrain.metrics import BinaryMetrics
from distrain.runs.history import History
from distrain.runs.recorder import open_run, reopen_run
from distrain.runs.records.collector import Collector
from distrain.runs.records.kept_reports import ReportWriter
from distrain.runs.run_file import read_records, read_run_and_spec, read_summary

SPEC = parse_spec({"data": {"train": "day_0"}, "model": {"kind": "mlp"}, "name": "clicks"})


def record(step: int, split: str = "train", mark: float = 0.5) -> Record:
    return Record(split, 0, step, 10, 10 * step, 1.0 * step, 5.0, mark, 0.9, 0.7, 1e-4, (0.0,), {})


def view(*progress: Entry, state: JobState = JobState.RUNNING, **fields: object) -> JobView:
    return JobView("clicks-1", "clicks", state, 1, 2, progress=progress, **fields)  # type: ignore[arg-type]


def on_disk(root: Path) -> list[Record]:
    return read_records(RunPaths(root))


entries = st.one_of(
    st.builds(record, st.integers(1, 12), st.sampled_from(["train", "valid"]), st.floats(0, 1)),
    st.builds(AttemptStarted, st.just(2), st.integers(0, 12), st.just(2)),
    st.just(Notice("the disk is full")),
)


def naive_history(told: list[Entry]) -> list[Record]:
    """What counts, looked at from the end of the story."""
    kept: OrderedDict[tuple[str, int], Record] = OrderedDict()
    for place, entry in enumerate(told):
        if not isinstance(entry, Record):
            continue
        later = [e.step for e in told[place:] if isinstance(e, AttemptStarted)]
        if entry.step <= min(later, default=entry.step):
            kept.setdefault((entry.split, entry.step), entry)
    return list(kept.values())


@given(st.lists(st.lists(entries, max_size=6), max_size=8))
@settings(deadline=None, max_examples=50)
def test_a_history_holds_what_counts_however_it_is_told(views: list[list[Entry]]) -> None:
    told: list[Entry] = []
    history, file = History(), list[Record]()
    for progress in views:
        told += progress
        fresh, rewound = history.add(progress)
        file = list(history.records) if rewound else file + fresh
        assert file == history.records == naive_history(told)


def test_a_resumed_run_goes_on_with_what_is_there(tmp_path: Path) -> None:
    root = tmp_path / "run"
    with open_run(root, SPEC, "clicks-1") as recorder:
        recorder.add(view(AttemptStarted(1, 0, 2), record(5), record(10), record(15)))
        recorder.finish(
            view(
                state=JobState.FAILED,
                reason="CoordinatorLost",
                message="gone",
                restarts=(Restart(1, "RankDied", "killed", 7, 3.0),),
                checkpoints=Checkpoints(2, 10, "c/step-10", 0.5, 2.0),
            )
        )
    with RunPaths(root).metrics.open("a") as metrics:
        metrics.write('{"split": "train", "st')  # the command was killed in a line

    run, spec = read_run_and_spec(root, ["resources.num_ranks=3"])
    assert (run.job_id, spec.resources.num_ranks) == ("clicks-1", 3)
    with reopen_run(root, spec) as recorder:
        assert recorder.records == [record(5), record(10), record(15)]
        recorder.add(view(AttemptStarted(3, 10, 3), record(15, mark=0.25)))
        assert on_disk(root) == [record(5), record(10), record(15, mark=0.25)]
        done = view(
            state=JobState.SUCCEEDED, checkpoints=Checkpoints(1, 15, "c/step-15", 0.25, 1.0, 2)
        )
        summary = recorder.finish(done)
    assert [(end["reason"], end["step"]) for end in summary.restarts] == [
        ("RankDied", 7),
        ("CoordinatorLost", 15),
    ]
    assert summary.checkpoints == {
        "count": 3,
        "step": 15,
        "path": "c/step-15",
        "stood_still_s": 0.75,
        "write_s": 3.0,
        "failed": 2,
    }
    assert read_run_and_spec(root) == (run, spec)
    assert read_summary(RunPaths(root)) == json.loads(json.dumps(summary.to_json()))


def reports(rank: int, first_step: int, steps: range) -> list[Event]:
    started = TrainingStarted(rank, 100, 50, 50, 7, first_step=first_step, rows_before=first_step)
    return [started, *(steps_done(rank, step) for step in steps)]


def steps_done(rank: int, step: int) -> StepsDone:
    metrics = BinaryMetrics()
    metrics.update(np.array([0.1 * step, rank, -0.5]), np.array([1, 0, step % 2]))
    return StepsDone(rank, 0, step, 1.0 * step, {"other": 1.0}, metrics.to_json(), 0.1)


def keep(paths: RunPaths, attempt: int, rank: int, events: list[Event]) -> None:
    paths.reports(rank, attempt).parent.mkdir(parents=True, exist_ok=True)
    keeper = ReportWriter(paths.reports(rank, attempt))
    for event in [*events, RankExited(rank, 0, stopped=False)]:
        keeper.keep(to_json(event), json.dumps(to_json(event)).encode() + b"\n")
    keeper.close()


def test_what_was_reported_and_never_recorded_is_not_lost(tmp_path: Path) -> None:
    """Both attempts got further than the command saw; the second went on from step 20."""
    told = Collector()
    paths = RunPaths(tmp_path)
    for attempt, first, steps in ((1, 0, range(5, 36, 5)), (2, 20, range(25, 46, 5))):
        told.begin_attempt(attempt, 2)
        for rank in (0, 1):
            events = reports(rank, first, steps)
            keep(paths, attempt, rank, events)
            for event in events:
                told.add(event)
    expected = History()
    expected.add(told.progress)
    assert [r.step for r in expected.records] == list(range(5, 46, 5))
    with paths.reports(0, 2).open("ab") as file:
        file.write(b'{"kind": "steps_d')  # its worker was killed

    with open_run(tmp_path, SPEC, "clicks-1") as recorder:
        recorder.add(view(*told.progress[:4]))
    with reopen_run(tmp_path, SPEC) as recorder:
        assert recorder.records == expected.records
        recorder.add(view(AttemptStarted(3, 40, 2)))
        assert on_disk(tmp_path) == recorder.records == expected.records[:-1]
        recorder.finish(view(state=JobState.FAILED, reason="RankDied", message="killed"))
    assert paths.reports(0, 1).exists()
    with reopen_run(tmp_path, SPEC) as recorder:
        again = replace(expected.records[-1], attempt=4)
        recorder.add(view(AttemptStarted(4, 40, 2), again))
        recorder.finish(view(state=JobState.SUCCEEDED))
    assert on_disk(tmp_path) == [*expected.records[:-1], again]
    assert not list(paths.logs.glob("*/*.reports"))


def test_reports_that_cannot_be_kept_hold_up_nobody(tmp_path: Path) -> None:
    keeper = ReportWriter(tmp_path / "not there" / "rank-0.reports")
    for _ in range(2):
        keeper.keep({"kind": "steps_done"}, b"{}\n")
    assert keeper.num_lost == 2
    assert "not there" in keeper.error
    keeper.close()


def test_what_is_no_run_is_refused_and_its_place_named(tmp_path: Path) -> None:
    file, metrics = tmp_path / "run.json", tmp_path / "metrics.jsonl"
    with open_run(tmp_path, SPEC, "clicks-1"), pytest.raises(OutputError):
        reopen_run(tmp_path, SPEC)  # another command is at this run
    with pytest.raises(SpecError):
        read_run_and_spec(tmp_path, ["train.no_such_field=1"])
    for line in ("{}", "[]", "5", "null", '"split"'):
        metrics.write_text(f"{line}\n")
        with pytest.raises(InputError) as caught:
            read_records(RunPaths(tmp_path))
        assert caught.value.where["line"] == 1
    for text in ("{", '{"id": 1}', None):
        file.unlink() if text is None else file.write_text(text)
        with pytest.raises(InputError) as caught:
            read_run_and_spec(tmp_path)
        assert caught.value.where["path"] == str(file)
    assert read_summary(RunPaths(tmp_path)) is None
