"""`distrain evaluate` on scores that bins cannot order, within groups, days, and moved columns."""

import json
import math
import pickle
from collections import Counter
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch
from click.testing import CliRunner
from sklearn.metrics import average_precision_score, roc_auc_score
from small_jobs import CARDINALITIES, draw_rows
from wording import Wording

from distrain.cli.models.evaluate import command
from distrain.errors import DataError
from distrain.jobs.spec import MlpSpec
from distrain.loader import Dataset, Loader
from distrain.models import SavedModel, build_model, load_model
from distrain.models.heads.targets import Target
from distrain.models.saved_model import save_model
from distrain.predict import cluster_tasks, logits
from distrain.predict.drift import column_drift, grouped_ids, grouped_numbers, stability_index
from distrain.predict.evaluation import evaluate_groups, evaluate_saved
from distrain.predict.logits import ScorerInProcess, ScorerOnCluster
from distrain.prep import ColumnGroup, TargetEncode, Workflow
from distrain.prep.column_group import FOLD
from distrain.prep.operators.encodings import fold_numbers
from distrain.schema import criteo_schema
from distrain.train.step.device_metrics import TargetRows

USERS = ["ann", "bob", None, "cy", "dee"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files of rows with a user each, and a model whose logits all lie beyond the bins."""
    root = tmp_path_factory.mktemp("scored")
    schema, spec = criteo_schema(CARDINALITIES), MlpSpec(embedding_dim=2, hidden=(4,))
    model = build_model(schema, spec, seed=3)
    with torch.no_grad():
        for parameter in list(model.dense.parameters())[-2:]:
            parameter.mul_(30.0).add_(40.0)
    save_model(root / "model", model, spec, schema)
    (root / "data").mkdir()
    for number, rows in enumerate((700, 333)):
        users = pa.array([USERS[row % 7 % 5] for row in range(rows)], pa.string())
        table = draw_rows(rows, seed=number).append_column("user", users)
        pq.write_table(table, root / "data" / f"{number}.parquet", row_group_size=100)
    return root


def scores_of(saved: SavedModel, root: Path) -> tuple[np.ndarray, np.ndarray, list[str | None]]:
    table = pq.read_table(root / "data")
    loader = Loader(Dataset(root / "data", saved.schema), batch_size=5_000, lanes=1, shuffle="none")
    (batch,) = list(loader.epoch(0))
    with torch.no_grad():
        logits = saved.model.eval()(batch).numpy()
    np.testing.assert_array_equal(batch.label.numpy(), table["label"].to_numpy())
    return logits, table["label"].to_numpy(), table["user"].to_pylist()


def test_metrics_are_exact_where_the_bins_cannot_tell(folder: Path) -> None:
    saved = load_model(folder / "model")
    scores, labels, _ = scores_of(saved, folder)
    assert np.abs(scores).min() > 16  # one bin holds them all
    dataset = Dataset(folder / "data", saved.schema)
    binned = evaluate_saved(ScorerInProcess(saved, dataset, 64), max_auc_bound=1.0)
    assert (binned.auc, binned.auc_bound) == (0.5, 0.5)
    exact = evaluate_saved(ScorerInProcess(saved, dataset, 64))
    assert exact.auc == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
    precision = average_precision_score(labels, scores)
    assert exact.average_precision == pytest.approx(precision, abs=1e-12)
    assert exact.auc_bound == exact.average_precision_bound == 0.0
    assert exact.log_loss == binned.log_loss


def test_the_command_tells_the_auc_of_each_user(folder: Path) -> None:
    saved = load_model(folder / "model")
    scores, labels, users = scores_of(saved, folder)
    naive = {}
    for user in USERS:
        own = [row for row, other in enumerate(users) if other == user]
        naive[user] = (len(own), *naive_metrics(scores[own], labels[own]))
    words = [str(folder / "model"), str(folder / "data"), "--group", "user"]
    done = CliRunner().invoke(command, [*words, "--batch-size", "64", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert {row["value"]: row["rows"] for row in found["largest_groups"]} == {
        user: rows for user, (rows, *_) in naive.items()
    }
    for row in found["largest_groups"]:
        figures = [row[name] for name in ("auc", "log_loss", "calibration")]
        assert figures == pytest.approx(naive[row["value"]][1:], rel=1e-9)
    rows, aucs, *_ = zip(*naive.values(), strict=True)
    assert found["grouped_auc"] == pytest.approx(np.average(aucs, weights=rows))
    assert (found["groups"], found["scored_rows"]) == (5, 1033)


def naive_metrics(scores: np.ndarray, labels: np.ndarray) -> tuple[float, float, float]:
    scores = scores.astype(np.float64)
    losses = np.logaddexp(0, np.where(labels == 1, -scores, scores))
    chances = 1 / (1 + np.exp(-scores))
    return roc_auc_score(labels, scores), losses.mean(), chances.sum() / labels.sum()


def naive_index(old: list[int], new: list[int]) -> float:
    """Groups are whatever two lists of equal group numbers say."""
    before, after, total = Counter(old), Counter(new), 0.0
    for group in before.keys() | after.keys():
        q = max(before[group] / len(old), 1e-4)
        p = max(after[group] / len(new), 1e-4)
        total += (p - q) * math.log(p / q)
    return total


def test_the_stability_index_is_that_of_naive_groups() -> None:
    rng = np.random.default_rng(0)
    old, new = rng.normal(size=1000), rng.normal(0.5, 1.2, size=777)
    ordered = sorted(old)

    def tenth(value: float) -> int:
        below = sum(one <= value for one in ordered)
        return -1 if not below else 99 if value > ordered[-1] else (below - 1) // 100

    expected = naive_index([*map(tenth, old)], [*map(tenth, new)])
    assert stability_index(*grouped_numbers(old, new)) == pytest.approx(expected)
    assert stability_index(*grouped_numbers(old, rng.permutation(old))) == 0.0
    # 95 of 100 are 0: those are no deciles, and still two groups.
    zeros = np.array([0.0] * 95 + [1.0, 2.0, 3.0, 4.0, 5.0])
    moved = stability_index(*grouped_numbers(zeros, np.ones(50)))
    assert moved == pytest.approx(naive_index([0] * 95 + [1] * 5, [1] * 50))
    constant = stability_index(*grouped_numbers(np.zeros(9), np.ones(9)))
    assert constant == pytest.approx(naive_index([0] * 9, [1] * 9))

    ids, others = rng.zipf(1.3, 3000) % 500, rng.zipf(1.6, 2000) % 700
    counts = Counter(ids.tolist())
    more_frequent, group = 0, {}
    for one in sorted(counts, key=lambda one: (-counts[one], one)):
        group[one] = more_frequent * 10 // len(ids) if counts[one] >= 5 else 10
        more_frequent += counts[one]
    expected = naive_index([group[i] for i in ids], [group.get(i, 10) for i in others])
    assert stability_index(*grouped_ids(ids, others)) == pytest.approx(expected)
    again = rng.zipf(1.3, 3000) % 500  # of the same law
    assert stability_index(*grouped_ids(ids, again)) < 0.05


def test_columns_of_folders_have_no_drift_from_the_same_values_in_files(tmp_path: Path) -> None:
    rows, schema = draw_rows(500, seed=1), criteo_schema(CARDINALITIES)
    pq.write_table(rows, tmp_path / "rows.parquet")
    for value in np.unique(rows["C5"]):
        (tmp_path / "split" / f"C5={value}").mkdir(parents=True)
        own = rows.filter(pc.field("C5") == value).drop_columns(["C5"])
        pq.write_table(own, tmp_path / "split" / f"C5={value}" / "rows.parquet")
    split = Dataset(tmp_path / "split", schema, hive=True)
    assert set(column_drift(Dataset(tmp_path / "rows.parquet", schema), split).values()) == {0.0}


@pytest.mark.slow
def test_columns_that_moved_from_the_training_rows_are_warned_of(
    folder: Path, tmp_path: Path
) -> None:
    rows = pq.read_table(folder / "data")
    moved = pa.array(rows["I2"].to_numpy() + 3, pa.float32())
    few = pa.array(np.full(rows.num_rows, 1), pa.int32())
    for name, values in (("I2", moved), ("C3", few)):
        rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), values)
    pq.write_table(rows, tmp_path / "moved.parquet")
    words = [str(folder / "model"), str(tmp_path / "moved.parquet"), "--drift"]
    done = CliRunner().invoke(command, [*words, str(folder / "data"), "--json"])
    drift = json.loads(done.stdout)["drift"]
    assert {name for name, index in drift.items() if index > 0} == {"I2", "C3"}
    assert list(drift.values()) == sorted(drift.values(), reverse=True)
    assert len(drift) == 39
    # Of a target mean training rows have values of their own.
    labelled = pa.table({"I2": [1, 2], "label": [0, 1], FOLD: fold_numbers(2)})
    means = Workflow((ColumnGroup(("I2",), (TargetEncode(),)),)).fit([labelled])
    means.save(tmp_path / "workflow")
    same = CliRunner().invoke(
        command, [words[0], str(folder / "data"), "--drift", words[1], "--json"]
    )
    left = {name for name, index in json.loads(same.stdout)["drift"].items() if index > 0}
    assert left == {"C3"}


@pytest.mark.parametrize("weighted", [False, True])
def test_rows_of_every_kind_of_target_reach_the_host_unchanged(weighted: bool) -> None:
    torch.manual_seed(1)
    kinds = (Target("a"), Target("b", kind="regression"), Target("c", kind="multiclass", classes=3))
    batches = [
        tuple(
            TargetRows(
                target,
                torch.randn(rows, 3) if target.kind == "multiclass" else torch.randn(rows),
                torch.randint(2, (rows,)).float(),
                torch.rand(rows) if weighted else None,
            )
            for target in kinds
        )
        for rows in (5, 1)
    ]
    found = [one for batch in logits.on_host(iter(batches)) for one in batch]
    for one, wanted in zip(found, [one for batch in batches for one in batch], strict=True):
        assert one.target == wanted.target
        assert torch.equal(one.scores, wanted.scores)
        assert torch.equal(one.labels, wanted.labels)
        assert repr(one.weights) == repr(wanted.weights)


def test_pieces_in_any_order_give_the_same_bits(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = load_model(folder / "model")
    dataset = Dataset(folder / "data", saved.schema)
    whole = evaluate_saved(ScorerInProcess(saved, dataset, 64))
    # Three row groups each, the last one of 33 rows.
    monkeypatch.setattr(cluster_tasks, "PIECE_ROWS", 250)
    scorer = ScorerInProcess(saved, dataset, 64)
    found = evaluate_saved(scorer)
    groups = evaluate_groups(scorer, "user")
    assert found.auc == whole.auc
    assert found.log_loss == pytest.approx(whole.log_loss, rel=1e-6)

    def backwards(_, function, tasks):
        for place, task in reversed(list(enumerate(tasks))):
            yield place, pickle.loads(pickle.dumps(function))(*pickle.loads(pickle.dumps(task)))

    monkeypatch.setattr(logits, "results", backwards)
    on_cluster = ScorerOnCluster(None, str(folder / "model"), dataset, 64)
    assert evaluate_saved(on_cluster) == found
    assert evaluate_groups(on_cluster, "user").to_json() == groups.to_json()


@pytest.mark.parametrize(
    ("first", "second", "named"),
    [
        (pa.array([1, 2, None], pa.int32()), pa.array([2, 3], pa.int64()), [1, 2, None, 2, 3]),
        (pa.array(["a", "b", "a"]).dictionary_encode(), pa.array(["b", None]), [*"abab", None]),
        (pa.nulls(3), pa.array(["a", "b"], pa.large_string()), [None, None, None, "a", "b"]),
        (pa.nulls(3), pa.nulls(2), [None] * 5),
        (pa.array([0.5, np.nan, None]), pa.array([np.nan]), [0.5, "nan", None, "nan"]),
    ],
    ids=["widths", "dictionary", "nulls first", "nulls", "not numbers"],
)  # fmt: skip
def test_groups_go_over_files_of_other_types(
    folder: Path, tmp_path: Path, first: pa.Array, second: pa.Array, named: list[object]
) -> None:
    saved = load_model(folder / "model")
    for number, users in enumerate((first, second)):
        rows = draw_rows(len(users), seed=number).append_column("user", users)
        pq.write_table(rows, tmp_path / f"{number}.parquet")
    for batch_rows in (2, 3, 10):
        found = evaluate_groups(
            ScorerInProcess(saved, Dataset(tmp_path, saved.schema), batch_rows), "user"
        )
        document = json.loads(json.dumps(found.to_json(), allow_nan=False))
        counts = {row["value"]: row["rows"] for row in document["largest_groups"]}
        assert counts == {value: named.count(value) for value in named}


def test_groups_that_cannot_be_made_are_refused_before_anything_is_scored(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    monkeypatch.setattr(
        "distrain.predict.logits.scored_batches",
        Mock(side_effect=AssertionError("nothing may be scored")),
    )
    for name, columns in (
        ("types", (pa.array([1] * 4), pa.array(["ann"] * 4))),
        ("lists", (pa.array([[1]] * 4),)),
    ):
        (tmp_path / name).mkdir()
        for number, users in enumerate(columns):
            rows = draw_rows(4, seed=number).append_column("user", users)
            pq.write_table(rows, tmp_path / name / f"{number}.parquet")
    for data, group in (("types", "user"), ("lists", "user"), ("types", "nobody")):
        words = [str(folder / "model"), str(tmp_path / data), "--group", group]
        done = CliRunner().invoke(command, words)
        assert isinstance(done.exception, DataError)
        wording(done.exception)


def test_integers_that_numbers_of_another_file_cannot_tell_apart_are_refused(
    folder: Path, tmp_path: Path
) -> None:
    saved = load_model(folder / "model")
    for number, users in enumerate((pa.array([0.5, 1.5]), pa.array([2**60 + 1, 2**60]))):
        rows = draw_rows(2, seed=number).append_column("user", users)
        pq.write_table(rows, tmp_path / f"{number}.parquet")
    with pytest.raises(DataError) as caught:
        evaluate_groups(ScorerInProcess(saved, Dataset(tmp_path, saved.schema)), "user")
    assert caught.value.where == {"file": str(tmp_path / "1.parquet")}


@pytest.mark.slow
def test_importance_finds_the_columns_that_labels_follow(folder: Path, tmp_path: Path) -> None:
    schema, spec = criteo_schema(CARDINALITIES), MlpSpec(embedding_dim=2, hidden=(4,))
    model = build_model(schema, spec, seed=3)
    with torch.no_grad():  # the logit is I1 + 0.7 I2, and nothing else
        for values in model.dense.parameters():
            values.zero_()
        first, last = (p for p in model.dense.parameters() if p.dim() == 2)
        place = first.shape[1] - 13  # of I1, behind the embeddings
        first[0, place], first[0, place + 1], last[0, 0] = 1.0, 0.7, 1.0
        next(p for p in model.dense.parameters() if p.dim() == 1)[0] = 10.0
    save_model(tmp_path / "model", model, spec, schema)
    words = [str(tmp_path / "model"), str(folder / "data"), "--importance", "--seed", "3", "--json"]
    found = json.loads(CliRunner().invoke(command, words).stdout)
    loss = found["importance"]["loss"]
    assert list(loss)[:2] == ["I1", "I2"]
    assert {value for name, value in loss.items() if name not in ("I1", "I2")} == {0.0}
    assert CliRunner().invoke(command, [*words, "--workers", "2"]).exception is not None
    # One column by hand: each file is a batch.
    saved = load_model(tmp_path / "model")
    scores, labels, _ = scores_of(saved, folder)
    shuffled = []
    for file in sorted((folder / "data").iterdir()):
        rows = pq.read_table(file)
        order = torch.randperm(rows.num_rows, generator=torch.Generator().manual_seed(3)).numpy()
        shuffled.append(rows["I1"].to_numpy()[order] + 0.7 * rows["I2"].to_numpy())
    expected = roc_auc_score(labels, scores) - roc_auc_score(labels, np.concatenate(shuffled))
    assert loss["I1"] == pytest.approx(expected, abs=1e-9)
