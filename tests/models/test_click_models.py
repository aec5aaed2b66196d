"""Whole models: logits against naive formulas, any sizes, no rows, and learning."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch.nn.functional import binary_cross_entropy_with_logits

from distrain.embeddings import SparseOptimizer
from distrain.errors import SchemaError
from distrain.models import build_model
from distrain.spec import DlrmSpec, MlpSpec

TORCH_OPTIMIZERS = {
    "sgd": (torch.optim.SGD, 1.0),
    "adagrad": (torch.optim.Adagrad, 0.05),
    "adam": (torch.optim.Adam, 0.01),
}


def relu_layers(sequential, x):
    for layer in sequential:
        if isinstance(layer, torch.nn.Linear):
            x = x @ layer.weight.T + layer.bias
        else:
            x = x.clamp(min=0)
    return x


def vectors_of(model, batch):
    """Each column's embeddings, `[rows, dim]`, in schema order."""
    names = model.embeddings.names
    return [model.embeddings.table(name)[batch[name].long()] for name in names]


def naive_mlp(model, batch):
    dims = sorted({c.dim for c in model.embeddings.columns})
    columns = list(zip(model.embeddings.columns, vectors_of(model, batch), strict=True))
    by_dim = [values for dim in dims for column, values in columns if column.dim == dim]
    x = torch.cat([*by_dim, batch.continuous], dim=1)
    x = relu_layers(model.dense.body.layers, x)
    return (x @ model.task.logit.weight.T + model.task.logit.bias)[:, 0]


def naive_dlrm(model, batch):
    vectors = vectors_of(model, batch)
    deep = []
    body = model.dense.body
    if batch.continuous_names:
        deep = [
            relu_layers(
                [*body.bottom.layers, *([body.projection] if body.projection else [])],
                batch.continuous,
            )
        ]
    vectors = deep + vectors
    pairs = [(vectors[i] * vectors[j]).sum(1) for i in range(len(vectors)) for j in range(i)]
    x = relu_layers(body.top.layers, torch.cat([*deep, torch.stack(pairs, dim=1)], dim=1))
    return (x @ model.task.logit.weight.T + model.task.logit.bias)[:, 0]


@settings(deadline=None, max_examples=25)
@given(
    dim=st.one_of(st.none(), st.integers(1, 20)),
    num_categorical=st.integers(0, 4),
    num_continuous=st.integers(0, 3),
    hidden=st.lists(st.integers(1, 9), max_size=3),
    rows=st.integers(0, 6),
)
def test_mlp_equals_formula(schema_and_batch, dim, num_categorical, num_continuous, hidden, rows):
    if num_categorical + num_continuous == 0:
        num_continuous = 1
    schema, batch = schema_and_batch(num_categorical, num_continuous, rows)
    model = build_model(schema, MlpSpec(embedding_dim=dim, hidden=tuple(hidden)), seed=1)
    logits = model(batch)
    assert logits.shape == (rows,)
    torch.testing.assert_close(logits, naive_mlp(model, batch))


@settings(deadline=None, max_examples=25)
@given(
    dim=st.integers(1, 20),
    num_categorical=st.integers(2, 5),
    num_continuous=st.integers(0, 3),
    bottom=st.lists(st.integers(1, 9), max_size=2),
    top=st.lists(st.integers(1, 9), max_size=3),
    rows=st.integers(0, 6),
)
def test_dlrm_equals_formula(
    schema_and_batch, dim, num_categorical, num_continuous, bottom, top, rows
):
    schema, batch = schema_and_batch(num_categorical, num_continuous, rows)
    spec = DlrmSpec(embedding_dim=dim, bottom=tuple(bottom), top=tuple(top))
    model = build_model(schema, spec, seed=1)
    logits = model(batch)
    assert logits.shape == (rows,)
    torch.testing.assert_close(logits, naive_dlrm(model, batch))


@pytest.mark.parametrize("spec", [MlpSpec(), MlpSpec(embedding_dim=None), DlrmSpec()], ids=str)
def test_a_step_without_rows_gives_gradients_of_zero(schema_and_batch, spec):
    schema, batch = schema_and_batch(3, 2, 0)
    model = build_model(schema, spec, seed=0)
    tables = model.embeddings
    route = tables.route(batch.categorical)
    embedded = tables.expand(route, tables.fetch(route))
    losses = binary_cross_entropy_with_logits(
        model.dense(embedded, batch.continuous), batch.label, reduction="sum"
    )
    losses.backward()
    assert all((p.grad == 0).all() for p in model.dense.parameters())
    assert all(e.grad is not None and e.grad.shape == e.shape for e in embedded)
    before = [w.clone() for w in model.embeddings.weights]
    sums = tables.collect(route, [leaf.grad for leaf in embedded])
    SparseOptimizer(tables, "adam").apply(tables.exchange(route, sums), 0.1)
    assert all(torch.equal(*p) for p in zip(before, model.embeddings.weights, strict=True))


@pytest.mark.parametrize("kind", TORCH_OPTIMIZERS)
@pytest.mark.parametrize(
    "spec",
    [MlpSpec(embedding_dim=None, hidden=(64,)), DlrmSpec(bottom=(16,), top=(64,))],
    ids=["mlp", "dlrm"],
)
def test_random_labels_can_be_learnt_by_heart(schema_and_batch, spec, kind):
    schema, batch = schema_and_batch(6, 4, 256)
    model = build_model(schema, spec, seed=0)
    make, lr = TORCH_OPTIMIZERS[kind]
    dense_optimizer = make(model.dense.parameters(), lr=lr)
    optimizer = SparseOptimizer(model.embeddings, kind)
    tables = [weight.clone() for weight in model.embeddings.weights]
    losses = []
    for _ in range(150):
        route = model.embeddings.route(batch.categorical)
        embedded = model.embeddings.expand(route, model.embeddings.fetch(route))
        logits = model.dense(embedded, batch.continuous)
        loss = binary_cross_entropy_with_logits(logits, batch.label)
        dense_optimizer.zero_grad()
        loss.backward()
        dense_optimizer.step()
        sums = model.embeddings.collect(route, [leaf.grad for leaf in embedded])
        optimizer.apply(model.embeddings.exchange(route, sums), lr)
        losses.append(loss.item())
    assert losses[0] == pytest.approx(0.69, abs=0.1)
    assert losses[-1] < 0.6 * losses[0]
    assert not any(torch.equal(*p) for p in zip(tables, model.embeddings.weights, strict=True))


def test_columns_in_another_order_are_refused(schema_and_batch):
    schema, batch = schema_and_batch(3, 2, 4)
    model = build_model(schema, MlpSpec(), seed=0)
    with pytest.raises(SchemaError, match="categorical columns are not the model's") as caught:
        model(dataclasses.replace(batch, categorical_names=("c1", "c0", "c2")))
    assert caught.value.where == {"batch": "c1, c0, c2", "model": "c0, c1, c2"}
    with pytest.raises(SchemaError, match="continuous columns are not the model's"):
        model(dataclasses.replace(batch, continuous_names=("x0",)))
