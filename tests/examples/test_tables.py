"""Jobs on tables, from `prep --infer` to scores, whose metrics are those of scikit-learn."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner
from run_examples import EXAMPLES, run_example
from sklearn import metrics

import distrain.cli.main as cli


def run(*words):
    done = CliRunner().invoke(cli.cli, [str(word) for word in words])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


def prepare(table, change):
    """The inferred document, what `change` makes of it, and the folder that is prepared by it."""
    folder, features = table.with_suffix(""), table.with_suffix(".yaml")
    run("prep", table, "--infer", "--out", features)
    document = yaml.safe_load(features.read_text())
    change(document)
    features.write_text(yaml.safe_dump(document, sort_keys=False))
    run("prep", table, "--features", features, "--out", folder)
    return folder


def name_targets(document):
    """What docs/examples.md changes."""
    assert document["columns"]["customer"]["kind"] == "categorical"
    assert document["target"] == "bought_again"
    document["target"] = {"column": "worth", "kind": "regression"}
    document["more_targets"] = {
        "bought_again": {"column": "bought_again"},
        "spent_next": {"column": "spent_next", "kind": "regression"},
    }
    targets = ("worth", "spent_next")
    for name, column in [*document["columns"].items()]:
        if column.get("from", name) in targets:
            del document["columns"][name]


def train_and_score(example, data, folder):
    """`init`, and the example, as jobs; what `evaluate` says, and what `predict` writes."""
    run("init", "--data", data, "--out", folder / "job.yaml")
    targets = {task["target"] for task in tasks_of(folder / "job.yaml").values()}
    assert {task["target"] for task in tasks_of(EXAMPLES / example).values()} <= targets
    paths = ("--set", f"data.train={data}/train", "--set", f"data.valid={data}/valid")
    run("train", EXAMPLES / example, "--run-dir", folder / "run", *paths)
    found = json.loads(run("evaluate", folder / "run", data / "valid", "--json"))
    kept = [word for name in sorted(targets) for word in ("--keep", name)]
    run("predict", folder / "run", data / "valid", "--out", folder / "scores", *kept)
    return found, pq.read_table(folder / "scores").to_pandas()


def tasks_of(path):
    return yaml.safe_load(path.read_text())["model"]["tasks"]


def check_numbers(found, labels, predictions):
    assert found["rmse"] == pytest.approx(
        metrics.root_mean_squared_error(labels, predictions), 1e-5
    )
    assert found["mae"] == pytest.approx(metrics.mean_absolute_error(labels, predictions), 1e-5)
    assert found["r2"] == pytest.approx(metrics.r2_score(labels, predictions), 1e-4)


@pytest.fixture(scope="module")
def log():
    file = Path(__file__).resolve().parents[3] / "shared/data/online_retail"
    file /= "online_retail_first80pct.csv.gz"
    if not file.is_file():
        pytest.skip("the log of the shop is not among the real data")
    return file


@pytest.fixture(scope="module")
def baskets(log, tmp_path_factory):
    table = tmp_path_factory.mktemp("baskets") / "baskets.parquet"
    run_example("online_retail_baskets.py", log, "--out", table)
    return prepare(table, name_targets)


@pytest.mark.release
def test_the_worth_of_baskets(baskets, tmp_path):
    found, scores = train_and_score("basket_worth.yaml", baskets, tmp_path)
    worth = found["targets"]["worth"]
    check_numbers(worth, scores["label"], scores["prediction"])
    assert worth["r2"] > 0.2  # the mean of these rows has 0


@pytest.mark.release
def test_who_buys_again_and_for_how_much(baskets, tmp_path):
    found, scores = train_and_score("basket_next.yaml", baskets, tmp_path)
    labels, shares = scores["bought_again"], scores["probability_again"]
    logits = scores["logit_again"]
    assert found["auc"] == pytest.approx(metrics.roc_auc_score(labels, logits), abs=1e-3)
    assert found["log_loss"] == pytest.approx(metrics.log_loss(labels, shares), abs=1e-5)
    assert found["auc"] > 0.7
    spent = found["targets"]["spent"]
    check_numbers(spent, scores["spent_next"], scores["prediction_spent"])
    assert spent["r2"] > 0.2


@pytest.mark.release
def test_items_are_learnt_best_in_the_order_of_weeks(log, tmp_path):
    run_example("online_retail_items.py", log, "--out", tmp_path / "items.parquet")

    def cut_by_weeks(document):  # what docs/examples.md changes
        assert document["target"] == "sold"
        document["windows"] = {"by": "day", "size": "7d"}
        document["split"] = {"by": "time", "column": "day", "from": "2011-05-12"}
        del document["columns"]["day_month"]

    data = prepare(tmp_path / "items.parquet", cut_by_weeks)

    def of_the_week_after(name, *options):
        paths = (f"data.train={data}/train", f"data.valid={data}/valid")
        sets = [word for one in (*paths, *options) for word in ("--set", one)]
        run("train", EXAMPLES / "items_weekly.yaml", "--run-dir", tmp_path / name, *sets)
        return json.loads((tmp_path / name / "summary.json").read_text())

    weeks = of_the_week_after("weeks")
    shuffled = of_the_week_after("mixed", "data.windows=null", "evaluate.next_window=false")
    assert weeks["progressive"]["windows"] == 22
    assert weeks["auc"] > shuffled["auc"] + 0.003
    assert weeks["log_loss"] < shuffled["log_loss"] - 0.004


@pytest.mark.slow
def test_the_digits_of_scikit_learn(tmp_path):
    run_example("sklearn_table.py", "digits", "--out", tmp_path / "digits.parquet")

    def read(document):
        expected = {"column": "target", "kind": "multiclass", "classes": 10}
        assert document["target"] == expected

    data = prepare(tmp_path / "digits.parquet", read)
    found, scores = train_and_score("digits.yaml", data, tmp_path)
    digit, shares = found["targets"]["digit"], np.stack(scores["probability"])
    assert digit["accuracy"] == metrics.accuracy_score(scores["label"], scores["class"])
    losses = metrics.log_loss(scores["label"], shares, labels=range(10))
    assert digit["log_loss"] == pytest.approx(losses, abs=1e-4)
    assert digit["accuracy"] > 0.85  # the most frequent digit has about 0.1
