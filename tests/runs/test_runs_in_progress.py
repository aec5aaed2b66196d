"""What a run directory tells of a run that has not ended, or whose command was killed."""

import json
from dataclasses import replace

from click.testing import CliRunner
from kept_runs import LOST, record_of, records_of, spec_of, view_of

from distrain.cli.runs.report import compare as compare_command
from distrain.jobs.events import StepsDone, TrainingStarted, to_json
from distrain.jobs.run_paths import RunPaths
from distrain.jobs.states import JobState
from distrain.jobs.view import AttemptStarted, Checkpoints, Restart
from distrain.runs.recorder import open_run, reopen_run
from distrain.runs.records.kept_reports import ReportWriter
from distrain.runs.report.run_page import write_report
from distrain.runs.run_data import read_run_data, recent_times

PLACES = (
    {"host": "alpha", "device": "cuda:0", "hardware": "GPU X"},
    {"host": "beta", "device": "cuda:1", "hardware": "GPU Y"},
)


def running(*progress, **fields):
    return view_of(JobState.RUNNING, progress, **fields)


def page_of(root, tmp_path):
    write_report(root, tmp_path / "out.html")
    return (tmp_path / "out.html").read_text()


def status_of(root):
    return json.loads(RunPaths(root).progress.read_text())


def keep_reports(paths, attempt, rank, windows):
    """What a supervisor keeps: `windows` are step and seconds."""
    path = paths.reports(rank, attempt)
    path.parent.mkdir(parents=True, exist_ok=True)
    keeper = ReportWriter(path)
    started = TrainingStarted(rank, 100, 50, 50, 7)
    reports = [StepsDone(rank, 0, step, 1.0, seconds, {}, 0.1) for step, seconds in windows]
    for event in (started, *reports):
        keeper.keep(to_json(event), json.dumps(to_json(event)).encode() + b"\n")
    keeper.close()


def test_a_run_in_progress_tells_attempts_restarts_and_places(tmp_path):
    root = tmp_path / "run"
    with open_run(root, spec_of(), "clicks-1") as recorder:
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
        "The run has not ended; attempt 2 was running.",
        "<th>attempts</th><td>2</td>", "<th>restarts</th><td>1</td>",
        "<th>checkpoints</th><td>1</td>", "<th>parameters</th><td>12</td>",
        "<td>alpha</td><td>cuda:0</td><td>GPU X</td>", "<td>beta</td>", "arrow: it is parquet",
        "rank 1 was killed by &lt;SIGKILL&gt;",
    ):  # fmt: skip
        assert told in text, told
    abandoned = page_of(root, tmp_path)  # nobody is at it any more
    assert "The run broke off without an outcome; attempt 2 was running" in abandoned
    assert "<th>state</th><td>broken off</td>" in abandoned
    done = CliRunner().invoke(compare_command, [str(root), str(root)])
    assert done.output.count("broken off") == 2


def test_the_file_is_replaced_when_something_changes_and_goes_with_the_end(tmp_path):
    root = tmp_path / "run"
    with open_run(root, spec_of(), "clicks-1") as recorder:
        recorder.add(view_of(JobState.PENDING, why_pending="needs 2 workers"))
        first = RunPaths(root).progress.stat()
        recorder.add(view_of(JobState.PENDING, why_pending="in 3 s"))
        assert RunPaths(root).progress.stat().st_ino == first.st_ino
        recorder.add(running(record_of(10)))
        assert RunPaths(root).progress.stat().st_ino != first.st_ino
        assert status_of(root)["state"] == "running"
        recorder.finish(view_of(JobState.SUCCEEDED))
    assert not RunPaths(root).progress.exists()
    assert read_run_data(root).state == "succeeded"


def test_what_a_killed_command_knew_is_in_the_summary_of_the_next(tmp_path):
    saved = Checkpoints(2, 40, "c/step-40", 0.5, 2.0)
    with open_run(tmp_path, spec_of(), "clicks-1") as recorder:
        recorder.add(running(*records_of(40), restarts=(LOST,), checkpoints=saved))
    with reopen_run(tmp_path, spec_of()) as recorder:
        assert read_run_data(tmp_path).restarts[0]["attempt"] == 1
        own = Restart(3, "WorkerLost", "it left", 60, 5.0)
        view = replace(running(AttemptStarted(4, 40, 2)), attempt=4, restarts=(own,))
        recorder.add(replace(view, checkpoints=Checkpoints(1, 60, "c/step-60", 0.25, 1.0)))
        so_far = status_of(tmp_path)
        summary = recorder.finish(
            replace(view, state=JobState.SUCCEEDED, checkpoints=Checkpoints(1, 60, "c/step-60"))
        )
    assert [restart["attempt"] for restart in so_far["restarts"]] == [1, 3]
    assert so_far["checkpoints"]["count"] == 3
    assert [restart["attempt"] for restart in summary.restarts] == [1, 3]
    assert (summary.checkpoints["count"], summary.checkpoints["step"]) == (3, 60)


def test_a_job_that_outlived_its_command_is_not_counted_twice(tmp_path):
    fields = {"restarts": (LOST,), "checkpoints": Checkpoints(2, 40, "c/step-40")}
    with open_run(tmp_path, spec_of(), "clicks-1") as recorder:
        recorder.add(running(*records_of(40), **fields))
    with reopen_run(tmp_path, spec_of()) as recorder:
        recorder.same_job()
        recorder.add(running(*records_of(60), **fields))
        assert len(status_of(tmp_path)["restarts"]) == 1
        summary = recorder.finish(view_of(JobState.SUCCEEDED, **fields))
    assert (len(summary.restarts), summary.checkpoints["count"]) == (1, 2)


def test_a_run_that_was_resumed_and_killed_does_not_show_its_first_end(tmp_path):
    with open_run(tmp_path, spec_of(), "clicks-1") as recorder:
        recorder.finish(view_of(JobState.FAILED, reason="RankDied", message="killed"))
    with reopen_run(tmp_path, spec_of()) as recorder:
        recorder.add(running(record_of(10)))
    data = read_run_data(tmp_path)
    assert (data.state, data.problem()) == ("broken off", "")
    assert [restart["reason"] for restart in data.restarts] == ["RankDied"]


def test_times_by_rank_are_those_of_the_kept_reports(tmp_path):
    root = tmp_path / "run"
    with open_run(root, spec_of(), "clicks-1") as recorder:
        recorder.add(running(*records_of(40), rank_places=PLACES))
    paths = RunPaths(root)
    keep_reports(paths, 1, 0, [(10, {"data_wait": 99.0})])  # an older attempt
    keep_reports(paths, 2, 0, [(s, {"data_wait": 1.0, "optimizer": 3.0}) for s in (20, 30, 40)])
    keep_reports(paths, 2, 1, [(s, {"exchange": 3.0, "optimizer": 1.0}) for s in (20, 30)])
    with paths.reports(1, 2).open("ab") as file:
        file.write(b'{"kind": "steps_done", "ra')
    found = recent_times(paths)
    assert (found.first_step, found.last_step) == (20, 30)  # what all ranks have told
    assert found.seconds == (
        {"data_wait": 2.0, "optimizer": 6.0}, {"exchange": 6.0, "optimizer": 2.0}
    )  # fmt: skip
    text = page_of(root, tmp_path)
    assert "<td>25.0 %</td>" in text
    assert "<td>0.0 %</td>" in text
