"""A run folder over several attempts, and over several submissions."""

import json
from collections import OrderedDict
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from kept_runs import new_run, resumed_run
from wording import Wording

from distrain.errors import InputError, OutputError, SpecError
from distrain.jobs.job_view import (
    AttemptStarted,
    Checkpoints,
    Entry,
    JobView,
    Notice,
    Record,
    Restart,
)
from distrain.jobs.run_paths import RunPaths
from distrain.jobs.spec import parse_spec
from distrain.jobs.states import JobState
from distrain.runs.attempts import read_records
from distrain.runs.history import History
from distrain.runs.open_run import open_run, reopen_run
from distrain.runs.run_file import read_run_and_spec, read_summary

SPEC = parse_spec({"data": {"train": "day_0"}, "model": {"kind": "mlp"}, "name": "clicks"})


def record(step: int, split: str = "train", mark: float = 0.5) -> Record:
    return Record(split, 0, step, 10, 10 * step, 1.0 * step, 5.0, mark, 0.9, 0.7, 1e-4, (0.0,), {})


def view(
    *progress: Entry, state: JobState = JobState.RUNNING, attempt: int = 1, **fields: object
) -> JobView:
    return JobView("clicks-1", "clicks", state, attempt, 2, progress=progress, **fields)  # type: ignore[arg-type]


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
    history = History()
    for progress in views:
        told += progress
        history.add(progress)
        assert history.records == naive_history(told)


def test_a_resumed_run_goes_on_with_what_is_there(tmp_path: Path) -> None:
    root = tmp_path / "run"
    with new_run(root, SPEC) as run_folder:
        run_folder.add(view(AttemptStarted(1, 0, 2), record(5), record(10), record(15)))
        run_folder.finish(
            view(
                state=JobState.FAILED,
                reason="CoordinatorLost",
                message="gone",
                restarts=(Restart(1, "RankDied", "killed", 7, 3.0),),
                checkpoints=Checkpoints(2, 10, "c/step-10", 0.5, 2.0),
            )
        )
    with RunPaths(root).attempt_records(1).open("a") as records:
        records.write('{"split": "train", "st')  # the supervisor was killed in a line

    run, spec = read_run_and_spec(root, ["resources.num_ranks=3"])
    assert (run.job_id, spec.resources.num_ranks) == ("clicks-1", 3)
    with resumed_run(root, 2, spec) as run_folder:
        assert on_disk(root) == [record(5), record(10), record(15)]
        run_folder.add(view(AttemptStarted(3, 10, 3), record(15, mark=0.25), attempt=3))
        assert on_disk(root) == [record(5), record(10), record(15, mark=0.25)]
        saved = Checkpoints(1, 15, "c/step-15", 0.25, 1.0, 2)
        done = view(state=JobState.SUCCEEDED, checkpoints=saved, attempt=3)
        for _ in range(2):  # a worker may be asked again
            summary = run_folder.finish(done)
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


def test_what_is_no_run_is_refused_and_its_place_named(tmp_path: Path, wording: Wording) -> None:
    with open_run(tmp_path, SPEC, "clicks-1"), pytest.raises(OutputError):
        reopen_run(tmp_path, SPEC)  # another command is at this run
    with pytest.raises(SpecError):
        read_run_and_spec(tmp_path, ["train.no_such_field=1"])
    wording.refused(
        InputError,
        lambda: read_run_and_spec(tmp_path / "none"),
        path=str(tmp_path / "none" / "run.json"),
    )
    assert read_summary(RunPaths(tmp_path)) is None
