"""Jobs whose models have targets of several kinds: what they report, save, and are judged by."""

import io
from functools import partial

import pytest
from click.testing import CliRunner
from rich.console import Console
from small_jobs import small_document

import distrain
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
