"""Jobs whose models have targets of several kinds: what they report, save, and are judged by."""

import io
import shutil
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sklearn.metrics as sk
import torch
from click.testing import CliRunner
from rich.console import Console
from small_jobs import small_document

import distrain
from distrain import Dataset, Loader
from distrain.cli.main import cli
from distrain.cli.outcome import print_summary
from distrain.errors import SpecError
from distrain.jobs.run_paths import RunPaths
from distrain.models import Blueprint, Embeddings, InputBlock
from distrain.models.blocks.mlp import MLPBlock
from distrain.models.custom import PACKAGES_VARIABLE
from distrain.models.heads import (
    BinaryClassificationTask,
    MulticlassTask,
    MultiTask,
    RegressionTask,
)
from distrain.runs.report.run_page import write_report

pytestmark = pytest.mark.usefixtures("undrawn")

INLINE = {"resources": {"backend": "inline", "num_ranks": 1, "device": "cpu"}}
STEPS = {"train.max_steps": 10, "evaluate.every_steps": 2}


def three(schema):
    """A price, a click and a kind, all of which are the label."""
    task = MultiTask(
        {
            "price": RegressionTask(),
            "click": BinaryClassificationTask(),
            "kind": MulticlassTask(None, 3),
        }
    )
    return Blueprint(InputBlock(schema, Embeddings(4)), MLPBlock([4], "tanh"), task)


def regression(schema):
    return Blueprint(InputBlock(schema, Embeddings(4)), MLPBlock([4], "tanh"), RegressionTask())


@pytest.fixture(autouse=True)
def allowed(monkeypatch):
    monkeypatch.setenv(PACKAGES_VARIABLE, __name__.partition(".")[0])


@pytest.fixture(scope="module")
def run(prepared, tmp_path_factory):
    document = {k: v for k, v in small_document(prepared).items() if k != "model"}
    return distrain.fit(
        document | INLINE,
        model_fn=three,
        run_dir=tmp_path_factory.mktemp("runs") / "run",
        overrides=STEPS | {"checkpoint.keep_best": "price.rmse"},
    )


def test_each_target_has_its_metrics_in_records_and_the_summary(run):
    valid = [record for record in run.records if record.split == "valid"]
    assert [list(record.targets) for record in run.records] == [["price", "kind"]] * len(
        run.records
    )
    last = valid[-1]
    assert last.auc is not None
    assert last.targets["kind"]["accuracy"] > 0.5
    assert last.targets["kind"].keys() == {"accuracy", "log_loss"}, "of three classes"
    assert last.targets["price"]["rmse"] >= last.targets["price"]["mae"] > 0
    assert run.history["price.rmse"].tolist() == [r.targets["price"]["rmse"] for r in run.records]
    errors = {record.step: record.targets["price"]["rmse"] for record in valid}
    assert run.summary.model_step == min(errors, key=errors.__getitem__)
    scored = next(record for record in valid if record.step == run.summary.scored_step)
    assert run.summary.targets == scored.targets
    assert (run.summary.auc, run.summary.log_loss) == (scored.auc, scored.loss)


def test_a_regression_shows_its_error_where_others_show_an_auc(
    run, prepared, tmp_path, wording, monkeypatch
):
    document = {k: v for k, v in small_document(prepared).items() if k != "model"} | INLINE
    stopping = {"train.early_stopping": {"metric": "label.rmse", "min_delta": 9}}
    root = tmp_path / "run"
    alone = distrain.fit(document, model_fn=regression, run_dir=root, overrides=STEPS | stopping)
    assert alone.summary.stopped_early["metric"] == "label.rmse"
    assert (alone.summary.auc, alone.summary.log_loss) == (None, None)
    monkeypatch.setattr("distrain.runs.report.run_page.run_figures", lambda data: {})
    for one, has_auc in ((run, True), (alone, False)):
        text = io.StringIO()
        print_summary(Console(file=text, width=200), one.summary, RunPaths(one.run_dir))
        write_report(one.run_dir, tmp_path / "page.html")
        words = ["evaluate", str(one.run_dir), str(prepared / "valid")]
        shown = CliRunner().invoke(cli, words).stdout.replace("auc ", "AUC ")
        for told in (text.getvalue(), (tmp_path / "page.html").read_text(), shown, repr(one)):
            assert ("AUC" in told) == has_auc, told
            assert has_auc or "rmse" in told.lower()
    for metric in ("auc", "other.rmse", "label.accuracy"):
        wording.refused(
            SpecError,
            partial(
                distrain.fit,
                document,
                model_fn=regression,
                overrides={"checkpoint.keep_best": metric},
            ),
        )


def test_named_tasks_with_weights_have_the_metrics_of_scikit_learn(prepared, tmp_path):
    for path in sorted(prepared.rglob("*.parquet")):
        rows = pq.read_table(path)
        weights = pa.array(np.arange(len(rows)) % 4 / 2, pa.float32())
        to = tmp_path / path.relative_to(prepared)
        to.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows.append_column("importance", weights), to, row_group_size=1000)
    shutil.copy(prepared / "schema.pbtxt", tmp_path)
    document = small_document(tmp_path) | INLINE
    document["model"] |= {
        "tasks": {
            "click": {"target": "label"},
            "watch": {"target": "I3", "kind": "regression"},
            "genre": {"target": "C1", "kind": "multiclass"},
        }
    }
    document["data"] |= {"weight": "importance"}
    run = distrain.fit(document, run_dir=tmp_path / "run", overrides={"train.max_steps": 4})
    saved, parts = run.load_model(), []
    with Loader(Dataset(tmp_path / "valid", saved.schema), batch_size=1000) as loader:
        for batch in loader:
            with torch.no_grad():
                scores = saved.model.scores(batch)
            labels = (batch["label"], batch["I3"], batch["C1"])
            parts.append([*scores, *labels, batch.weight])
    columns = zip(*parts, strict=True)
    click, watch, genre, *labels, weights = (torch.cat(one).double().numpy() for one in columns)
    w = {"sample_weight": weights}
    auc = sk.roc_auc_score(labels[0], click, **w)
    rmse = sk.root_mean_squared_error(labels[1], watch, **w)
    accuracy = sk.accuracy_score(labels[2], genre.argmax(1), **w)
    for found in (run.evaluate(tmp_path / "valid"), run.summary):
        assert found.auc == pytest.approx(auc, abs=found.auc_bound + 1e-6)
        assert found.targets["watch"]["rmse"] == pytest.approx(rmse, rel=1e-5)
        assert found.targets["genre"]["accuracy"] == pytest.approx(accuracy, rel=1e-9)
