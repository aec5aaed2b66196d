"""Which run folders a new job may take: those whose job trained nothing, and no other."""

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from damaged import changed, write_small
from small_jobs import small_document

from distrain.cli.main import cli
from distrain.errors import OutputError

pytestmark = pytest.mark.usefixtures("undrawn")

RUN = ("--run-dir", "run")


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
    assert "holds a run already" in str(again.exception)


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
    assert "holds a run already" in str(done.exception)
    assert {path: path.read_text() for path in Path("run").rglob("*") if path.is_file()} == files
