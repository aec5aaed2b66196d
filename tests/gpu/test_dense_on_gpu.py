"""Dense layers in their forms for a GPU, against torch's own layers there."""

import pytest
import torch
from torch.nn import functional

from distrain.models.blocks.functional import Linear

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no NVIDIA GPU"),
]
ROWS = 20_000


def gradients(call, leaves, bf16):
    with torch.autocast("cuda", torch.bfloat16, enabled=bf16):
        output = call()
    torch.manual_seed(1)
    grad = torch.randn(output.shape, device="cuda", dtype=output.dtype)
    return output, torch.autograd.grad(output, leaves, grad)


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("width", [1, 13, 128])
def test_bias_gradients(width, bf16):
    torch.manual_seed(0)
    layer = Linear(64, width).cuda()
    given = torch.randn(ROWS, 64, device="cuda", requires_grad=True)
    leaves = [given, layer.weight, layer.bias]
    output, found = gradients(lambda: torch.relu_(layer(given)), leaves, bf16)
    plain, expected = gradients(
        lambda: torch.relu_(functional.linear(given, layer.weight, layer.bias)), leaves, bf16
    )
    assert torch.equal(output, plain)
    tolerance = 2e-2 if bf16 else 1e-4
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance * ROWS**0.5)
