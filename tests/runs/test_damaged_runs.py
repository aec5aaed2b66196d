"""Run folders with edited or damaged files: an error names the file, or figures are missing."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from kept_runs import all_lines, new_run, record_of, view_of

from distrain.cli.main import cli
from distrain.errors import InputError, OutputError
from distrain.jobs.run_paths import RunPaths
from distrain.jobs.states import JobState
from distrain.runs import run_file
from distrain.runs.attempts import read_records
from distrain.runs.run_file import find_run_file, locked, read_run_and_spec, read_summary

DEEP = "[" * 100_000
RUN = {"job_id": "a", "created": "2026", "version": "1"}


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    with new_run(tmp_path / "run", job_id="test-1") as run:
        run.add(view_of(JobState.RUNNING, [record_of(5), record_of(10)]))
        return run.paths


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"id": 1}',
        DEEP,
        json.dumps(RUN | {"environment": True}),
        json.dumps(RUN | {"job_id": 3}),
        json.dumps(RUN | {"job_id": "\ud800"}),
    ],
    ids=["cut off", "other keys", "deep", "environment", "number", "surrogate"],
)
def test_a_run_file_that_is_none_is_named(paths: RunPaths, text: str) -> None:
    paths.run.write_text(text)
    with pytest.raises(InputError):
        read_run_and_spec(paths.root)


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo], ids=["folder", "fifo"])
def test_what_stands_in_place_of_a_run_file_takes_no_descriptor(tmp_path: Path, make) -> None:
    make(tmp_path / "run.json")
    held = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OutputError):
        locked(tmp_path / "run.json")
    assert len(os.listdir("/proc/self/fd")) == held


def test_specs_and_records_that_are_none_are_named_by_their_line(paths: RunPaths) -> None:
    records = paths.attempt_records(2)
    first, second = map(json.loads, all_lines(paths.root)[-2:])
    records_that_are_none = [second | {"step": value} for value in ("5", None, [], 1.5, {"a": 5})]
    for value in (*records_that_are_none, {}, [], 5, None, "split"):
        records.write_text(f"{json.dumps(first)}\n{json.dumps(value)}\n")
        with pytest.raises(InputError) as raised:
            read_records(paths)
        assert raised.value.where["line"] == 2
    records.write_text(DEEP + "\n")
    with pytest.raises(InputError):
        read_records(paths)
    paths.spec.write_text("[" * 1000)  # more take YAML minutes
    with pytest.raises(InputError):
        read_run_and_spec(paths.root)


OUTCOMES = [
    DEEP,
    {"checkpoints": 1},
    {"checkpoints": {"count": "many"}},
    {"restarts": [{"attempt": "first"}]},
    {"peak_memory": [{"host_bytes": None}]},
    {"message": 3},
    {"state": "\ud800"},
]


def test_an_outcome_that_is_none_counts_as_missing(paths: RunPaths) -> None:
    for document in OUTCOMES:
        text = document if isinstance(document, str) else json.dumps(document)
        paths.summary.write_text(text)
        assert read_summary(paths) is None, text[:100]
    done = CliRunner().invoke(cli, ["report", str(paths.root)], catch_exceptions=False)
    assert done.exit_code == 0


@pytest.mark.parametrize("text", ["{", "[]", "{}", "\ufffd"])
def test_a_damaged_run_file_in_an_object_store_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(run_file, "read_small_file", lambda *_: text)
    with pytest.raises(InputError) as caught:
        find_run_file(RunPaths(tmp_path, "s3://bucket/run"))
    assert caught.value.where == {"path": "s3://bucket/run/run.json"}
    assert caught.value.hint
