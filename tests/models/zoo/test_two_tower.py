"""Two towers against loops over rows, and their files, and what they refuse."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from distrain.errors import ModelError
from distrain.jobs.spec import MlpSpec
from distrain.jobs.spec.models.kinds import TwoTowerSpec
from distrain.loader.batch import Batch, Ragged
from distrain.models import build_model
from distrain.models.zoo.two_tower import tower_vectors
from distrain.schema import ColumnSchema, Schema, Tags

CATEGORICAL, USER, ITEM = Tags.CATEGORICAL, Tags.USER, Tags.ITEM


def shop_schema():
    """Both sides have ids, numbers and lists; `hour` is of neither."""
    return Schema(
        (
            ColumnSchema("bought", "float32", (Tags.TARGET,)),
            ColumnSchema("user", "int32", (CATEGORICAL, Tags.USER_ID), 9, embedding_dim=3),
            ColumnSchema("hour", "int32", (CATEGORICAL,), 5),
            ColumnSchema("item", "int32", (CATEGORICAL, ITEM, Tags.ITEM_ID), 6, embedding_dim=5),
            ColumnSchema("age", "float32", (Tags.CONTINUOUS, USER)),
            ColumnSchema("price", "float32", (Tags.CONTINUOUS, ITEM)),
            ColumnSchema("seen", "int32", (CATEGORICAL, USER), 6, embedding_dim=2, is_list=True),
            ColumnSchema("clock", "float32", (Tags.CONTINUOUS,)),
        )
    )


def shop_batch(rows=7):
    draw = torch.Generator().manual_seed(1)
    ids = [torch.randint(n, (rows,), generator=draw, dtype=torch.int32) for n in (9, 5, 6)]
    lengths = torch.arange(rows) % 3
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)]).int()
    values = torch.randint(6, (int(lengths.sum()),), generator=draw, dtype=torch.int32)
    return Batch(
        torch.stack(ids, 1),
        torch.randn(rows, 3, generator=draw),
        (torch.arange(rows) % 2).float(),
        ("user", "hour", "item"),
        ("age", "price", "clock"),
        lists={"seen": Ragged(values, offsets)},
    )


def build(**options):
    spec = TwoTowerSpec(embedding_dim=None, tower=(6, 4), **options)
    return build_model(shop_schema(), spec, seed=3, combiners={"seen": "sum"})


def naive_vector(model, side, inputs):
    """One row through one tower, number by number."""
    layers = [m for m in model.dense.body[side].modules() if isinstance(m, torch.nn.Linear)]
    x = inputs
    for number, layer in enumerate(layers):
        weight, bias = layer.weight.detach().numpy(), layer.bias.detach().numpy()
        x = [
            sum(w * v for w, v in zip(weight[o], x, strict=True)) + bias[o]
            for o in range(len(bias))
        ]
        if number < len(layers) - 1:
            x = [max(0.0, v) for v in x]
    return np.array(x)


def naive_vectors(model, batch, normalize=False):
    table = {n: model.embeddings.table(n).detach().numpy() for n in ("user", "item", "seen")}
    users, items = [], []
    for row in range(batch.num_rows):
        seen = np.zeros(2)
        for place in range(batch.lists["seen"].offsets[row], batch.lists["seen"].offsets[row + 1]):
            seen += table["seen"][batch.lists["seen"].values[place]]
        # Narrow embeddings come first, then numbers.
        of_user = [*seen, *table["user"][batch["user"][row]], float(batch["age"][row])]
        of_item = [*table["item"][batch["item"][row]], float(batch["price"][row])]
        users.append(naive_vector(model, "user", of_user))
        items.append(naive_vector(model, "item", of_item))
    if normalize:
        users, items = ([v / np.linalg.norm(v) for v in side] for side in (users, items))
    return users, items


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("task", ["binary", "retrieval"])
def test_logits_are_dot_products_of_naive_vectors(task, normalize):
    model, batch = build(task=task, normalize=normalize, temperature=0.7), shop_batch()
    if task == "binary":
        torch.nn.init.constant_(model.task.bias, 0.3)
    users, items = naive_vectors(model, batch, normalize)
    with torch.no_grad():
        logits, vectors = model(batch), tower_vectors(model, batch)
    bias = 0.3 if task == "binary" else 0.0
    expected = [np.dot(u, v) / 0.7 + bias for u, v in zip(users, items, strict=True)]
    np.testing.assert_allclose(logits, expected, atol=1e-5)
    np.testing.assert_allclose(vectors["user"], users, atol=1e-5)
    np.testing.assert_allclose(vectors["item"], items, atol=1e-5)


def test_rows_without_end_and_without_beginning():
    for task in ("binary", "retrieval"):
        model, batch = build(task=task), shop_batch()
        empty = replace(batch.part(slice(0, 0)))
        assert model(empty).shape == (0,)
        assert model.task.loss(model.output(empty), empty).item() == 0.0


def test_what_the_tags_do_not_tell_is_asked_for(wording):
    schema = shop_schema()
    no_id = schema.with_columns(replace(schema["item"], tags=(CATEGORICAL, ITEM)))
    assert build_model(no_id, TwoTowerSpec(), seed=0)
    two_ids = schema.with_columns(replace(schema["hour"], tags=(CATEGORICAL, Tags.ITEM_ID)))
    as_list = schema.with_columns(replace(schema["item"], is_list=True))
    retrieval = TwoTowerSpec(task="retrieval")
    wording.refused(
        ModelError,
        lambda: build_model(schema.remove_by_tag(USER, Tags.USER_ID), TwoTowerSpec(), seed=0),
        lambda: build_model(no_id, retrieval, seed=0),
        lambda: build_model(two_ids, retrieval, seed=0),
        lambda: build_model(as_list, retrieval, seed=0),
        lambda: tower_vectors(build_model(schema, MlpSpec(), seed=0), shop_batch()),
    )
