"""The run folder of a command, before and after its job is handed to a scheduler."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from small_jobs import make_spec

from distrain.errors import ClusterError, OutputError
from distrain.jobs.job_view import JobView
from distrain.jobs.states import JobState
from distrain.launch.detached import submit
from distrain.launch.reporting import LoggedProgress
from distrain.launch.run import RunRequest, train
from distrain.runs import open_run as opening, run_file
from distrain.runs.open_run import open_run
from distrain.runs.run_file import RunInUse
from distrain.train.data.inputs import read_inputs
from distrain.train.data.job_tables import read_tables

VIEW = JobView("test-1", "test", JobState.RUNNING, 1, 2)


class _Job:
    """A job whose scheduler stops answering when it is to be submitted."""

    def submit(self, *_: object, on_submitting: Callable[[], object]) -> bool:
        on_submitting()
        raise ClusterError("the scheduler did not answer")


class _Submitted(_Job):
    def submit(self, *_: object, on_submitting: Callable[[], object]) -> bool:
        on_submitting()
        return True

    def status(self) -> JobView:
        return VIEW


@pytest.fixture
def run(prepared: Path, tmp_path: Path) -> RunRequest:
    return RunRequest(
        make_spec(prepared), tmp_path / "runs" / "run", "test-1", scheduler="tcp://there:1"
    )


def cluster_with(monkeypatch: pytest.MonkeyPatch, job: _Job) -> None:
    @contextmanager
    def open_cluster(*_: object) -> Iterator[Any]:
        yield SimpleNamespace(dashboard_link="")

    for module in ("run", "detached"):
        monkeypatch.setattr(f"distrain.launch.{module}.open_cluster", open_cluster)
        monkeypatch.setattr(f"distrain.launch.{module}.JobHandle", lambda *_: job)


def names(run: RunRequest) -> set[str]:
    return {path.name for path in run.run_dir.iterdir()}


@pytest.mark.parametrize("error", [ClusterError("no scheduler there"), KeyboardInterrupt()])
def test_a_job_that_no_scheduler_got_does_not_block_its_directory(
    run: RunRequest, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distrain.launch.run.open_cluster", Mock(side_effect=error))
    with pytest.raises(type(error)):
        train(run, LoggedProgress())
    assert not run.run_dir.exists()
    (run.run_dir / "checkpoints").mkdir(parents=True)  # of somebody else
    with pytest.raises(type(error)):
        train(run, LoggedProgress())
    assert names(run) == {"checkpoints"}


def test_a_run_directory_that_gets_full_at_once_is_as_it_was(
    run: RunRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OutputError("no space left")

    monkeypatch.setattr(opening, "write_spec", full)
    with pytest.raises(OutputError):
        open_run(run.run_dir, run.spec, "test-1")
    assert not run.run_dir.exists()
    monkeypatch.undo()
    monkeypatch.setattr("distrain.train.data.job_tables.write_tables", full)
    with pytest.raises(OutputError):
        train(run, LoggedProgress())
    assert not run.run_dir.exists()


@pytest.mark.parametrize("begin", [submit, train])
def test_a_job_that_the_scheduler_may_have_keeps_its_directory(
    run: RunRequest,
    begin: Callable[[RunRequest, LoggedProgress], object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster_with(monkeypatch, _Job())
    with pytest.raises(ClusterError):
        begin(run, LoggedProgress())
    assert {"run.json", "spec.yaml", "tables.zip"} <= names(run)


def test_the_ranks_of_a_job_that_is_left_alone_get_its_tables(
    run: RunRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster_with(monkeypatch, _Submitted())
    submit(run, LoggedProgress())
    inputs = read_inputs(run.spec)
    tables = read_tables(run.run_dir / "tables.zip", run.spec, inputs.schema)
    assert tables is not None
    assert tables == inputs


def test_two_commands_that_begin_at_once_do_not_share_a_directory(
    run: RunRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_spec = run_file.write_spec

    def meanwhile(*arguments: Any) -> None:
        monkeypatch.setattr(opening, "write_spec", write_spec)
        monkeypatch.setattr(opening, "check_new_run", lambda _: None)  # it looked earlier
        with pytest.raises(RunInUse):
            open_run(run.run_dir, run.spec, "other")
        write_spec(*arguments)

    monkeypatch.setattr(opening, "write_spec", meanwhile)
    with open_run(run.run_dir, run.spec, "test-1"):
        assert json.loads((run.run_dir / "run.json").read_text())["job_id"] == "test-1"
        assert names(run) == {"run.json", "spec.yaml"}
