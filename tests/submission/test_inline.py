"""A rank in the calling process: what its threads report, and what the command shows of it."""

from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread

import pytest
import yaml
from click.testing import CliRunner
from loaded_scripts import run_script
from small_jobs import make_spec, small_document, write_prepared

from distrain.cli.interrupts import INTERRUPTED, TERMINATED
from distrain.cli.main import cli
from distrain.errors import Terminated
from distrain.events import CheckpointSaved
from distrain.jobs.view import JobView
from distrain.run_paths import RunPaths
from distrain.runs import RunRecorder, read_summary
from distrain.submission.inline import run_inline

INLINE = "resources={backend: inline, num_ranks: 1, device: cpu}"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_prepared(tmp_path_factory.mktemp("data"))


def test_checkpoints_on_the_way_are_shown_and_pruned(prepared: Path, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(small_document(prepared)))
    words = ["train", str(tmp_path / "job.yaml"), "--run-dir", str(tmp_path / "run")]
    checkpoint = "checkpoint={every_steps: 1, every_s: null, keep: 2, asynchronous: true}"
    for field in (INLINE, "train.max_steps=5", checkpoint):
        words += ["--set", field]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    paths = RunPaths(tmp_path / "run")
    summary = read_summary(paths)
    assert summary is not None
    assert summary["checkpoints"]["count"] == 5
    steps = {path.name[:15] for path in paths.checkpoints.glob("step-*")}
    assert steps == {"step-0000000004", "step-0000000005"}


def test_a_rank_inline_loads_neither_dask_nor_a_compiler(prepared: Path, tmp_path: Path) -> None:
    dlrm = {"model": {"kind": "dlrm", "embedding_dim": 4, "bottom": [4], "top": [4]}}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(small_document(prepared) | dlrm))
    script = tmp_path / "script.py"
    script.write_text(f"""
import sys
from distrain.cli.main import cli
words = ["train", {str(tmp_path / "job.yaml")!r}, "--set", {INLINE!r}]
cli([*words, "--run-dir", {str(tmp_path / "run")!r}], standalone_mode=False)
heavy = ("dask", "distributed", "sympy", "torch._dynamo", "triton")
print(sorted(name for name in heavy if name in sys.modules))
""")
    done = run_script(script)
    assert done.stdout.splitlines()[-1:] == ["[]"], done.stderr
    summary = read_summary(RunPaths(tmp_path / "run"))
    assert summary is not None
    assert summary["state"] == "succeeded"


def test_a_command_that_is_ended_says_how_to_go_on(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rank(run: object, report: Callable[[object], None], control: object) -> None:
        report(CheckpointSaved(0, 1, "here", 1, 0.0, 0.0))
        raise Terminated

    monkeypatch.setattr("distrain.train.rank.run_rank", rank)
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(small_document(prepared)))
    run_dir = tmp_path / "run"
    words = ["train", str(tmp_path / "job.yaml"), "--set", INLINE, "--run-dir", str(run_dir)]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == TERMINATED
    assert f"the job ended with this command; go on with it: distrain train --resume {run_dir}" in (
        done.stderr
    )


def test_a_command_that_is_ended_after_its_job_says_what_writes_the_rest(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def finish(recorder: RunRecorder, view: JobView, draw: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("distrain.train.rank.run_rank", lambda run, report, control: None)
    monkeypatch.setattr(RunRecorder, "finish", finish)
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(small_document(prepared)))
    run_dir = tmp_path / "run"
    words = ["train", str(tmp_path / "job.yaml"), "--set", INLINE, "--run-dir", str(run_dir)]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == INTERRUPTED
    assert f"the job has ended; what {run_dir} lacks is written by: distrain train --resume" in (
        done.stderr
    )


def test_a_view_is_shown_whole_before_the_next(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = CheckpointSaved(0, 1, "here", 1, 0.0, 0.0)

    def rank(run: object, report: Callable[[object], None], control: object) -> None:
        second = Thread(target=report, args=[event])
        threads.append(second)
        report(event)
        second.join()

    threads: list[Thread] = []
    counts: list[int] = []
    entered_meanwhile: list[bool] = []
    entered = Event()

    def on_view(view: JobView) -> None:
        counts.append(view.checkpoints.count)
        if len(counts) == 1:
            threads[0].start()
            entered_meanwhile.append(entered.wait(0.2))
        else:
            entered.set()

    monkeypatch.setattr("distrain.train.rank.run_rank", rank)
    run_inline(make_spec(prepared, INLINE), tmp_path, "job", on_view)
    assert entered_meanwhile == [False]
    assert counts == [1, 2, 2]  # the last is the final view
