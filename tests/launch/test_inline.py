"""A rank in the calling process: what its threads report, and what the command shows of it."""

from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from unittest.mock import MagicMock, Mock

import pytest
import yaml
from click.testing import CliRunner
from loaded_scripts import run_script
from small_jobs import make_spec, small_document, write_prepared

from distrain.cli.main import cli
from distrain.errors import INTERRUPTED, TERMINATED, OutputError, Terminated
from distrain.jobs.events import CheckpointSaved
from distrain.jobs.job_view import JobView
from distrain.jobs.run_paths import RunPaths
from distrain.launch import run as run_module
from distrain.launch.inline import run_inline
from distrain.runs.run_file import read_summary
from distrain.storage.outputs import lock_now

INLINE = "resources={backend: inline, num_ranks: 1, device: cpu}"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_prepared(tmp_path_factory.mktemp("data"))


def test_a_rank_inline_loads_neither_dask_nor_a_compiler(prepared: Path, tmp_path: Path) -> None:
    models = {
        "dlrm": {"embedding_dim": 4, "bottom": [4], "top": [4]},
        "mlp": {"embedding_dim": 4, "hidden": [4], "members": 2},
    }
    for kind, options in models.items():
        document = small_document(prepared) | {"model": {"kind": kind, **options}}
        (tmp_path / f"{kind}.yaml").write_text(yaml.safe_dump(document))
    script = tmp_path / "script.py"
    script.write_text(f"""
import sys
from distrain.cli.main import cli
for kind in {list(models)!r}:
    words = ["train", {str(tmp_path)!r} + f"/{{kind}}.yaml", "--set", {INLINE!r}]
    cli([*words, "--run-dir", {str(tmp_path)!r} + f"/{{kind}}"], standalone_mode=False)
heavy = ("dask", "distributed", "sympy", "torch._dynamo", "triton")
print(sorted(name for name in heavy if name in sys.modules))
""")
    done = run_script(script)
    assert done.stdout.splitlines()[-1:] == ["[]"], done.stderr
    for kind in models:
        summary = read_summary(RunPaths(tmp_path / kind))
        assert summary is not None
        assert summary["state"] == "succeeded"


def test_a_command_that_is_ended_names_the_command_that_goes_on(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rank(run: object, report: Callable[[object], None], control: object) -> None:
        report(CheckpointSaved(0, 1, "here", 1, 0.0, 0.0))
        raise Terminated

    ended_after, idle = Mock(side_effect=KeyboardInterrupt), Mock(return_value=None)
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(small_document(prepared)))
    words = ["train", str(tmp_path / "job.yaml"), "--set", INLINE, "--run-dir"]
    for name, code in (("during", TERMINATED), ("after", INTERRUPTED)):
        with monkeypatch.context() as patch:
            patch.setattr(
                "distrain.train.rank.process.run_rank", rank if name == "during" else idle
            )
            patch.setattr(run_module, "finish", ended_after) if name == "after" else None
            done = CliRunner().invoke(cli, [*words, str(tmp_path / name)])
        assert done.exit_code == code
        assert "distrain train --resume" in done.stderr
        assert str(tmp_path / name) in done.stderr


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

    monkeypatch.setattr("distrain.train.rank.process.run_rank", rank)
    run_inline(make_spec(prepared, INLINE), tmp_path, "job", on_view)
    assert entered_meanwhile == [False]
    assert counts == [1, 2, 2]  # the last is the final view


def test_records_are_not_locked_by_a_run_that_is_interrupted_while_it_waits(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = MagicMock()
    waiting.__enter__.side_effect = KeyboardInterrupt
    monkeypatch.setattr("distrain.launch.inline._one_run_at_a_time", waiting)
    with pytest.raises(KeyboardInterrupt) as kept:  # as a notebook keeps its last traceback
        run_inline(make_spec(prepared, INLINE), tmp_path, "job", print)
    with RunPaths(tmp_path).records.joinpath("attempt-1.jsonl").open() as records:
        lock_now(records.fileno(), OutputError("the records are still locked"))
    assert kept.tb is not None
