"""Files that an earlier version wrote are read: data, workflow, run, checkpoint and model."""

import json
import tarfile
from pathlib import Path

import pytest
import torch

from distrain.loader import Dataset, Loader
from distrain.models import SavedModel, load_model
from distrain.run_paths import RunPaths
from distrain.running import LoggedProgress, RunRequest, find_run, train
from distrain.train.saving import open_model

pytestmark = pytest.mark.usefixtures("undrawn")

ARCHIVE = Path(__file__).parents[1] / "old_run" / "prepared.tar.xz"
ONE_RANK = "resources={backend: inline, num_ranks: 1, device: cpu}"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def data_of(old: Path) -> tuple[str, ...]:
    return (f"data.train={old}/data/part-0.parquet", f"data.schema={old}/data/schema.pbtxt")


def test_the_model_and_the_checkpoint_give_the_same_logits(old: Path) -> None:
    logits = torch.tensor(json.loads((old / "logits.json").read_text()))
    rows = Dataset(old / "data" / "part-0.parquet", old / "data" / "schema.pbtxt")
    batch = next(iter(Loader(rows, batch_size=len(logits), shuffle="none")))

    def gives(saved: SavedModel) -> torch.Tensor:
        with torch.no_grad():
            return saved.model.eval()(batch)

    paths = RunPaths(old / "run")
    (checkpoint,) = paths.checkpoints.glob("step-*")
    for saved in (load_model(paths.model), open_model(paths.model), open_model(checkpoint)):
        torch.testing.assert_close(gives(saved), logits, rtol=1e-6, atol=1e-7)


def test_the_run_goes_on_with_another_number_of_ranks(old: Path) -> None:
    job_id, spec, resumed = find_run(old / "run", ("train.max_steps=8", ONE_RANK, *data_of(old)))
    summary = train(RunRequest(spec, old / "run", job_id, resumed=resumed), LoggedProgress())
    assert resumed is not None
    assert (resumed.step, summary.steps, summary.rows) == (6, 8, 96)
