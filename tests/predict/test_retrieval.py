"""The best of all items for users, against a loop over pairs; and the files of items' vectors."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from click.testing import CliRunner

from distrain.cli.models.evaluate import command as evaluate
from distrain.cli.models.export import command as export
from distrain.errors import DataError, InputError
from distrain.jobs.spec.models.kinds import TwoTowerSpec
from distrain.loader import Dataset, Loader
from distrain.models import build_model, load_model
from distrain.models.saved_model import save_model
from distrain.models.zoo.two_tower import tower_vectors
from distrain.predict import retrieval
from distrain.predict.logits import ScorerInProcess
from distrain.predict.retrieval import evaluate_retrieval, write_towers
from distrain.prep.vocabulary import Vocabulary
from distrain.schema import ColumnSchema, Schema, Tags
from distrain.train.data.vocabularies import vocabularies_in

ROWS, ITEMS, K = 60, 17, 4
SCHEMA = Schema(
    (
        ColumnSchema("bought", "float32", (Tags.TARGET,)),
        ColumnSchema("user", "int32", (Tags.CATEGORICAL, Tags.USER_ID), 9),
        ColumnSchema("item", "int32", (Tags.CATEGORICAL, Tags.ITEM_ID), 20),
        ColumnSchema("history", "int32", (Tags.CATEGORICAL, Tags.USER), 20, is_list=True),
    )
)


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """Rows of users, some of an item that is not in the table of items, and a model."""
    root = tmp_path_factory.mktemp("shop")
    draw = np.random.default_rng(1)
    history = [draw.integers(0, 20, size).astype(np.int32) for size in draw.integers(0, 6, ROWS)]
    rows = {
        "bought": (draw.random(ROWS) < 0.8).astype(np.float32),
        "user": draw.integers(0, 9, ROWS).astype(np.int32),
        "item": draw.integers(0, 20, ROWS).astype(np.int32),
    }
    items = draw.permutation(ITEMS).astype(np.int32) + 1
    nobody = {"user": np.zeros(ITEMS, np.int32), "item": items}
    for name, table, lists in (("rows", rows, history), ("items", nobody, [[0]] * ITEMS)):
        (root / name).mkdir()
        full = pa.table(table | {"history": pa.array(list(lists), pa.list_(pa.int32()))})
        pq.write_table(full, root / name / "a.parquet", row_group_size=25)
    spec = TwoTowerSpec(embedding_dim=4, tower=(4,), task="retrieval")
    model = build_model(SCHEMA, spec, seed=2)
    save_model(root / "model", model, spec, SCHEMA)
    return root, rows, history, sorted(items.tolist())


def naive(root, rows, history, items, hides):
    """Recall, NDCG, MRR and coverage, user by user."""
    saved = load_model(root / "model")
    vectors = {}
    for ids, found in retrieval.item_vectors(
        saved, Dataset(root / "items", SCHEMA, need_label=False), torch.device("cpu")
    ):
        vectors |= dict(zip(ids.tolist(), found, strict=True))
    users = np.concatenate(
        [
            found
            for _, found in retrieval._vectors(
                saved, Dataset(root / "rows", SCHEMA), torch.device("cpu"), "user", None
            )
        ]
    )
    sums, shown, count = np.zeros(3), set(), 0
    for row in np.flatnonzero(rows["bought"] == 1):
        left = [i for i in items if not hides or i not in history[row]]
        best = sorted(left, key=lambda i: (-float(users[row] @ vectors[i]), i))[:K]
        shown |= set(best)
        count += 1
        if rows["item"][row] in best:
            place = best.index(rows["item"][row])
            sums += [1, 1 / np.log2(place + 2), 1 / (place + 1)]
    return [*(sums / count), len(shown) / len(items)]


@pytest.mark.parametrize("hides", [False, True])
def test_equals_a_loop_over_pairs(shop, hides, monkeypatch):
    monkeypatch.setattr(retrieval, "SCORES_AT_ONCE", 50)
    root, rows, history, all_items = shop
    scorer = ScorerInProcess(load_model(root / "model"), Dataset(root / "rows", SCHEMA), 16)
    items = Dataset(root / "items", SCHEMA, need_label=False)
    found = evaluate_retrieval(scorer, items, K, ["history"] if hides else [])
    expected = naive(root, rows, history, all_items, hides)
    assert [found.recall, found.ndcg, found.mrr, found.coverage] == pytest.approx(expected)
    assert 0 < found.recall < 1


@pytest.mark.slow
def test_the_commands(shop, tmp_path):
    root, *_, items = shop
    arguments = [str(root / "model"), str(root / "rows"), "--items", str(root / "items"), "--json"]
    found = CliRunner().invoke(evaluate, [*arguments, "--top", "4", "--seen", "history"])
    assert found.exit_code == 0, found.output
    told = json.loads(found.stdout)
    spread = CliRunner().invoke(
        evaluate, [*arguments, "--top", "4", "--seen", "history", "--workers", "2"]
    )
    assert json.loads(spread.stdout) == pytest.approx(told)
    assert told["k"] == 4
    assert 0 < told["recall"] < 1
    out = tmp_path / "exported"
    done = CliRunner().invoke(
        export, [str(root / "model"), str(out), "--items", str(root / "items")]
    )
    assert done.exit_code == 0, done.output
    written = pq.read_table(out / "items.parquet")
    assert sorted(written["item"].to_pylist()) == items
    assert written.schema.field("vector").type == pa.list_(pa.float32(), 4)
    saved, rows = load_model(root / "model"), Dataset(root / "rows", SCHEMA)
    query = torch.export.load(out / "query.pt2").module()
    with Loader(rows, batch_size=ROWS, lanes=1, shuffle="none") as loader, torch.no_grad():
        (batch,) = loader
        column = batch.lists["history"]
        lists = (column.values.long(), column.lengths.long())
        found = query(batch.categorical.long(), batch.continuous, *lists)
        assert torch.equal(found, tower_vectors(saved.model, batch)["user"])


def test_the_vectors_of_items_are_written_in_the_order_of_their_ids(shop, tmp_path, monkeypatch):
    monkeypatch.setattr(retrieval, "write_query", lambda *_: None)
    root, *_, ids = shop
    saved, items = load_model(root / "model"), Dataset(root / "items", SCHEMA, need_label=False)
    write_towers(tmp_path, saved, "torch", items)
    table = pq.read_table(tmp_path / "items.parquet")
    assert table["item"].to_pylist() == ids
    ((given, vectors),) = retrieval.item_vectors(saved, items, torch.device("cpu"))
    of = dict(zip(given.tolist(), vectors, strict=True))
    written = np.stack(table["vector"].to_numpy())
    np.testing.assert_array_equal(written, np.stack([of[item] for item in ids]))


def test_what_cannot_be_ranked_is_refused(shop, tmp_path, wording):
    root = shop[0]
    scorer = ScorerInProcess(load_model(root / "model"), Dataset(root / "rows", SCHEMA), 16)
    items = Dataset(root / "items", SCHEMA, need_label=False)
    twice = Dataset([root / "items", root / "rows"], SCHEMA, need_label=False)
    other = SCHEMA.with_columns(replace(SCHEMA["history"], cardinality=21))
    of_others = ScorerInProcess(scorer.saved, Dataset(root / "rows", other), 16)
    wording.refused(
        InputError,
        lambda: evaluate_retrieval(scorer, items, K, ["user"]),
        lambda: evaluate_retrieval(of_others, items, K, ["history"]),
    )
    wording.refused(
        DataError,
        lambda: evaluate_retrieval(scorer, twice, K),
        lambda: write_towers(tmp_path, scorer.saved, "torch", twice),
    )
    words = [str(root / "model"), str(root / "rows"), "--seen", "history"]
    assert CliRunner().invoke(evaluate, words).exit_code == 2


def test_unknown_items_of_one_id_are_left_out(shop, tmp_path):
    root, *_, known = shop
    unknown = pa.table(
        {
            "user": np.zeros(2, np.int32),
            "item": np.full(2, 2, np.int32),
            "history": pa.array([[0]] * 2, pa.list_(pa.int32())),
        }
    )
    pq.write_table(unknown, tmp_path / "unknown.parquet")
    items = Dataset([root / "items", tmp_path / "unknown.parquet"], SCHEMA, need_label=False)
    saved = load_model(root / "model")
    with pytest.raises(DataError):
        write_towers(tmp_path, saved, "torch", items)  # no workflow says that it is not an item
    words = pa.array([f"w{number}" for number in range(15)])
    (tmp_path / "categories").mkdir()
    Vocabulary(words, pa.array([1] * 15), 3).save(tmp_path / "categories", "item")
    held = vocabularies_in(str(tmp_path), SCHEMA)
    for vocabularies, first in ((held, 5), (held.kept_in("/gone"), 3)):
        saved = replace(saved, about=vocabularies.to_json())
        write_towers(tmp_path, saved, "torch", items)
        ids = pq.read_table(tmp_path / "items.parquet")["item"].to_pylist()
        assert ids == [item for item in known if item >= first]
