"""Models whose categorical columns hold lists: built, scored, refused, saved."""

import dataclasses
import json
from functools import partial

import pytest
import torch
from ragged_rows import draw_rows_of_ids, ragged

from distrain.errors import DataError, SchemaError
from distrain.jobs.spec import DeepFmSpec, DlrmSpec, MlpSpec
from distrain.loader.batch import Batch
from distrain.models import build_model, load_model
from distrain.models.saved_model import save_model
from distrain.schema import ColumnSchema, Schema, Tags

IDS = (Tags.CATEGORICAL,)
SCHEMA = Schema(
    (
        ColumnSchema("tags", "int32", IDS, cardinality=20, is_list=True, is_ragged=True),
        ColumnSchema("clicked", "float32", (Tags.TARGET,)),
        ColumnSchema("user", "int32", IDS, cardinality=9),
        ColumnSchema("words", "int32", IDS, cardinality=7, is_list=True, embedding_dim=3),
        ColumnSchema("price", "float32", (Tags.CONTINUOUS,)),
    )
)
COMBINERS = {"words": "sum"}
SPECS = [
    MlpSpec(embedding_dim=4, hidden=(8,)),
    MlpSpec(embedding_dim=None, hidden=(8,)),
    DlrmSpec(embedding_dim=4, bottom=(5,), top=(6,)),
]


def batch_of(num_rows, seed=0):
    generator = torch.Generator().manual_seed(seed)
    user = torch.randint(0, 9, (1, num_rows), generator=generator, dtype=torch.int32)
    lists = {
        name: ragged(draw_rows_of_ids(num_rows, SCHEMA[name].cardinality, generator))
        for name in ("tags", "words")
    }
    price = torch.randn(1, num_rows, generator=generator)
    return Batch(user.T, price.T, None, ("user",), ("price",), lists=lists)


def pooled(model, batch, name, combiner):
    lists, table = batch.lists[name], model.embeddings.table(name)
    bag = torch.nn.EmbeddingBag.from_pretrained(table, mode=combiner, include_last_offset=True)
    return bag(lists.values, lists.offsets)


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("num_rows", [0, 1, 30])
def test_each_list_is_one_embedding_at_its_place_in_the_schema(spec, num_rows):
    model = build_model(SCHEMA, spec, seed=1, combiners=COMBINERS)
    assert [(c.name, c.combiner) for c in model.embeddings.columns] == [
        ("tags", "mean"),
        ("user", None),
        ("words", "sum"),
    ]
    batch = batch_of(num_rows)
    in_order = [
        pooled(model, batch, "tags", "mean"),
        model.embeddings.table("user")[batch["user"].long()],
        pooled(model, batch, "words", "sum"),
    ]
    dims = sorted({values.shape[1] for values in in_order})
    embedded = tuple(
        torch.stack([values for values in in_order if values.shape[1] == dim], dim=1)
        for dim in dims
    )
    logits = model(batch)
    assert logits.shape == (num_rows,)
    torch.testing.assert_close(logits, model.dense(embedded, batch.continuous))


def test_lists_do_not_change_the_other_initial_values():
    flat = SCHEMA.with_columns(
        dataclasses.replace(SCHEMA["tags"], is_list=False, is_ragged=False),
        dataclasses.replace(SCHEMA["words"], is_list=False),
    )
    one, other = (build_model(schema, MlpSpec(), seed=3) for schema in (SCHEMA, flat))
    for name in ("tags", "user", "words"):
        assert torch.equal(one.embeddings.table(name), other.embeddings.table(name))
    assert torch.equal(one.task.logit.weight, other.task.logit.weight)


def test_what_cannot_be_an_input_is_refused(wording):
    numbers = ColumnSchema("numbers", "float32", (Tags.CONTINUOUS,), is_ragged=True)
    combiners = {"tags": "sum", "user": "sum", "price": "sum", "nosuch": "sum"}
    wording.refused(
        SchemaError,
        lambda: build_model(SCHEMA.with_columns(numbers), MlpSpec(), seed=0),
        lambda: build_model(SCHEMA, MlpSpec(), seed=0, combiners=combiners),
    )


def test_a_batch_needs_the_models_lists_and_no_others(wording):
    model = build_model(SCHEMA, MlpSpec(), seed=0)
    batch = batch_of(3)
    for lists, given in (
        ({}, ""),
        ({"tags": batch.lists["tags"]}, "tags"),
        ({**batch.lists, "others": batch.lists["tags"]}, "others, tags, words"),
    ):
        wording.refused(
            SchemaError,
            partial(model, dataclasses.replace(batch, lists=lists)),
            batch=given,
            model="tags, words",
        )
    backwards = {name: batch.lists[name] for name in ("words", "tags")}
    assert torch.equal(model(dataclasses.replace(batch, lists=backwards)), model(batch))


def test_a_saved_model_keeps_its_combiners(tmp_path):
    spec = DeepFmSpec(embedding_dim=4, hidden=(8,))  # two tables for each column
    model = build_model(SCHEMA, spec, seed=5, combiners=COMBINERS)
    save_model(tmp_path / "model", model, spec, SCHEMA)
    document = json.loads((tmp_path / "model" / "model.json").read_text())
    assert document["combiners"] == {"tags": "mean", "words": "sum"}
    loaded, batch = load_model(tmp_path / "model").model, batch_of(40)
    assert loaded.embeddings.columns == model.embeddings.columns
    assert torch.equal(loaded(batch), model(batch))


@pytest.mark.parametrize(
    "combiners",
    [None, {}, {"tags": "mean"}, {"tags": "mean", "words": "max"}, {"tags": "mean", "words": []}],
)
def test_a_saved_model_with_lists_must_say_how_they_are_combined(tmp_path, combiners, wording):
    save_model(tmp_path / "model", build_model(SCHEMA, MlpSpec(), seed=0), MlpSpec(), SCHEMA)
    file = tmp_path / "model" / "model.json"
    document = json.loads(file.read_text())
    file.write_text(json.dumps({**document, "combiners": combiners}))
    wording.refused(DataError, lambda: load_model(tmp_path / "model"))
