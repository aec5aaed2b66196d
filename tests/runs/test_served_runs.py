"""Run directories that a service keeps, against those that a command keeps."""

import json
import random
from pathlib import Path

import pytest
from served_jobs import SPEC, attempt_entries, record, told_by, view_of

from distrain.errors import DistrainError, InputError, OutputError
from distrain.jobs.run_paths import RunPaths
from distrain.jobs.spec import parse_spec
from distrain.jobs.states import JobState
from distrain.jobs.view import AttemptStarted
from distrain.runs.places import LeasedFolder, NotOurs
from distrain.runs.recorder import open_run, reopen_run, take_over_run
from distrain.runs.run_data import read_run_data
from distrain.runs.run_file import RunInUse, ServiceMark, read_run_and_spec, read_summary
from distrain.runs.served import ServedRun

JOB_SPEC = parse_spec(SPEC)
FIRST, SECOND = ServiceMark("s-1", 1), ServiceMark("s-1", 2)


def served(root: Path, mark: ServiceMark = FIRST, first_attempt: int = 1) -> ServedRun:
    run = ServedRun(LeasedFolder(root, "clicks-1"), first_attempt)
    run.begin(JOB_SPEC, mark)
    return run


def lines(root: Path) -> bytes:
    path = RunPaths(root).metrics
    return path.read_bytes() if path.exists() else b""


def test_the_files_are_those_of_a_command(tmp_path: Path) -> None:
    views = [
        view_of((), JobState.PENDING, attempt=0),
        view_of(attempt_entries(1, 0, 40), num_checkpoints=2),
        view_of([*attempt_entries(2, 20, 60)], attempt=2, num_checkpoints=3),
    ]
    end = view_of((), JobState.SUCCEEDED, attempt=2, num_checkpoints=4)
    run = served(tmp_path / "service")
    with open_run(tmp_path / "command", JOB_SPEC, "clicks-1") as recorder:
        for view in views:
            recorder.add(view)
            run.add(view, FIRST)
            mine, theirs = (
                json.loads(RunPaths(tmp_path / name).progress.read_text())
                for name in ("service", "command")
            )
            assert mine == theirs | {"first_attempt": 1}
        recorder.add(end)
        summary = recorder.finish(end)
    assert not run.is_finished()
    assert run.finish(end, FIRST) == summary
    assert run.is_finished()
    for name in ("metrics", "summary", "spec"):
        mine, theirs = (getattr(RunPaths(tmp_path / n), name) for n in ("service", "command"))
        assert mine.read_bytes() == theirs.read_bytes()
    names = [sorted(path.name for path in (tmp_path / n).iterdir()) for n in ("service", "command")]
    assert names[0] == names[1]


def test_beginning_may_be_repeated_after_any_step(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    served(whole)
    for kept in ([], ["run"], ["run", "spec"], ["run", "spec", "progress"]):
        root = tmp_path / f"kept-{len(kept)}"
        root.mkdir()
        for name in kept:
            found = getattr(RunPaths(whole), name)
            (root / found.name).write_bytes(found.read_bytes())
        served(root)
        for name in ("spec", "progress"):
            mine, theirs = (getattr(RunPaths(place), name) for place in (root, whole))
            assert mine.read_bytes() == theirs.read_bytes()
        assert read_run_and_spec(root)[0].service == FIRST


def test_a_lost_scheduler_leaves_its_restarts_and_checkpoints_to_the_next(tmp_path: Path) -> None:
    run = served(tmp_path)
    run.add(view_of(attempt_entries(1, 0, 30), num_checkpoints=2), FIRST)
    assert ServedRun(LeasedFolder(tmp_path, "clicks-1")).last_attempt() == 1
    for _ in range(2):  # the service is killed before the hand-over, and repeats this
        run = served(tmp_path, FIRST, first_attempt=2)
    run.add(view_of((), JobState.PENDING, attempt=1), FIRST)
    run = served(tmp_path, SECOND, first_attempt=2)
    entries = [AttemptStarted(2, 20, 2), record(2, 25), record(2, 30), record(2, 35)]
    run.add(view_of(entries, attempt=2, num_checkpoints=1), SECOND)
    summary = run.finish(
        view_of((), JobState.SUCCEEDED, attempt=2, num_checkpoints=2), SECOND
    ).to_json()
    assert [(end["attempt"], end["reason"]) for end in summary["restarts"]] == [
        (1, "CoordinatorLost")
    ]
    assert summary["checkpoints"]["count"] == 4
    assert summary["attempts"] == 2


def test_links_and_files_without_end_are_neither_read_nor_written(tmp_path: Path) -> None:
    """Jobs run as users of the machine, and may put into their run directories what they like."""
    theirs = tmp_path / "theirs"
    kept = RunPaths(theirs).reports(0, 1)
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"kept")
    empty = theirs / "empty"
    empty.touch()
    end = view_of([*attempt_entries(1, 0, 20)], JobState.SUCCEEDED)
    run = served(tmp_path / "run")
    metrics = run.paths.metrics
    metrics.symlink_to(empty)
    with pytest.raises(DistrainError):
        run.add(end, FIRST)
    metrics.unlink()
    with metrics.open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(InputError):
        run.add(end, FIRST)
    metrics.unlink()
    run.paths.logs.symlink_to(RunPaths(theirs).logs)
    run.finish(end, FIRST)
    assert empty.read_bytes() == b""
    assert kept.exists()


def test_an_older_generation_writes_nothing_more(tmp_path: Path) -> None:
    old = served(tmp_path)
    old.add(view_of(attempt_entries(1, 0, 20)), FIRST)
    new = ServedRun(LeasedFolder(tmp_path, "clicks-1"))
    new.add(view_of(attempt_entries(1, 0, 30)), SECOND)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for write in (
        lambda: old.add(view_of([record(1, 25)], num_checkpoints=7), FIRST),
        lambda: old.finish(view_of([record(1, 90)], JobState.FAILED), FIRST),
        lambda: old.begin(JOB_SPEC, FIRST),
    ):
        with pytest.raises(NotOurs):
            write()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    new.add(view_of([record(1, 35)]), SECOND)


def test_a_view_without_news_touches_no_file_but_under_a_new_lease(tmp_path: Path) -> None:
    run = served(tmp_path)
    run.add(view_of(attempt_entries(1, 0, 20)), FIRST)
    told = RunPaths(tmp_path).run
    hidden = told.rename(tmp_path / "hidden")
    run.add(view_of(()), FIRST)
    for news in (view_of([record(1, 25)]), view_of((), num_checkpoints=3)):
        with pytest.raises(OutputError):
            run.add(news, FIRST)
    hidden.rename(told)
    run.add(view_of(()), SECOND)
    assert json.loads(told.read_text())["service"]["generation"] == 2


def test_commands_leave_a_service_its_runs_until_they_have_ended(tmp_path: Path) -> None:
    run = served(tmp_path)
    run.add(view_of(attempt_entries(1, 0, 20)), FIRST)
    assert read_run_data(tmp_path).state == "running"
    with pytest.raises(RunInUse):
        reopen_run(tmp_path, JOB_SPEC)
    with pytest.raises(RunInUse):
        take_over_run(tmp_path, "clicks-1")
    with pytest.raises(OutputError):
        open_run(tmp_path, JOB_SPEC, "clicks-2")
    run.finish(view_of((), JobState.CANCELLED, reason="Cancelled", num_checkpoints=1), FIRST)
    with reopen_run(tmp_path, JOB_SPEC) as recorder:
        with pytest.raises(NotOurs):
            run.add(view_of([record(1, 25)]), FIRST)
        with pytest.raises(RunInUse):  # the service resumes it only when the command has gone
            served(tmp_path, SECOND, first_attempt=2)
        view = view_of([AttemptStarted(2, 20, 2), record(2, 25)], attempt=2)
        recorder.add(view)
        recorder.finish(view_of((), JobState.FAILED, attempt=2, reason="RankDied"))
    run = served(tmp_path, SECOND, first_attempt=run.last_attempt() + 1)
    run.finish(view_of([AttemptStarted(3, 25, 2)], JobState.SUCCEEDED, attempt=3), SECOND)
    summary = read_summary(RunPaths(tmp_path)) or {}
    assert [end["reason"] for end in summary["restarts"]] == ["Cancelled", "RankDied"]
    assert summary["checkpoints"]["count"] == 1


def test_another_job_or_service_is_told_whose_it_is(tmp_path: Path) -> None:
    served(tmp_path)
    with pytest.raises(OutputError):
        served(tmp_path, ServiceMark("s-2", 9))
    with pytest.raises(OutputError):
        ServedRun(LeasedFolder(tmp_path, "clicks-2")).begin(JOB_SPEC, FIRST)
    RunPaths(tmp_path).run.unlink()
    with pytest.raises(OutputError):
        served(tmp_path)


@pytest.mark.parametrize("seed", range(3))
def test_a_restarted_service_sees_all_views_again(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    told = told_by(chance, 3, 60)
    whole = served(tmp_path / "whole")
    whole.add(view_of(told), FIRST)
    run, generation, place = served(tmp_path / "cut"), 1, 0
    while place < len(told):
        if chance.random() < 0.3:
            generation, place = generation + 1, 0
            run = ServedRun(LeasedFolder(tmp_path / "cut", "clicks-1"))
        shown = chance.randrange(1, 12)
        run.add(view_of(told[place : place + shown]), ServiceMark("s-1", generation))
        place += shown
    assert lines(tmp_path / "cut") == lines(tmp_path / "whole")
