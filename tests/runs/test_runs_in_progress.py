"""Run folders of runs that have not ended, or whose command was killed."""

from dataclasses import replace

import pytest
from click.testing import CliRunner
from kept_runs import LOST, new_run, record_of, records_of, resumed_run, spec_of, view_of

from distrain.cli.runs.report import compare as compare_command
from distrain.jobs.job_view import AttemptStarted, Checkpoints, Restart
from distrain.jobs.spec.load import parse_spec
from distrain.jobs.states import JobState
from distrain.runs.report.run_page import write_report
from distrain.runs.run_data import read_run_data

PLACES = (
    {"host": "alpha", "device": "cuda:0", "hardware": "GPU X"},
    {"host": "beta", "device": "cuda:1", "hardware": "GPU Y"},
)


def running(*progress, **fields):
    return view_of(JobState.RUNNING, progress, **fields)


def page_of(root, tmp_path):
    write_report(root, tmp_path / "out.html")
    return (tmp_path / "out.html").read_text()


@pytest.mark.slow
def test_a_run_in_progress_tells_attempts_restarts_and_places(tmp_path):
    root = tmp_path / "run"
    with new_run(root) as recorder:
        recorder.add(view_of(JobState.STARTING))
        recorder.add(
            running(
                *records_of(40), restarts=(LOST,), rank_places=PLACES, parameters=12,
                checkpoints=Checkpoints(1, 40, "c/step-40"), reader="arrow: it is parquet",
            )
        )  # fmt: skip
        data = read_run_data(root)
        assert (data.state, data.ended, data.restarts[0]["reason"]) == (
            "running",
            False,
            "RankDied",
        )
        text = page_of(root, tmp_path)
    for told in (
        "The run has not ended; attempt 2 was the last.",
        "<th>attempts</th><td>2</td>", "<th>restarts</th><td>1</td>",
        "<th>checkpoints</th><td>1</td>", "<th>parameters</th><td>12</td>",
        "<td>alpha</td><td>cuda:0</td><td>GPU X</td>", "<td>beta</td>", "arrow: it is parquet",
        "rank 1 was killed by &lt;SIGKILL&gt;",
    ):  # fmt: skip
        assert told in text, told
    abandoned = page_of(root, tmp_path)  # nobody is at it any more
    assert "The run was interrupted without an outcome; attempt 2 was the last" in abandoned
    assert f"distrain train --resume {root}" in abandoned
    assert "<th>state</th><td>broken off</td>" in abandoned
    done = CliRunner().invoke(compare_command, [str(root), str(root)])
    assert done.output.count("broken off") == 2


def test_what_a_killed_command_knew_is_in_the_summary_of_the_next(tmp_path):
    saved = Checkpoints(2, 40, "c/step-40", 0.5, 2.0)
    with new_run(tmp_path) as recorder:
        recorder.add(running(*records_of(40), restarts=(LOST,), checkpoints=saved))
    with resumed_run(tmp_path, 3) as recorder:
        assert read_run_data(tmp_path).restarts[0]["attempt"] == 1
        own = Restart(3, "WorkerLost", "it left", 60, 5.0)
        view = replace(running(AttemptStarted(4, 40, 2)), attempt=4, restarts=(own,))
        recorder.add(replace(view, checkpoints=Checkpoints(1, 60, "c/step-60", 0.25, 1.0)))
        so_far = read_run_data(tmp_path).summary
        summary = recorder.finish(
            replace(view, state=JobState.SUCCEEDED, checkpoints=Checkpoints(1, 60, "c/step-60"))
        )
    assert [restart["attempt"] for restart in so_far["restarts"]] == [1, 2, 3]
    assert so_far["checkpoints"]["count"] == 3
    assert [restart["attempt"] for restart in summary.restarts] == [1, 2, 3]
    assert summary.restarts[1]["reason"] == "CoordinatorLost"
    assert (summary.checkpoints["count"], summary.checkpoints["step"]) == (3, 60)


@pytest.mark.parametrize(("backend", "ended"), [("inline", "command"), ("dask", "scheduler")])
def test_a_submission_without_a_summary_names_the_process_that_ended(tmp_path, backend, ended):
    resources = {"backend": backend, "num_ranks": 1}
    spec = parse_spec(spec_of().model_dump(mode="json") | {"resources": resources})
    with new_run(tmp_path, spec) as recorder:
        recorder.add(running(record_of(10)))
    with resumed_run(tmp_path, 3, spec) as recorder:
        recorder.add(replace(running(record_of(20)), attempt=3))
        summary = recorder.finish(replace(view_of(JobState.SUCCEEDED), attempt=3))
    (restart,) = summary.restarts
    assert restart["reason"] == "CoordinatorLost"
    assert restart["message"].startswith(f"the {ended} ")


def test_a_run_that_was_resumed_and_killed_does_not_show_its_first_end(tmp_path):
    with new_run(tmp_path) as recorder:
        recorder.finish(view_of(JobState.FAILED, reason="RankDied", message="killed"))
    with resumed_run(tmp_path, 3) as recorder:
        recorder.add(replace(running(record_of(10)), attempt=3))
    data = read_run_data(tmp_path)
    assert (data.state, data.problem()) == ("broken off", "")
    assert [restart["reason"] for restart in data.restarts] == ["RankDied"]
