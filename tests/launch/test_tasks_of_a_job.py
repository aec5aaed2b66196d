"""A job of several tasks, from `examples/tasks.yaml` to its scores, exports and the next run."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from mean_label import MeanLabel
from sklearn.metrics import log_loss, roc_auc_score

import distrain
from distrain.cli.main import cli
from distrain.errors import SpecError
from distrain.jobs.spec.load import read_document
from distrain.metrics import Metric
from distrain.models.custom import PACKAGES_VARIABLE
from distrain.schema import ColumnSchema, Schema, Tags

pytestmark = pytest.mark.usefixtures("undrawn")

EXAMPLE = Path(__file__).parents[2] / "examples" / "tasks.yaml"
ROWS = 4_000
FEATURES = (
    ColumnSchema("user", "int32", (Tags.CATEGORICAL,), cardinality=50),
    ColumnSchema("age", "float32", (Tags.CONTINUOUS,)),
)
SMALL = {"train.global_batch_size": 200, "resources.device": "cpu"}


def write(folder, seed):
    rng = np.random.default_rng(seed)
    user = rng.integers(0, 50, ROWS).astype(np.int32)
    age = rng.normal(size=ROWS).astype(np.float32)
    clicked = rng.random(ROWS) < 1 / (1 + np.exp(1 - age - user / 25))
    columns = {
        "user": user,
        "age": age,
        "clicked": clicked,
        "bought": clicked & (rng.random(ROWS) < 0.3),
        "seconds": user / 10 + age + rng.normal(size=ROWS),
        "genre": (user + rng.integers(0, 2, ROWS)) % 4,
        "importance": rng.integers(0, 3, ROWS),
    }
    folder.mkdir(parents=True)
    pq.write_table(pa.table(columns), folder / "rows.parquet", row_group_size=1000)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sessions")
    for seed, split in enumerate(("train", "valid")):
        write(folder / split, seed)
    Schema(FEATURES).save(folder / "schema.json")
    return folder


def job(table, tasks=None, sharing=None, **data):
    document = read_document(EXAMPLE)
    document["data"] |= {"train": f"{table}/train", "valid": f"{table}/valid", **data}
    if tasks is not None:
        document["model"] |= {"tasks": tasks, "sharing": sharing}
        document["data"]["class_weight"] = {}
    return document


@pytest.fixture(scope="module")
def run(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    return distrain.fit(job(table), run_dir=folder, overrides=SMALL)


def test_groups_and_metrics_of_ones_own_count_weights(run, table, tmp_path, monkeypatch):
    """A row of weight 2 is the row twice, one of weight 0 is none."""
    rows = pq.read_table(table / "valid")
    weights = rows["importance"].to_numpy()
    again = np.repeat(np.arange(ROWS), weights)
    ones = pa.array(np.ones(len(again), np.int64))
    repeated = rows.take(again).set_column(
        rows.schema.get_field_index("importance"), "importance", ones
    )
    pq.write_table(repeated, tmp_path / "rows.parquet")
    words = ["evaluate", str(run.run_dir), "--group", "user", "--json"]
    found, alike = (
        json.loads(CliRunner().invoke(cli, [*words, str(data)]).stdout)
        for data in (table / "valid", tmp_path / "rows.parquet")
    )
    for name in ("groups", "scored_groups", "grouped_auc", "mean_group_auc"):
        assert found[name] == pytest.approx(alike[name], rel=1e-12)
    for name, figures in alike["targets"].items():
        assert found["targets"][name] == pytest.approx(figures, rel=1e-5)
    monkeypatch.setenv(PACKAGES_VARIABLE, "mean_label")
    short = SMALL | {"train.max_steps": 1, "evaluate.at_end": True}
    trained = distrain.fit(
        job(table), run_dir=tmp_path / "own", metrics={"ctr": MeanLabel}, overrides=short
    )
    clicked = rows["clicked"].to_numpy(zero_copy_only=False)
    assert trained.records[-1].own["ctr"] == pytest.approx(np.average(clicked, weights=weights))
    with pytest.raises(SpecError):
        distrain.fit(job(table), run_dir=tmp_path / "no", metrics={"ctr": Metric}, overrides=short)


def test_scores_have_columns_by_target(run, table):
    targets = run.summary.targets
    assert run.summary.auc > 0.65
    assert targets["watch"]["r2"] > 0.3
    assert targets["genre"]["accuracy"] > 0.35
    assert "auc" in targets["buy"]
    found = run.predict(f"{table}/valid")
    names = ["logit_click", "probability_click", "logit_buy", "probability_buy"]
    assert found.columns.tolist() == [
        *names,
        "prediction_watch",
        "class_genre",
        "probability_genre",
    ]
    shares = np.stack(found["probability_genre"])
    assert shares.shape == (ROWS, 4)
    assert (shares.argmax(1) == found["class_genre"]).all()
    np.testing.assert_allclose(shares.sum(1), 1, rtol=1e-5)
    truth = pq.read_table(table / "valid")
    assert np.corrcoef(truth["seconds"], found["prediction_watch"])[0, 1] > 0.5


@pytest.mark.parametrize(
    ("tasks", "data"),
    [
        ({"nosuch": {}}, {}),
        ({"clicked": {}}, {"weight": "importanc"}),
        ({"seconds": {"kind": "binary"}}, {}),
        ({"genre": {"kind": "multiclass", "classes": 3}}, {}),
        ({"genre": {"kind": "multiclass"}}, {}),
    ],
)
def test_what_does_not_fit_the_files_is_refused_before_the_job(
    table, tmp_path, tasks, data, wording
):
    with pytest.raises(distrain.DistrainError) as refused:
        distrain.fit(job(table, tasks, **data), run_dir=tmp_path / "run", overrides=SMALL)
    assert not (tmp_path / "run").exists()
    wording(refused.value, table=str(table))


def test_unknown_labels_of_a_task_count_in_no_metric_of_it(table, tmp_path):
    for split in ("train", "valid"):
        rows = pq.read_table(table / split)
        known = np.random.default_rng(len(split)).random(rows.num_rows) < 0.3
        bought = rows["bought"].to_numpy() & known
        rows = rows.set_column(rows.column_names.index("bought"), "bought", pa.array(bought))
        (tmp_path / split).mkdir()
        pq.write_table(
            rows.append_column("known", pa.array(known)), tmp_path / split / "rows.parquet"
        )
    bought = ColumnSchema("bought", tags=(Tags.TARGET,), properties={"known": "known"})
    known = ColumnSchema("known", "float32", (Tags.TASK_WEIGHT,))
    Schema((*FEATURES, bought, known)).save(tmp_path / "schema.json")
    tasks = {"click": {"target": "clicked"}, "buy": {"target": "bought"}}
    document = job(tmp_path, tasks)
    run = distrain.fit(document, run_dir=tmp_path / "run", overrides=SMALL)
    scores = run.predict(str(tmp_path / "valid"))["probability_buy"].to_numpy()
    truth = pq.read_table(tmp_path / "valid")
    weights = {"sample_weight": truth["importance"].to_numpy() * truth["known"].to_numpy()}
    figures, labels = run.summary.targets["buy"], truth["bought"].to_numpy()
    assert figures["log_loss"] == pytest.approx(log_loss(labels, scores, **weights), rel=1e-5)
    auc = roc_auc_score(labels, scores, **weights)
    assert figures["auc"] == pytest.approx(auc, abs=figures["auc_bound"] + 1e-6)
