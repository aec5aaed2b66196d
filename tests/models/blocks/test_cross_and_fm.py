"""CrossBlock, FMBlock and LogitsTemperatureScaler against loops written from the papers."""

import pytest
import torch
from hypothesis import given, settings, strategies as st

from distrain.errors import ModelError
from distrain.models.blocks.cross import CrossBlock
from distrain.models.blocks.interaction import (
    CompressedInteraction,
    DotProductInteraction,
    FMBlock,
)
from distrain.models.blocks.layers import LogitsTemperatureScaler
from distrain.models.shapes import Features, Flat, Vectors

KINDS = [("v1", None), ("v2", None), ("v2", 2)]


def naive_cross(block, rows):
    """x_{l+1} = x_0 (x_l . w) + b + x_l; or x_0 * (W x_l + b) + x_l, value by value."""
    result = []
    for x0 in rows:
        x = x0
        for layer in block.layers:
            d = len(x0)
            if block.version == "v1":
                dot = sum(layer.weight.weight[0, k] * x[k] for k in range(d))
                x = torch.stack([x0[i] * dot + layer.bias[i] + x[i] for i in range(d)])
                continue
            weight = layer.up.weight
            if layer.down is not None:
                weight = weight @ layer.down.weight
            x = torch.stack(
                [
                    x0[i] * (sum(weight[i, k] * x[k] for k in range(d)) + layer.up.bias[i]) + x[i]
                    for i in range(d)
                ]
            )
        result.append(x)
    return torch.stack(result)


def with_biases(block):
    """Biases begin at 0, where a mistake in them would not show."""
    with torch.no_grad():
        for name, parameter in block.named_parameters():
            if name.endswith("bias"):
                parameter.normal_()


@pytest.mark.parametrize(("version", "low_rank"), KINDS)
@pytest.mark.parametrize("depth", [1, 3])
def test_cross_equals_loop(version, low_rank, depth, attached):
    block = CrossBlock(depth, version, low_rank)
    assert attached(block, Flat(5)) == Flat(5)
    assert all(not p.any() for name, p in block.named_parameters() if name.endswith("bias"))
    with_biases(block)
    x = torch.randn(4, 5, dtype=torch.float64)
    torch.testing.assert_close(block(x), naive_cross(block, x))


@pytest.mark.parametrize(("version", "low_rank"), KINDS)
def test_cross_gradients(version, low_rank, attached, check_gradients):
    block = CrossBlock(2, version, low_rank)
    attached(block, Flat(4))
    with_biases(block)
    check_gradients(block, torch.randn(3, 4, dtype=torch.float64))


@pytest.mark.parametrize(("version", "low_rank"), KINDS)
def test_cross_takes_columns(version, low_rank, columns, features, attached):
    block = CrossBlock(2, version, low_rank)
    assert attached(block, columns) == Flat(columns.width)
    assert block(features(3)).shape == (3, columns.width)
    assert block(features(0)).shape == (0, columns.width)


@settings(deadline=None, max_examples=20)
@given(st.sampled_from(KINDS), st.integers(1, 4), st.integers(1, 6), st.integers(0, 5))
def test_cross_of_zero_weights_is_its_input(kind, depth, width, rows):
    block = CrossBlock(depth, *kind)
    block.attach(Flat(width))
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.zero_()
    x = torch.randn(rows, width)
    assert torch.equal(block(x), x)


@settings(deadline=None, max_examples=20)
@given(st.permutations(range(5)))
def test_columns_may_change_places(order):
    """Permuted inputs through permuted weights give permuted outputs (v2, full)."""
    torch.manual_seed(0)
    block = CrossBlock(2).double()
    block.attach(Flat(5))
    block.double()
    with_biases(block)
    x = torch.randn(3, 5, dtype=torch.float64)
    expected = block(x)[:, order]
    with torch.no_grad():
        for layer in block.layers:
            layer.up.weight.copy_(layer.up.weight[order][:, order].clone())
            layer.up.bias.copy_(layer.up.bias[order].clone())
    torch.testing.assert_close(block(x[:, order]), expected)


def test_full_rank_low_rank_is_full(attached):
    """U V = W gives the same outputs."""
    full, low = CrossBlock(1), CrossBlock(1, low_rank=2)
    attached(full, Flat(4))
    attached(low, Flat(4))
    with torch.no_grad():
        full.layers[0].up.weight.copy_(low.layers[0].up.weight @ low.layers[0].down.weight)
    x = torch.randn(3, 4, dtype=torch.float64)
    torch.testing.assert_close(full(x), low(x))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"depth": 0}, "at least 1 layer, not 0"),
        ({"version": "v3"}, "no CrossBlock 'v3'"),
        ({"version": "v1", "low_rank": 2}, "CrossBlock v1 has no rank 2"),
        ({"low_rank": 0}, "has no rank 0"),
    ],
)
def test_wrong_crosses(arguments, message):
    with pytest.raises(ModelError, match=message):
        CrossBlock(**arguments)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 4), st.integers(1, 7), st.integers(1, 5), st.integers(0, 99))
def test_fm_equals_sum_over_pairs(rows, count, dim, seed):
    vectors = torch.randn(
        rows, count, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )
    pooled = torch.zeros(rows, dim, dtype=torch.float64)
    for i in range(count):
        for j in range(i):
            pooled += vectors[:, i] * vectors[:, j]
    block, per_dim = FMBlock(), FMBlock(per_dim=True)
    assert block.attach(Vectors(count, dim)) == Flat(1)
    assert per_dim.attach(Vectors(count, dim)) == Flat(dim)
    torch.testing.assert_close(per_dim(vectors), pooled)
    torch.testing.assert_close(block(vectors), pooled.sum(1, keepdim=True))


@settings(deadline=None, max_examples=20)
@given(st.permutations(range(6)))
def test_fm_is_the_sum_of_dot_products_in_any_order(order):
    vectors = torch.randn(3, 6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    fm, dots = FMBlock(), DotProductInteraction()
    fm.attach(Vectors(6, 4))
    dots.attach(Vectors(6, 4))
    torch.testing.assert_close(fm(vectors[:, order]), dots(vectors).sum(1, keepdim=True))


@pytest.mark.parametrize("per_dim", [False, True])
def test_fm_gradients(per_dim, columns, attached, check_gradients):
    block = FMBlock(per_dim)
    attached(block, Vectors(3, 2))
    check_gradients(block, torch.randn(2, 3, 2, dtype=torch.float64))
    with pytest.raises(ModelError, match="FMBlock takes vectors of one width"):
        FMBlock(per_dim).attach(columns)


def test_temperature(attached, check_gradients):
    block = LogitsTemperatureScaler(2.0)
    assert attached(block, Flat(3)) == Flat(3)
    logits = torch.randn(5, 3, dtype=torch.float64)
    torch.testing.assert_close(block(logits), torch.tensor([[z / 2 for z in r] for r in logits]))
    check_gradients(block, logits)
    with pytest.raises(ModelError, match="above 0, not 0"):
        LogitsTemperatureScaler(0)


def test_temperature_of_other_values(columns, features, attached):
    block = LogitsTemperatureScaler(0.5)
    assert attached(block, columns) == Flat(columns.width)
    found = block(Features((torch.ones(2, 3, 1),), torch.ones(2, 0)))
    assert torch.equal(found, torch.full((2, 3), 2.0))


def test_layers_take_products_as_they_lie(attached):
    block, laid_out = CompressedInteraction([3, 2]), []
    attached(block, Vectors(4, 8))
    for layer in block.layers:
        layer.register_forward_pre_hook(lambda _, given: laid_out.append(given[0].is_contiguous()))
    assert block(torch.randn(5, 4, 8, dtype=torch.float64)).shape == (5, 5)
    assert laid_out == [True, True]
