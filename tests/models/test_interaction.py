"""Blocks against naive loops."""

import pytest
import torch

from distrain.models.blocks.interaction import PairProducts


@pytest.mark.parametrize("num_vectors", [2, 5])
def test_interaction_gradient_equals_finite_differences(num_vectors):
    vectors = torch.randn(3, num_vectors, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(PairProducts(num_vectors), (vectors,))
