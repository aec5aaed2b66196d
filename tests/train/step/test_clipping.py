"""The norm by which gradients are clipped, and the factor that follows from it."""

import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn

from distrain.train.step.clipping import clip_scale, rows_sq_norm, total_sq_norm


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 50), min_size=1, max_size=4),
    max_norm=st.floats(1e-3, 1e3),
    factor=st.floats(1e-3, 1e3),
)
def test_the_scale_is_that_of_torchs_clipping(sizes, max_norm, factor):
    generator = torch.Generator().manual_seed(len(sizes))
    grads = [factor * torch.randn(n, generator=generator, dtype=torch.float64) for n in sizes]
    parameters = [nn.Parameter(torch.zeros_like(grad)) for grad in grads]
    for parameter, grad in zip(parameters, grads, strict=True):
        parameter.grad = grad.clone()
    nn.utils.clip_grad_norm_(parameters, max_norm)
    scale = clip_scale(total_sq_norm(grads), max_norm)
    for parameter, grad in zip(parameters, grads, strict=True):
        torch.testing.assert_close(parameter.grad, grad * scale, rtol=1e-9, atol=0)


def tables_of(shapes, dtype, seed):
    """Tables whose rows are of very different lengths."""
    generator = torch.Generator().manual_seed(seed)
    for rows, dim in shapes:
        lengths = torch.rand(rows, 1, generator=generator, dtype=dtype).mul(30).sub(20).exp2()
        yield torch.randn(rows, dim, generator=generator, dtype=dtype) * lengths


@settings(max_examples=40, deadline=None)
@given(
    shapes=st.lists(st.tuples(st.integers(0, 70), st.integers(1, 40)), min_size=1, max_size=3),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    padding=st.integers(0, 9),
    seed=st.integers(0, 99),
)
def test_the_norm_of_rows_knows_neither_their_order_nor_padding(shapes, dtype, padding, seed):
    tables = list(tables_of(shapes, dtype, seed))
    norm = rows_sq_norm(tables)
    others = []
    for table in tables:
        padded = torch.cat([table, table.new_zeros(padding, table.shape[1])])
        others.append(padded[torch.randperm(len(padded))])
    assert torch.equal(rows_sq_norm(others[::-1]), norm)
    exact = math.fsum(value * value for table in tables for value in table.flatten().tolist())
    assert norm.dtype == dtype
    assert float(norm) == pytest.approx(exact, rel=16 * torch.finfo(dtype).eps, abs=0)


def test_many_rows_lose_no_digits():
    (table,) = tables_of([(300_000, 16)], torch.float32, 0)
    expected = table.double().square().sum()
    assert float(rows_sq_norm([table])) == pytest.approx(float(expected), rel=1e-6)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_norm_that_is_no_number_stays_none(value):
    table = torch.ones(5, 3)
    table[2, 1] = value
    for tables in ([table], [torch.ones(2, 2), table, torch.zeros(0, 4)]):
        norm = rows_sq_norm(tables)
        assert norm.isnan() if math.isnan(value) else norm.isposinf()


def test_no_rows_and_rows_of_zeros_have_no_norm():
    assert rows_sq_norm([torch.zeros(0, 4), torch.zeros(3, 2)]) == 0
