"""Which run folders a new job may take: those whose job trained nothing, and no other."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from damaged import changed, write_small
from small_jobs import small_document
from wording import Wording

import distrain
from distrain.cli.main import cli
from distrain.errors import InputError, OutputError
from distrain.jobs.run_paths import PREPARED, RunPaths
from distrain.jobs.spec import parse_spec
from distrain.launch.resuming import find_run
from distrain.runs.run_file import RunFile, RunInUse, check_new_run, locked, write_spec

pytestmark = pytest.mark.usefixtures("undrawn")

RUN = ("--run-dir", "run")
TABLE = ("train", "rows.csv", "--target", "b", *RUN)


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job of a few steps in this process; tests may damage its rows."""
    monkeypatch.chdir(tmp_path)
    prepared = write_small(tmp_path / "prepared")
    document = small_document(prepared)
    document["train"] = {"global_batch_size": 200, "max_steps": 2}
    document["resources"] = {"backend": "inline", "num_ranks": 1, "device": "cpu"}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(document))
    return tmp_path / "job.yaml"


def state() -> str:
    return str(json.loads(Path("run/summary.json").read_text())["state"])


def test_a_job_that_ended_before_its_first_step_does_not_block_its_directory(job: Path) -> None:
    file = job.parent / "prepared" / "train" / "part-0.parquet"
    good = file.read_bytes()
    changed("I3", float("nan"))(file)  # which only a rank that reads the row can tell
    assert CliRunner().invoke(cli, ["train", str(job), *RUN]).exit_code != 0
    before = json.loads(Path("run/run.json").read_text())["job_id"]
    assert state() == "failed"
    Path("run/notes.txt").write_text("mine")
    file.write_bytes(good)
    dry = CliRunner().invoke(cli, ["train", str(job), *RUN, "--dry-run"])
    assert "ended before its first step (DataError), and is replaced" in dry.stderr
    assert json.loads(Path("run/run.json").read_text())["job_id"] == before
    done = CliRunner().invoke(cli, ["train", str(job), *RUN], catch_exceptions=False)
    assert done.exit_code == 0
    assert "and is replaced" in done.output
    assert state() == "succeeded"
    assert json.loads(Path("run/run.json").read_text())["job_id"] != before
    assert Path("run/notes.txt").read_text() == "mine"
    again = CliRunner().invoke(cli, ["train", str(job), *RUN])
    assert isinstance(again.exception, OutputError)
    assert "already contains a run" in str(again.exception)


@pytest.mark.slow
def test_a_run_folder_may_be_a_symbolic_link(job: Path) -> None:
    Path("disk").mkdir()
    Path("run").symlink_to("disk")
    runner = CliRunner()
    for words in (
        ["train", str(job), *RUN],
        ["train", "--resume", "run", "--set", "train.epochs=2", "--set", "train.max_steps=4"],
        ["report", "run"],
        ["compare", "run", "disk"],
    ):
        runner.invoke(cli, words, catch_exceptions=False, standalone_mode=False)
    assert Path("run").is_symlink()
    assert Path("disk/report.html").is_file()
    records = distrain.Run("run").records
    assert records[-1].step == 4
    assert records == distrain.Run("disk").records


def write_run(root: Path, state: str | None) -> None:
    """Write a run in a state, or, with `None`, a run whose job has not ended."""
    (root / "records").mkdir(parents=True)
    spec = parse_spec(small_document(root.parent / "prepared"))
    write_spec(spec, RunPaths(root))
    RunFile.new("job-1").write(RunPaths(root))
    (root / "records" / "attempt-1.jsonl").write_text("")
    if state is not None:
        summary = {"state": state, "reason": "RankDied", "steps": 3, "attempts": 1}
        (root / "summary.json").write_text(json.dumps(summary))


@pytest.mark.parametrize("state", ["succeeded", "failed", "cancelled", None])
def test_the_hint_names_resuming_exactly_for_runs_that_can_be_resumed(
    job: Path, state: str | None
) -> None:
    run = RunPaths(job.parent / "run")
    write_run(run.root, state)
    with pytest.raises(OutputError) as refused:
        check_new_run(run)
    resumable = True
    try:
        find_run(run.root, ())
    except InputError:
        resumable = False
    hint = refused.value.hint or ""
    assert ("--resume" in hint) == resumable
    assert "--overwrite" in hint
    check_new_run(run, overwrite=True)
    with locked(run.run), pytest.raises(RunInUse):
        check_new_run(run, overwrite=True)


def test_a_hint_names_replacing_exactly_for_what_can_be_replaced(job: Path) -> None:
    run = RunPaths(job.parent / "run")
    write_run(run.root, None)
    RunFile.new("job-1", service="s").write(run)
    for _ in range(2):
        for overwrite in (False, True):
            with pytest.raises(OutputError) as refused:
                check_new_run(run, overwrite=overwrite)
            assert not {"--overwrite", "--resume"} & set((refused.value.hint or "").split())
        run.run.unlink(missing_ok=True)  # then there is a spec, and no run


def train_table(*more: str) -> None:
    CliRunner().invoke(cli, [*TABLE, *more], standalone_mode=False, catch_exceptions=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    "train", [train_table, lambda: distrain.fit("rows.csv", target="b", run_dir="run")]
)
def test_the_folder_of_a_tables_run_is_checked_before_its_rows_are_prepared(
    job: Path, train: Callable[[], object], wording: Wording
) -> None:
    Path("rows.csv").write_text("a,b\n" + "x,0\ny,1\n" * 40)
    write_run(Path("run"), "succeeded")
    wording.refused(OutputError, train, path="run")
    assert not Path(PREPARED).exists()
    train_table("--set", "train.max_steps=2", "--overwrite")
    assert state() == "succeeded"
    assert json.loads(Path("run/run.json").read_text())["job_id"] != "job-1"


@pytest.mark.parametrize(
    "held",
    [
        {"metrics.jsonl": "{}\n"},
        {"records/attempt-1.jsonl": "{}\n"},
        {"checkpoints/step-1/manifest.json": "{}"},
        {"model/model.json": "{}"},
        {"summary.json": '{"state": "failed", "reason": "CoordinatorLost", "steps": 0}'},
        {"summary.json": '{"state": "failed", "reason": "Preempted", "steps": 0}'},
        {"summary.json": '{"state": "failed", "reason": "RankDied", "steps": 3}'},
        {"summary.json": '{"state": "failed", "checkpoints": {"count": 1}, "steps": 0}'},
        {"summary.json": '{"state": "succeeded", "steps": 0}'},
        {"summary.json": None},
    ],
)
def test_what_may_have_trained_is_kept(job: Path, held: dict[str, str | None]) -> None:
    ended = '{"state": "failed", "reason": "InvalidSpec", "steps": 0}'
    for name, text in {"run.json": "{}", "spec.yaml": "", "summary.json": ended, **held}.items():
        if text is not None:
            (Path("run") / name).parent.mkdir(parents=True, exist_ok=True)
            (Path("run") / name).write_text(text)
    files = {path: path.read_text() for path in Path("run").rglob("*") if path.is_file()}
    done = CliRunner().invoke(cli, ["train", str(job), *RUN])
    assert isinstance(done.exception, OutputError)
    assert "already contains a run" in str(done.exception)
    assert {path: path.read_text() for path in Path("run").rglob("*") if path.is_file()} == files
