"""Commands on a checkpoint do what they do on a saved model."""

import json
import shutil
from functools import partial
from pathlib import Path

import pytest
import torch
import yaml
from click.testing import CliRunner
from small_jobs import small_document, write_prepared

import distrain
from distrain.cli.main import cli
from distrain.cli.models.models import find_model
from distrain.errors import DataError, InputError
from distrain.jobs.job_view import Record
from distrain.jobs.run_paths import RunPaths
from distrain.jobs.spec import parse_spec
from distrain.models import load_model
from distrain.predict.load_model import load_checkpoint, open_model
from distrain.runs.attempts import read_records
from distrain.train.checkpoint import CheckpointDir
from distrain.train.checkpoint.manifest import MANIFEST_FILE, _rendered

JOB = [
    "resources={backend: inline, num_ranks: 1, device: cpu}",
    "train={global_batch_size: 500, max_steps: 4, log_every_steps: 5}",
    "evaluate.every_steps=2",
    "checkpoint={every_s: null, keep_best: log_loss}",
    "embeddings.storage=bf16",
    "data.fill_null_id=2",
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run whose second validation is its best."""
    prepared = write_prepared(tmp_path_factory.mktemp("prepared") / "data")
    root = tmp_path_factory.mktemp("runs") / "run"
    made = distrain.fit(parse_spec(small_document(prepared), JOB), run_dir=root)
    assert made.summary.model_step == 4
    return root


@pytest.fixture(scope="module")
def valid(run):
    """The validation rows of that run."""
    return Path(yaml.safe_load((run / "spec.yaml").read_text())["data"]["valid"][0])


def invoke(*words):
    return CliRunner().invoke(cli, [str(word) for word in words], catch_exceptions=False)


def evaluated(*words):
    done = invoke("evaluate", *words, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def state(saved):
    return saved.model.state_dict()


def test_a_checkpoint_gives_the_model_that_was_saved_of_it(run):
    wanted = load_model(run / "model")
    found = load_checkpoint(str(run / "checkpoints" / "step-0000000004-a1"))
    assert found.spec == wanted.spec
    assert found.schema == wanted.schema
    assert found.about["reading"] == wanted.about["reading"]
    assert found.about["reading"]["fill_null_id"] == 2
    assert found.model.embeddings.weights[0].dtype == torch.bfloat16
    mine, its = state(found), state(wanted)
    assert all(torch.equal(mine[name], its[name]) for name in its)
    assert open_model(run / "model").spec == wanted.spec


def test_evaluate_takes_a_step_the_best_and_the_newest(run, valid):
    told = {
        record["step"]: record["loss"]
        for record in map(Record.to_json, read_records(RunPaths(run)))
        if record["split"] == "valid"
    }
    whole = evaluated(run, valid)
    for which, step in (("2", 2), ("best", 4), ("newest", 4)):
        found = evaluated(run, valid, "--checkpoint", which)
        assert found["log_loss"] == pytest.approx(told[step], rel=1e-6)
        assert (found == whole) == (step == 4)
    folder = run / "checkpoints" / "step-0000000002-a1"
    assert evaluated(folder, valid) == evaluated(run, valid, "--checkpoint", 2)


@pytest.mark.parametrize(
    ("which", "told"),
    [("3", "no complete checkpoint of step 3"), ("last", "not a step, best or newest")],
)
def test_which_ones_there_are_is_told(run, valid, which, told):
    done = CliRunner().invoke(cli, ["evaluate", str(run), str(valid), "--checkpoint", which])
    assert done.exit_code != 0
    text = done.output + str(done.exception)
    assert told in text


def rewritten(run, tmp_path, change):
    """A copy of a checkpoint whose manifest says something else, with a checksum that is right."""
    folder = tmp_path / "step-0000000004-a1"
    shutil.copytree(run / "checkpoints" / folder.name, folder)
    content = CheckpointDir(str(tmp_path)).read_manifest(folder.name)
    change(content)
    (folder / MANIFEST_FILE).write_bytes(_rendered(content))
    return str(folder)


def test_sizes_that_do_not_fit_are_refused_before_memory_is_taken(run, tmp_path, wording):
    def enlarge(content):
        content["values"]["spec"]["model"]["hidden"] = [1 << 20, 1 << 20]

    wording.refused(DataError, lambda: load_checkpoint(rewritten(run, tmp_path, enlarge)))


def test_a_state_of_something_else_is_refused(run, tmp_path, wording):
    wording.refused(
        DataError,
        lambda: load_checkpoint(
            rewritten(run, tmp_path, lambda content: content["values"].clear())
        ),
    )


def test_a_run_without_any_is_told(run, tmp_path, valid, wording):
    (tmp_path / "spec.yaml").write_text((run / "spec.yaml").read_text())
    (tmp_path / "run.json").write_text((run / "run.json").read_text())
    wording.refused(InputError, lambda: find_model(tmp_path, "newest"))


def test_a_url_in_place_of_a_models_folder_is_refused_as_it_was_written(wording):
    for checkpoint in (None, "best"):
        wording.refused(
            DataError,
            partial(find_model, Path("s3://bucket/runs/a"), checkpoint),
            path="s3://bucket/runs/a",
        )
    wording.refused(
        InputError, lambda: distrain.load("s3://bucket/runs/a"), path="s3://bucket/runs/a"
    )
