"""Dense layers in their forms for a GPU, against torch's own layers there."""

import pytest
import torch
from torch.nn import functional

from distrain.models.blocks import CrossBlock, DLRMBlock, MLPBlock, cross, functional as forms
from distrain.models.blocks.functional import Linear
from distrain.models.shapes import Column, Columns, Features, Group

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no NVIDIA GPU"),
]
ROWS = 20_000


def gradients(call, leaves, bf16):
    with torch.autocast("cuda", torch.bfloat16, enabled=bf16):
        output = call()
    torch.manual_seed(1)
    grad = torch.randn(output.shape, device="cuda").to(output.dtype)
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


NUMBERS = tuple(Column(f"I{i}") for i in range(13))
COLUMNS = Columns((Group(16, tuple(Column(f"C{i}") for i in range(26))),), NUMBERS)
NETWORKS = {
    "cross": lambda: CrossBlock(3),
    "gated": lambda: CrossBlock(2, "gated"),
    "dlrm": lambda: DLRMBlock([128, 64], [64, 128]),
    "mlp": lambda: MLPBlock([128]),
}


@pytest.mark.parametrize("triton", ["0", "1"])
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_in_bf16(name, triton, monkeypatch):
    """Padded and fused, they err no more than torch's own operations."""
    monkeypatch.setenv("DISTRAIN_TRITON", triton)
    torch.manual_seed(0)
    network = NETWORKS[name]().connect(MLPBlock([64, 1], no_activation_last_layer=True))
    network.attach(COLUMNS)
    network.cuda()
    vectors = torch.randn(ROWS, 26, 16, device="cuda", requires_grad=True)
    numbers = torch.randn(13, ROWS, device="cuda").t()
    leaves = [vectors, *network.parameters()]

    def call():
        return network(Features((vectors,), numbers))

    output, found = gradients(call, leaves, True)
    monkeypatch.setenv("DISTRAIN_TRITON", "0")
    for module in (forms, cross):
        monkeypatch.setattr(module, "is_eager_gpu", lambda value: False)
    plain, theirs = gradients(call, leaves, True)
    exact, expected = gradients(call, leaves, False)
    triples = zip([output, *found], [plain, *theirs], [exact, *expected], strict=True)
    for one, other, right in triples:
        assert one.dtype == other.dtype
        ours, usual = (float(((x - right).norm() / right.norm()).detach()) for x in (one, other))
        assert ours < 1.5 * usual + 0.01
