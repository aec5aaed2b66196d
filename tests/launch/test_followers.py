"""Commands that follow a job together, and run directories that take no records for a while."""

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from distrain.errors import JobError, OutputError
from distrain.jobs.run_paths import RunPaths
from distrain.jobs.spec import parse_spec
from distrain.jobs.states import JobState
from distrain.jobs.status import JobStatus
from distrain.jobs.view import AttemptStarted, Entry, JobView, Record
from distrain.launch import detached
from distrain.launch.reporting import LoggedProgress
from distrain.launch.run import RetryingRecorder
from distrain.runs.recorder import open_run, take_over_run
from distrain.runs.run_file import read_summary

pytestmark = pytest.mark.usefixtures("undrawn")

SPEC = parse_spec({"data": {"train": "day_0"}, "model": {"kind": "mlp"}, "name": "clicks"})
JOB = JobStatus("clicks-1", "clicks", "running", 1, 2)


def record(step: int) -> Record:
    return Record("train", 0, step, 10, 10 * step, 1.0, 5.0, 0.5, 0.9, 0.7, 1e-4, attempt=1)


def view(*progress: Entry, state: JobState = JobState.RUNNING, **fields: Any) -> JobView:
    return JobView("clicks-1", "clicks", state, 1, 2, progress=progress, **fields)


def steps_in(root: Path) -> list[int]:
    lines = RunPaths(root).metrics.read_text().splitlines()
    return [json.loads(line)["step"] for line in lines]


class _Watched:
    """A job of which viewers see some views, with something done before each."""

    def __init__(self, *views: tuple[Callable[[], object], JobView]):
        self._views = views

    def watch(self, on_view: Callable[[JobView], None]) -> JobView:
        for before, shown in self._views:
            before()
            on_view(shown)
        return shown


def attach(job: _Watched, root: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The summaries told."""
    told: list[dict[str, Any]] = []
    monkeypatch.setattr("distrain.launch.detached.JobHandle", lambda *_: job)
    monkeypatch.setattr(detached, "TAKE_OVER_S", 0.0)
    client: Any = SimpleNamespace(scheduler=SimpleNamespace(address="tcp://there:1"))
    with pytest.raises(JobError):
        detached.attach(
            client, JOB, root, LoggedProgress(), lambda summary: told.append(summary.to_json())
        )
    return told


FAILED = view(record(30), state=JobState.FAILED, reason="RankFailed", message="rank 0: no")


def test_a_viewer_goes_on_with_the_directory_when_the_one_that_kept_it_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_run(tmp_path, SPEC, "clicks-1").close()
    other = take_over_run(tmp_path, "clicks-1")
    seen = []
    job = _Watched(
        (lambda: None, view(AttemptStarted(1, 0, 2), record(10))),
        (other.close, view(record(20))),
        (lambda: seen.append(steps_in(tmp_path)), FAILED),
    )
    told = attach(job, tmp_path, monkeypatch)
    assert seen == [[10, 20]]
    assert steps_in(tmp_path) == [10, 20, 30]
    assert [read_summary(RunPaths(tmp_path))] == json.loads(json.dumps(told))


def test_a_viewer_tells_the_end_that_it_saw_and_not_an_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run was resumed, and who keeps its directory has not written the new summary yet."""
    earlier = view(state=JobState.FAILED, reason="PeerLost", message="rank 1: gone")
    with open_run(tmp_path, SPEC, "clicks-1") as recorder:
        recorder.finish(earlier)
    again = replace(FAILED, attempt=2)
    with closing(take_over_run(tmp_path, "clicks-1")) as other:
        other.add(replace(again, state=JobState.RUNNING, progress=()))
        told = attach(_Watched((lambda: None, again)), tmp_path, monkeypatch)
    assert [summary["reason"] for summary in told] == ["RankFailed"]


def test_a_disk_that_is_full_for_a_while_loses_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OutputError("no space left")

    said: list[str] = []
    with open_run(tmp_path, SPEC, "clicks-1") as recorder:
        recording = RetryingRecorder(recorder, said.append, limit_s=10_000.0)
        recording.add(view(record(10)))
        with monkeypatch.context() as full:
            full.setattr("distrain.runs.writer.append", fail)
            full.setattr("distrain.runs.writer.whole_file", fail)
            assert recording.add(view(record(20))) == []
            assert recording.add(view(record(30))) == []
            assert len(said) == 1
            hasty = RetryingRecorder(recorder, said.append, limit_s=0.0)
            with pytest.raises(OutputError):
                hasty.add(view(record(30)))
            assert hasty.add(FAILED) == []  # the job has ended
        assert [r.step for r in recording.add(view(record(40)))] == [20, 30, 40]  # type: ignore[union-attr]
    assert steps_in(tmp_path) == [10, 20, 30, 40]


def test_records_of_a_view_that_was_interrupted_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C cuts the writing off; the view is shown again while the job is stopped."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with open_run(tmp_path, SPEC, "clicks-1") as recorder:
        with monkeypatch.context() as cut:
            cut.setattr("distrain.runs.writer.append", interrupt)
            cut.setattr("distrain.runs.writer.whole_file", interrupt)
            with pytest.raises(KeyboardInterrupt):
                recorder.add(view(record(10)))
        recorder.add(view(record(10)))
    assert steps_in(tmp_path) == [10]
