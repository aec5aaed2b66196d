"""Jobs whose models have targets of several kinds: what they report, save, and are judged by."""

import io
import json
import shutil
from contextlib import nullcontext

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sklearn.metrics as sk
import torch
from click.testing import CliRunner
from rich.console import Console
from small_jobs import make_spec, small_document

import distrain
from distrain import Dataset, Loader
from distrain.cli.main import cli
from distrain.cli.outcome import print_summary
from distrain.errors import SpecError
from distrain.events import StepsDone
from distrain.jobs import World
from distrain.metrics import Metric, TargetMetrics
from distrain.models import Blueprint, Embeddings, InputBlock
from distrain.models.blocks.mlp import MLPBlock
from distrain.models.custom import PACKAGES_VARIABLE
from distrain.models.heads import (
    BinaryClassificationTask,
    MulticlassTask,
    MultiTask,
    RegressionTask,
)
from distrain.report import write_report
from distrain.run_paths import RunPaths
from distrain.train.data.inputs import check_inputs
from distrain.train.loop.trainer import Trainer

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


class Rows(Metric):
    rows = positives = 0

    def update(self, logits, labels):
        assert logits.shape == labels.shape
        self.rows += len(labels)
        self.positives += int(labels.sum())

    def merge(self, other):
        self.rows, self.positives = self.rows + other.rows, self.positives + other.positives

    def compute(self):
        return self.positives


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
        metrics={"positives": Rows},
    )


def test_each_target_has_its_metrics_in_records_and_the_summary(run):
    valid = [record for record in run.records if record.split == "valid"]
    assert [list(record.targets) for record in run.records] == [["price", "kind"]] * len(
        run.records
    )
    last = valid[-1]
    assert last.auc is not None
    assert last.targets["kind"]["accuracy"] > 0.5
    assert last.targets["kind"]["top_5"] == 1
    assert last.targets["price"]["rmse"] >= last.targets["price"]["mae"] > 0
    assert run.history["price.rmse"].tolist() == [r.targets["price"]["rmse"] for r in run.records]
    assert last.own["positives"] > 0
    scored = next(record for record in valid if record.step == run.summary.scored_step)
    assert run.summary.targets == scored.targets
    assert (run.summary.auc, run.summary.log_loss) == (scored.auc, scored.loss)


def test_the_best_model_is_that_of_the_named_target(run):
    errors = {r.step: r.targets["price"]["rmse"] for r in run.records if r.split == "valid"}
    assert run.summary.model_step == min(errors, key=errors.__getitem__)


def test_the_saved_model_is_evaluated_target_by_target(run, prepared, tmp_path):
    found = run.evaluate(prepared / "valid")
    assert (found.rows, found.auc) == (3_500, pytest.approx(run.summary.auc, abs=1e-3))
    for target, metrics in run.summary.targets.items():
        for name, value in metrics.items():
            assert found.targets[target][name] == pytest.approx(value, rel=1e-5), (target, name)
    command = ["evaluate", str(run.run_dir), str(prepared / "valid")]
    done = CliRunner().invoke(cli, [*command, "--resume", str(tmp_path), "--json"])
    told = json.loads(done.stdout)
    assert told["targets"]["kind"] == found.targets["kind"]
    assert told["auc"] == pytest.approx(found.auc, rel=1e-12)
    shown = CliRunner().invoke(cli, command).stdout
    assert "\nprice:\n  rmse " in shown
    assert "average precision" in shown


def test_people_see_each_target(run):
    text = io.StringIO()
    print_summary(Console(file=text, width=200), run.summary, RunPaths(run.run_dir))
    assert "AUC" in text.getvalue()
    assert "rmse 0." in text.getvalue()
    page = run.run_dir / "page.html"
    write_report(run.run_dir, page)
    html = page.read_text()
    assert "price: RMSE" in html
    assert "kind: accuracy" in html


def test_a_regression_shows_its_error_where_others_show_an_auc(prepared, tmp_path):
    document = {k: v for k, v in small_document(prepared).items() if k != "model"}
    run = distrain.fit(
        document | INLINE,
        model_fn=regression,
        run_dir=tmp_path / "run",
        overrides=STEPS | {"train.early_stopping": {"metric": "label.rmse", "min_delta": 9}},
    )
    assert run.summary.stopped_early["metric"] == "label.rmse"
    assert (run.summary.auc, run.summary.log_loss) == (None, None)
    assert ", label RMSE 0." in repr(run)
    text = io.StringIO()
    print_summary(Console(file=text, width=200), run.summary, RunPaths(run.run_dir))
    assert "AUC" not in text.getvalue()
    write_report(run.run_dir, tmp_path / "page.html")
    assert "AUC" not in (tmp_path / "page.html").read_text()
    found = run.evaluate(prepared / "valid")
    assert found.targets["label"]["rmse"] == pytest.approx(run.summary.targets["label"]["rmse"])
    shown = CliRunner().invoke(cli, ["evaluate", str(run.run_dir), str(prepared / "valid")])
    assert "label:" in shown.stdout
    assert "AUC" not in shown.stdout
    for metric in ("auc", "other.rmse", "label.accuracy"):
        with pytest.raises(SpecError, match=f"validations by {metric}, which a RegressionTask"):
            distrain.fit(
                document | INLINE, model_fn=regression, overrides={"checkpoint.keep_best": metric}
            )


def test_an_interrupted_window_holds_all_targets(prepared, tmp_path, monkeypatch):
    function = f"model={{kind: custom, function: {__name__}:three}}"
    steps = "train={global_batch_size: 700, max_steps: 7, log_every_steps: 4}"
    saved = "checkpoint={every_steps: 3, every_s: null, keep: 9}"
    spec = make_spec(prepared, "resources={backend: inline, num_ranks: 1}", function, steps, saved)
    one_step, told = Trainer._one_step, {}

    def killed_after_3(trainer, step):
        if step == 3 and trainer.attempt == 1:
            raise KeyboardInterrupt
        one_step(trainer, step)

    for name, attempts in (("quiet", 1), ("killed", 2)):
        if attempts == 2:
            monkeypatch.setattr(Trainer, "_one_step", killed_after_3)
        for attempt in range(1, attempts + 1):
            events = []
            job = World(), torch.device("cpu"), RunPaths(tmp_path / name), events.append, "the-job"
            trainer = Trainer(spec, check_inputs(spec), *job, attempt)
            with pytest.raises(KeyboardInterrupt) if attempt < attempts else nullcontext():
                trainer.run()
        metrics = {event.step: event.metrics for event in events if isinstance(event, StepsDone)}
        told[name] = metrics[4], metrics[7]
    assert told["quiet"] == told["killed"]
    assert [TargetMetrics.from_json(one).rows for one in told["quiet"]] == [2_800, 2_100]


@pytest.fixture(scope="module")
def weighted(prepared, tmp_path_factory):
    """The prepared rows with a column of weights."""
    root = tmp_path_factory.mktemp("weighted")
    for path in sorted(prepared.rglob("*.parquet")):
        rows = pq.read_table(path)
        weights = pa.array(np.arange(len(rows)) % 4 / 2, pa.float32())
        to = root / path.relative_to(prepared)
        to.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows.append_column("importance", weights), to, row_group_size=1000)
    shutil.copy(prepared / "schema.pbtxt", root)
    return root


def test_named_tasks_with_weights_have_the_metrics_of_scikit_learn(weighted, tmp_path):
    document = small_document(weighted) | INLINE
    document["model"] |= {
        "tasks": {
            "click": {"target": "label"},
            "watch": {"target": "I3", "kind": "regression"},
            "genre": {"target": "C1", "kind": "multiclass"},
        }
    }
    document["data"] |= {"weight": "importance"}
    stop = {"train.early_stopping": {"metric": "watch.mae", "patience": 9}}
    run = distrain.fit(document, run_dir=tmp_path / "run", overrides=STEPS | stop)
    assert run.summary.model_step in range(2, 11, 2)
    saved, parts = run.load_model(), []
    with Loader(Dataset(weighted / "valid", saved.schema), batch_size=1000) as loader:
        for batch in loader:
            with torch.no_grad():
                scores = saved.model.scores(batch)
            labels = (batch["label"], batch["I3"], batch["C1"])
            parts.append([*scores, *labels, batch.weight])
    columns = zip(*parts, strict=True)
    click, watch, genre, *labels, weights = (torch.cat(one).double().numpy() for one in columns)
    found, w = run.evaluate(weighted / "valid"), {"sample_weight": weights}
    assert len(set(weights)) == 4
    auc = sk.roc_auc_score(labels[0], click, **w)
    assert (found.rows, found.auc) == (len(weights), pytest.approx(auc, abs=found.auc_bound + 1e-6))
    rmse = sk.root_mean_squared_error(labels[1], watch, **w)
    assert found.targets["watch"]["rmse"] == pytest.approx(rmse, rel=1e-5)
    accuracy = sk.accuracy_score(labels[2], genre.argmax(1), **w)
    assert found.targets["genre"]["accuracy"] == pytest.approx(accuracy, rel=1e-9)
    assert run.summary.targets["watch"]["rmse"] == pytest.approx(rmse, rel=1e-5)
    assert run.summary.auc == pytest.approx(auc, abs=run.summary.auc_bound + 1e-6)
