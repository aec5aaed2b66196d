"""MLPBlock, its activations and normalisations, against loops over single values."""

import math

import pytest
import torch

from distrain.errors import ModelError
from distrain.models.blocks.functional import ACTIVATIONS, activation_layer
from distrain.models.blocks.layers import BatchNorm, L2Norm
from distrain.models.blocks.mlp import FASTAI_ORDER, USUAL_ORDER, MLPBlock
from distrain.models.shapes import Branches, Flat, Vectors

ORDERS = [USUAL_ORDER, FASTAI_ORDER, ("norm", "dropout", "linear", "activation")]
SELU_SCALE, SELU_ALPHA = 1.0507009873554805, 1.6732632423543772
NAIVE = {
    "relu": lambda x: max(x, 0.0),
    "gelu": lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2))),
    "tanh": math.tanh,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "selu": lambda x: SELU_SCALE * (x if x > 0 else SELU_ALPHA * (math.exp(x) - 1)),
    "leaky_relu": lambda x: x if x > 0 else 0.01 * x,
    "none": lambda x: x,
}


def apply(function, matrix):
    rows = [[function(x) for x in row] for row in matrix.tolist()]
    return torch.tensor(rows, dtype=torch.float64)


def naive_linear(layer, rows):
    return torch.stack(
        [
            torch.stack([(w * x).sum() for w in layer.weight])
            + (0 if layer.bias is None else layer.bias)
            for x in rows
        ]
    )


def naive_batch_norm(rows, eps=1e-5):
    columns = [(c - c.mean()) / (((c - c.mean()) ** 2).mean() + eps) ** 0.5 for c in rows.T]
    return torch.stack(columns, dim=1)


def naive_layer_norm(rows, eps=1e-5):
    return torch.stack([(r - r.mean()) / (((r - r.mean()) ** 2).mean() + eps) ** 0.5 for r in rows])


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("inplace", [False, True])
def test_activation_equals_formula(name, inplace):
    x = torch.linspace(-3, 3, 12, dtype=torch.float64).reshape(3, 4)
    expected = apply(NAIVE[name], x)
    torch.testing.assert_close(activation_layer(name, inplace=inplace)(x), expected)


@pytest.mark.parametrize("normalisation", ["none", "batch_norm", "layer_norm"])
@pytest.mark.parametrize("order", ORDERS)
def test_mlp_equals_loop(normalisation, order, features, columns, attached, check_gradients):
    block = MLPBlock([5, 3], "tanh", normalisation=normalisation, order=order)
    assert attached(block, columns) == Flat(3)
    value = features(6)
    x = torch.cat([group.flatten(1) for group in value.embedded] + [value.continuous], dim=1)
    steps = {
        "norm": {
            "none": lambda x: x,
            "batch_norm": naive_batch_norm,
            "layer_norm": naive_layer_norm,
        }[normalisation],
        "activation": lambda x: apply(NAIVE["tanh"], x),
        "dropout": lambda x: x,
    }
    for linear in (layer for layer in block.layers if isinstance(layer, torch.nn.Linear)):
        for word in order:
            x = naive_linear(linear, x) if word == "linear" else steps[word](x)
    torch.testing.assert_close(block(value), x)
    block = MLPBlock([2, 2], normalisation=normalisation, order=order)
    attached(block, Flat(3))
    check_gradients(block, torch.randn(4, 3, dtype=torch.float64))


@pytest.mark.parametrize(
    "order",
    [
        ("norm", "activation", "linear", "dropout"),
        ("activation", "dropout", "norm", "linear"),
        ("linear", "dropout", "activation", "norm"),
    ],
)
def test_no_order_overwrites_what_others_read(order, attached):
    block = MLPBlock([4, 4], dropout=0.5, order=order)
    attached(block, Flat(4))
    x = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    kept = x.detach().clone()
    given = x * 1
    (block(given).sum() + given.square().sum()).backward()
    assert torch.equal(given, kept)


def test_last_layer_without_activation(attached):
    block = MLPBlock([5, 1], normalisation="batch_norm", dropout=0.5, no_activation_last_layer=True)
    attached(block, Flat(4))
    kinds = [type(layer).__name__ for layer in block.layers]
    assert kinds == ["Linear", "BatchNorm", "ReLU", "Dropout", "Linear"]
    assert (block(torch.randn(40, 4, dtype=torch.float64)) < 0).any()


def test_bias_and_dropout_of_each_layer(attached):
    block = MLPBlock([5, 3], bias=False, dropout=[0.0, 0.25])
    attached(block, Flat(4))
    assert [name for name, _ in block.named_parameters()] == ["layers.0.weight", "layers.2.weight"]
    assert [layer.p for layer in block.layers if isinstance(layer, torch.nn.Dropout)] == [0.25]
    x = torch.ones(2000, 4, dtype=torch.float64)
    torch.manual_seed(1)
    dropped = (block(x) == 0).double().mean(0) - (block.eval()(x) == 0).double().mean(0)
    alive = block(x)[0] != 0
    assert alive.any()
    assert torch.all((dropped[alive] - 0.25).abs() < 0.05)


def test_mlp_takes_a_dictionary(attached):
    block = MLPBlock([3])
    given = {
        "a": torch.randn(5, 2, dtype=torch.float64),
        "b": torch.randn(5, 2, 2, dtype=torch.float64),
    }
    assert attached(block, Branches({"a": Flat(2), "b": Vectors(2, 2)})) == Flat(3)
    side_by_side = torch.cat([given["a"], given["b"].flatten(1)], dim=1)
    torch.testing.assert_close(block(given), block.layers(side_by_side))


def test_one_row_is_normalised_as_in_evaluation():
    norm = BatchNorm(3).double()
    norm(torch.randn(50, 3, dtype=torch.float64) * 3 + 1)
    row = torch.randn(1, 3, dtype=torch.float64)
    in_training = norm(row)
    torch.testing.assert_close(in_training, norm.eval()(row))
    expected = (row - norm.running_mean) / (norm.running_var + norm.eps).sqrt()
    torch.testing.assert_close(in_training, expected)


def test_batch_norm_is_torchs_for_more_rows():
    ours, torchs = BatchNorm(3), torch.nn.BatchNorm1d(3)
    x = torch.randn(7, 3)
    assert torch.equal(ours(x), torchs(x))
    assert torch.equal(ours.running_var, torchs.running_var)
    assert torch.equal(ours.eval()(x), torchs.eval()(x))


def test_l2_norm(attached, check_gradients):
    block = L2Norm()
    assert attached(block, Vectors(2, 3)) == Vectors(2, 3)
    x = torch.randn(4, 2, 3, dtype=torch.float64)
    expected = [[v / (v @ v) ** 0.5 for v in row] for row in x]
    torch.testing.assert_close(block(x), torch.stack([torch.stack(row) for row in expected]))
    check_gradients(block, x)
    assert attached(L2Norm(), Flat(3)) == Flat(3)
    assert torch.equal(block(torch.zeros(1, 3)), torch.zeros(1, 3))
    zeros = torch.zeros(1, 3, requires_grad=True)
    block(zeros).sum().backward()
    assert zeros.grad.isfinite().all()


def test_perceptrons_that_cannot_be_made_are_refused(wording):
    wording.refused(
        ModelError,
        lambda: MLPBlock([3, 0]),
        lambda: MLPBlock([3], "swish"),
        lambda: MLPBlock([3], normalisation="rms"),
        lambda: MLPBlock([3], dropout=1.0),
        lambda: MLPBlock([3], dropout=[0.1, 0.2]),
        lambda: MLPBlock([3], order=("linear", "norm")),
        lambda: MLPBlock([3]).attach(Flat(0, "tower")),
    )
