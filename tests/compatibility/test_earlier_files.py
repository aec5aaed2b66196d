"""What versions before this one wrote is read, gone on with and exported."""

import shutil
import tarfile
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import distrain
from distrain import Dataset, Loader
from distrain.cli.main import cli
from distrain.errors import DataError, SpecError
from distrain.jobs.run_paths import RunPaths
from distrain.jobs.spec.load import load_spec, parse_yaml
from distrain.jobs.spec.resuming import different_fields
from distrain.launch.resuming import find_run
from distrain.prep import Workflow
from distrain.runs.attempts import read_records
from distrain.runs.run_file import read_summary
from distrain.service.settings import Settings
from distrain.service.store.listing import JobFilter
from distrain.service.store.store import migrate, open_store

HERE = Path(__file__).parent

pytestmark = pytest.mark.slow


def run(*words: object) -> str:
    done = CliRunner().invoke(cli, [*map(str, words)], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    return done.output


def rows(folder: Path) -> pa.Table:
    return pq.read_table([*sorted(folder.glob("*.parquet"))])


def scores_equal(earlier: Path, run_dir: Path, tolerance: float) -> None:
    """Whether a model gives a table the scores that the earlier version gave it."""
    scores = distrain.load(run_dir).predict(rows(earlier / "orders" / "valid"))["probability"]
    wanted = rows(earlier / "scores")["probability"].to_numpy()
    np.testing.assert_allclose(scores, wanted, rtol=tolerance)


def words_for(earlier: Path, *settings: str) -> list[str]:
    """Options that set these fields, and the data's folders, which lie elsewhere now."""
    data = [f"data.{name}={earlier / 'orders' / name}" for name in ("train", "valid")]
    return [word for setting in (*data, *settings) for word in ("--set", setting)]


@pytest.fixture(scope="module")
def earlier(tmp_path_factory):
    """What commands of 0.2.0 wrote: orders, prepared and packed, two runs, scores, a database."""
    folder = tmp_path_factory.mktemp("earlier")
    with tarfile.open(HERE / "0.2.0.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def test_tables_packed_rows_and_specs_are_read(earlier, tmp_path):
    wanted = rows(earlier / "orders" / "train")
    for folder in (earlier / "orders" / "train", earlier / "packed"):
        with Loader(Dataset(folder), batch_size=64, shuffle="none") as loader:
            prices = np.concatenate([batch.continuous.numpy().ravel() for batch in loader])
        assert sorted(prices) == sorted(wanted["price"].to_pylist())
    run("train", earlier / "job.yaml", "--dry-run", *words_for(earlier))


def test_features_documents_prepare_the_same_rows(earlier, tmp_path):
    config = earlier / "features.yaml"
    run("prep", earlier / "orders.csv", "--features", config, "--out", tmp_path / "o")
    for part in ("train", "valid"):
        assert rows(tmp_path / "o" / part).equals(rows(earlier / "orders" / part))


def test_workflows_are_refused(earlier):
    with pytest.raises(DataError, match="earlier version"):
        Workflow.load(earlier / "orders" / "workflow")


def test_models_score_as_before_and_are_exported(earlier, tmp_path):
    scores_equal(earlier, earlier / "whole", 1e-5)
    run("export", earlier / "whole", tmp_path / "exported")
    assert (tmp_path / "exported" / "model.pt2").is_file()
    run("report", earlier / "whole")


def test_runs_on_raw_rows_are_reported_and_do_not_continue(earlier, tmp_path):
    for name in ("half", "whole"):
        shutil.copytree(earlier / name, tmp_path / name)
        spec = tmp_path / name / "spec.yaml"
        spec.write_text(spec.read_text().replace("workflow: null", "workflow: /w"))
        run("report", tmp_path / name)
        for read in (partial(load_spec, spec), partial(find_run, tmp_path / name, ())):
            with pytest.raises(SpecError, match="removed"):
                read()
    run("compare", tmp_path / "half", tmp_path / "whole")
    with pytest.raises(SpecError):
        different_fields(parse_yaml(spec.read_text()), load_spec(earlier / "whole" / "spec.yaml"))


def test_a_run_goes_on_to_the_scores_of_one_that_was_longer_at_once(earlier, tmp_path):
    shutil.copytree(earlier / "half", run_dir := tmp_path / "half")
    places = words_for(earlier, f"checkpoint.dir={run_dir / 'checkpoints'}", "train.epochs=20")
    run("train", "--resume", run_dir, *places)
    told, wanted = (
        [(one.step, one.rows) for one in read_records(RunPaths(place)) if one.split == "train"]
        for place in (run_dir, earlier / "whole")
    )
    assert told == wanted
    scores_equal(earlier, run_dir, 1e-3)


def test_a_checkpoint_gives_weights_and_state_to_another_run(earlier, tmp_path):
    begin = f"train.init_from={earlier / 'half' / 'checkpoints'}"
    words = words_for(earlier, begin, "train.init_state=all", "train.epochs=1")
    run("train", earlier / "job.yaml", "--run-dir", tmp_path / "run", *words)
    assert read_summary(RunPaths(tmp_path / "run"))["state"] == "succeeded"


def test_the_database_of_a_service_is_migrated_and_keeps_its_jobs(earlier, tmp_path):
    shutil.copy(earlier / "service.db", tmp_path / "service.db")
    settings = Settings(data_dir=tmp_path)
    migrate(settings)
    with open_store(settings) as store:
        done, waiting = sorted(store.jobs(JobFilter(), 10), key=lambda job: job.created_at_s)
        assert (done.state, done.owner, done.tags) == ("succeeded", "operator", {"team": "ads"})
        assert waiting.tags == {"team": "ads", "a": "b"}
        assert store.spec(waiting.id)["train"]["epochs"] == 2
        assert "search" in {project.name for project in store.projects()}
