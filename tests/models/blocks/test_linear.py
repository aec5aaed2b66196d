"""The forms of dense layers for a GPU, on a CPU, against torch's own."""

import pytest
import torch
from torch import nn

from distrain.models.blocks import cross, functional
from distrain.models.blocks.cross import CrossBlock
from distrain.models.blocks.functional import Linear, linear_over, padded, side_by_side
from distrain.models.blocks.interaction import DLRMBlock
from distrain.models.blocks.mlp import MLPBlock
from distrain.models.shapes import Column, Columns, Features, Group


@pytest.fixture
def as_on_gpu(monkeypatch):
    for module in (functional, cross):
        monkeypatch.setattr(module, "is_eager_gpu", lambda value: True)


def run(call, parameters, given, bf16=False):
    """What it gives, and the gradients of all."""
    leaves = [value.clone().requires_grad_() for value in given]
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        output = call(leaves)
    grad = torch.randn(output.shape, generator=torch.Generator().manual_seed(2)).to(output.dtype)
    grads = torch.autograd.grad(output, [*leaves, *parameters], grad)
    return output, grads


@pytest.mark.parametrize("outputs", [1, 5])
@pytest.mark.parametrize("rows", [0, 1, 300])
@pytest.mark.parametrize("bf16", [False, True])
def test_gradients_of_biases(outputs, rows, bf16, monkeypatch):
    """Beside torch's, and with what bf16 allows beside float64's; an activation overwrites it."""
    torch.manual_seed(0)
    dtype = torch.float32 if bf16 else torch.float64
    layer = Linear(7, outputs, dtype=dtype)
    parts = [torch.randn(rows, width, dtype=dtype) for width in (4, 3)]

    def call(leaves):
        hidden = torch.relu_(linear_over(layer, leaves))
        return hidden + torch.relu_(layer(torch.cat(leaves, dim=1)))

    plain, plain_grads = run(call, layer.parameters(), parts, bf16)
    monkeypatch.setattr(functional, "is_eager_gpu", lambda value: True)
    output, grads = run(call, layer.parameters(), parts, bf16)
    assert torch.equal(output, plain)
    assert output.dtype == plain.dtype
    for found, expected in zip(grads, plain_grads, strict=True):
        assert found.dtype == dtype
        near = {"rtol": 2e-2, "atol": 2e-2 * rows**0.5} if bf16 else {}
        torch.testing.assert_close(found, expected, **near)


def test_what_has_no_such_gradient(as_on_gpu):
    """Frozen biases, layers without one, three dimensions, no gradients at all."""
    layer = Linear(3, 2)
    given = torch.randn(4, 5, 3)
    torch.testing.assert_close(layer(given), nn.functional.linear(given, *layer.parameters()))
    assert Linear(3, 2, bias=False)(given[0]).shape == (5, 2)
    layer.bias.requires_grad_(False)
    layer(given[0]).sum().backward()
    assert layer.weight.grad is not None
    layer.requires_grad_()
    with torch.no_grad():
        assert not layer(given[0]).requires_grad
    layer.weight.requires_grad_(False)
    layer.zero_grad()
    layer(given[0]).sum().backward()
    assert layer.bias.grad.tolist() == [5, 5]
    assert layer.weight.grad is None


def test_keeps_the_names_and_draws_of_torch():
    torch.manual_seed(0)
    ours = Linear(3, 2).state_dict()
    torch.manual_seed(0)
    theirs = nn.Linear(3, 2).state_dict()
    assert list(ours) == list(theirs)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


COLUMNS = Columns((Group(4, tuple(Column(f"C{i}") for i in range(7))),), (Column("x"), Column("y")))
CROSSES = [("v1", None), ("v2", None), ("v2", 3), ("gated", None)]
NETWORKS = {
    **{f"cross {v} {r}": lambda v=v, r=r: CrossBlock(3, v, r) for v, r in CROSSES},
    "dlrm": lambda: DLRMBlock([12, 6], [16, 8]),
    "dlrm alone": lambda: DLRMBlock([], [16, 8]),
    "mlp": lambda: MLPBlock([10, 8], "tanh"),
}


def network_and_rows(name, rows=200):
    torch.manual_seed(0)
    # A ReLU would turn a last bit near 0 into a gradient that is there or not.
    network = NETWORKS[name]().connect(MLPBlock([8, 1], "tanh", no_activation_last_layer=True))
    network.attach(COLUMNS)
    for parameter_name, parameter in network.named_parameters():
        if parameter_name.endswith("bias"):
            nn.init.normal_(parameter)
    return network, [torch.randn(rows, 7, 4), torch.randn(rows, 2)]


def of_features(network):
    return lambda leaves: network(Features((leaves[0],), leaves[1]))


@pytest.mark.parametrize("name", NETWORKS)
def test_forms_for_a_gpu_in_float64(name, monkeypatch):
    """Padding too, as if autocast gave float64."""
    network, given = network_and_rows(name, 5)
    given = [value.double() for value in given]
    plain, plain_grads = run(of_features(network.double()), network.parameters(), given)
    for module in (functional, cross):
        monkeypatch.setattr(module, "is_eager_gpu", lambda value: True)
        monkeypatch.setattr(module, "pads", lambda value: True)
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda kind: torch.float64)
    output, grads = run(of_features(network), network.parameters(), given)
    torch.testing.assert_close([output, *grads], [plain, *plain_grads])


def test_padding_is_found_again(as_on_gpu):
    parts = [torch.randn(4, 3), torch.randn(4, 2)]
    with torch.autocast("cpu", torch.bfloat16):
        joined = side_by_side(parts)
        assert joined.shape == (4, 5)
        assert padded([joined]) is padded([joined])
        assert padded([joined])[:, 5:].tolist() == [[0, 0, 0]] * 4
        assert torch.equal(joined, torch.cat(parts, dim=1).bfloat16())
        with pytest.raises(RuntimeError, match="shapes"):
            Linear(6, 2)(joined)
