"""Blocks against naive loops."""

import pytest
import torch
from hypothesis import given, settings, strategies as st

from distrain.models.blocks.interaction import PairProducts


def naive_pairs(vectors):
    rows = [
        [float(row[i] @ row[j]) for i in range(len(row)) for j in range(i)]
        for row in vectors.detach()
    ]
    pairs = vectors.shape[1] * (vectors.shape[1] - 1) // 2
    return torch.tensor(rows, dtype=vectors.dtype).reshape(len(vectors), pairs)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 5), st.integers(2, 9), st.integers(1, 7))
def test_interaction_equals_naive_loop(rows, num_vectors, dim):
    vectors = torch.randn(rows, num_vectors, dim, dtype=torch.float64)
    interaction = PairProducts(num_vectors)
    found = interaction(vectors)
    assert found.shape == (rows, interaction.num_pairs)
    torch.testing.assert_close(found, naive_pairs(vectors))


@pytest.mark.parametrize("num_vectors", [2, 5])
def test_interaction_gradient_equals_finite_differences(num_vectors):
    vectors = torch.randn(3, num_vectors, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(PairProducts(num_vectors), (vectors,))


def test_interaction_works_under_autocast():
    vectors = torch.randn(8, 6, 16, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        pairs = PairProducts(6)(vectors)
    pairs.float().sum().backward()
    others = vectors.detach().sum(dim=1, keepdim=True) - vectors.detach()
    torch.testing.assert_close(vectors.grad, others)
