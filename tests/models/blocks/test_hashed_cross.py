"""HashedCross: range, spread, order, platforms; one_hot."""

import pytest
import torch
from hypothesis import given, settings, strategies as st

from distrain.errors import ModelError
from distrain.models.blocks.functional import one_hot
from distrain.models.blocks.hashed_cross import PRIME, HashedCross

IDS = st.integers(0, PRIME - 1)


@settings(deadline=None, max_examples=40)
@given(st.data(), st.integers(2, 5), st.integers(1, PRIME - 1), st.integers(0, 2**64 - 1))
def test_bins_equal_integers_of_any_size(data, num_columns, num_bins, seed):
    """Python's integers never overflow; the tensors' may not either."""
    rows = data.draw(st.lists(st.tuples(*[IDS] * num_columns), max_size=5))
    cross = HashedCross([f"C{i}" for i in range(num_columns)], num_bins, seed=seed)
    first, *factors = cross.coefficients
    assert all(0 < a < PRIME for a in cross.coefficients)
    expected = [
        (first + sum(a * x for a, x in zip(factors, row, strict=True))) % PRIME % num_bins
        for row in rows
    ]
    for dtype in (torch.int32, torch.int64):
        columns = torch.tensor(rows, dtype=dtype).reshape(len(rows), num_columns).unbind(1)
        bins = cross.ids(columns)
        assert bins.dtype == dtype
        assert bins.tolist() == expected
        assert all(0 <= b < num_bins for b in expected)


def test_bins_are_the_same_on_every_platform():
    """Written down once: a change of them would make saved models wrong."""
    cross = HashedCross(["a", "b"], 1000)
    assert cross.coefficients == (60845732, 1536941989, 454736306)
    ids = torch.tensor([0, 1, 2, 2_000_000_000]), torch.tensor([0, 1, 1, 7])
    assert cross.ids(ids).tolist() == [732, 27, 369, 390]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("num_bins", [10, 97, 1024])
def test_bins_are_spread_almost_evenly(seed, num_bins):
    """Pearson's statistic of all pairs of two columns' ids is that of random bins, or below."""
    first, second = torch.meshgrid(torch.arange(300), torch.arange(200), indexing="ij")
    bins = HashedCross(["a", "b"], num_bins, seed=seed).ids([first.flatten(), second.flatten()])
    counts = torch.bincount(bins, minlength=num_bins).double()
    mean = counts.sum() / num_bins
    statistic = float(((counts - mean) ** 2 / mean).sum())
    degrees = num_bins - 1
    assert statistic < degrees + 5 * (2 * degrees) ** 0.5


def test_crosses_that_cannot_be_made_are_refused(wording):
    wording.refused(
        ModelError,
        lambda: HashedCross(["a"], 10),
        lambda: HashedCross(["a", "a"], 10),
        lambda: HashedCross(["a", "b"], 0),
        lambda: HashedCross(["a", "b"], PRIME),
        lambda: HashedCross(["a", "b"], 10).ids([torch.zeros(3, dtype=torch.int32)]),
    )


def test_one_hot_through_a_linear_layer_is_an_embedding():
    cross = HashedCross(["a", "b"], 10)
    ids = torch.tensor([0, 1, 4], dtype=torch.int32), torch.tensor([2, 2, 7], dtype=torch.int32)
    hot = cross.one_hot(ids)
    assert hot.sum(1).tolist() == [1, 1, 1]
    assert hot.argmax(1).tolist() == cross.ids(ids).tolist()
    weight = torch.randn(10, 1)
    assert torch.equal(hot @ weight, weight[cross.ids(ids)])


def test_one_hot_of_other_ids():
    expected = torch.zeros(2, 3, dtype=torch.float64)
    assert torch.equal(one_hot(torch.tensor([-1, 3]), 3, torch.float64), expected)
