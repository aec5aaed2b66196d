"""CrossBlock and FMBlock: gradients, sums over pairs, and how products lie."""

import pytest
import torch
from hypothesis import given, settings, strategies as st

from distrain.errors import ModelError
from distrain.models.blocks.cross import CrossBlock
from distrain.models.blocks.interaction import CompressedInteraction, FMBlock
from distrain.models.blocks.layers import LogitsTemperatureScaler
from distrain.models.shapes import Flat, Vectors

KINDS = [("v1", None), ("v2", None), ("v2", 2)]


@pytest.mark.parametrize(("version", "low_rank"), KINDS)
def test_gradients_of_crosses(version, low_rank, attached, check_gradients):
    """`tests/models/zoo/test_formulas.py` has their values."""
    block = CrossBlock(3, version, low_rank)
    attached(block, Flat(4))
    for name, parameter in block.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter)  # they begin at 0
    check_gradients(block, torch.randn(3, 4, dtype=torch.float64))


def test_crosses_that_cannot_be_made_are_refused(wording):
    wording.refused(
        ModelError,
        lambda: CrossBlock(depth=0),
        lambda: CrossBlock(version="v3"),
        lambda: CrossBlock(version="v1", low_rank=2),
        lambda: CrossBlock(low_rank=0),
        lambda: LogitsTemperatureScaler(0),
    )


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


@pytest.mark.parametrize("per_dim", [False, True])
def test_fm_gradients(per_dim, columns, attached, check_gradients, wording):
    block = FMBlock(per_dim)
    attached(block, Vectors(3, 2))
    check_gradients(block, torch.randn(2, 3, 2, dtype=torch.float64))
    wording.refused(ModelError, lambda: FMBlock(per_dim).attach(columns))


def test_layers_take_products_as_they_lie(attached):
    block, laid_out = CompressedInteraction([3, 2]), []
    attached(block, Vectors(4, 8))
    for layer in block.layers:
        layer.register_forward_pre_hook(lambda _, given: laid_out.append(given[0].is_contiguous()))
    assert block(torch.randn(5, 4, 8, dtype=torch.float64)).shape == (5, 5)
    assert laid_out == [True, True]
