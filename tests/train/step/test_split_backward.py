"""The two halves of a backward pass: the bits of one pass, and leaves before parameters."""

import pytest
import torch
from click_models import network as network_of
from torch import nn
from torch.nn import functional
from torch_checks import one_torch_thread

from distrain.models.blocks import DLRMBlock
from distrain.models.blocks.functional import linear_over
from distrain.models.shapes import Column, Columns, Group
from distrain.train.step.split_backward import SplitBackward, can_part


class Tied(nn.Module):
    """Uses one weight twice: `cut`, as tensors of their own, or as it is."""

    def __init__(self, cut):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8) / 3)
        self.cut = cut

    def forward(self, leaf, _):
        half = functional.linear(leaf, self.weight) if self.cut else leaf @ self.weight
        return half.relu() @ self.weight.t() if self.cut else half.relu() @ self.weight


class Joined(nn.Module):
    """A tower for the numbers, which meets the leaf in two ways; a first layer cut for parts."""

    def __init__(self, norm):
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(3, 8), nn.ReLU(inplace=True))
        self.first = nn.Linear(16 + 3, 8)
        self.norm = norm
        self.top = nn.Sequential(nn.ReLU(inplace=True), nn.Dropout(0.2), nn.Linear(8, 1))
        self.unused = nn.Parameter(torch.ones(2))

    def forward(self, leaf, numbers):
        below = self.bottom(numbers)
        joined = linear_over(self.first, [leaf, numbers, leaf * (below + below.sum())])
        return self.top(self.norm(joined))


NETWORKS = {
    "plain": lambda: Joined(nn.Identity()),
    "batch norm": lambda: Joined(nn.BatchNorm1d(8)),
    "layer norm": lambda: Joined(nn.LayerNorm(8)),
    "one weight, cut": lambda: Tied(cut=True),
    "one weight, as it is": lambda: Tied(cut=False),
    "the leaf unused": lambda: nn.Bilinear(8, 3, 1),
}


def gradients(network, split, rows, dtype):
    """Gradients of a leaf and of parameters, and which parameters had theirs before the rest."""
    torch.manual_seed(1)
    leaf = torch.randn(rows, 8).requires_grad_()
    numbers = torch.randn(rows, 3)
    for parameter in network.parameters():
        parameter.grad = torch.full_like(parameter, 0.5)
    given = leaf.detach() if isinstance(network, nn.Bilinear) else leaf
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        loss = network(given, numbers).float().square().sum()
    if split:
        backward = SplitBackward(loss, [leaf], network.parameters())
        backward.to_leaves()
        early = [not torch.equal(p.grad, torch.full_like(p, 0.5)) for p in network.parameters()]
        assert any(early) == (not backward.parts)
        backward.to_parameters()
    else:
        loss.backward()
    return [leaf.grad, *(p.grad for p in network.parameters())]


@pytest.mark.parametrize("rows", [64, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", NETWORKS)
def test_two_halves_give_the_bits_of_one_pass(name, dtype, rows):
    with one_torch_thread():
        torch.manual_seed(0)
        network = NETWORKS[name]()
        whole = gradients(network, False, rows, dtype)
        halves = gradients(network, True, rows, dtype)
    for one, other in zip(whole, halves, strict=True):
        assert (one is None) == (other is None)
        assert one is None or torch.equal(one, other)


@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "the leaf unused"])
def test_each_parameter_gets_its_gradient_once(name):
    network = NETWORKS[name]()
    leaf = torch.ones(4, 8, requires_grad=True)
    loss = network(leaf, torch.ones(4, 3)).sum()
    came = []
    for which, parameter in network.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda _, which=which: came.append(which))
    backward = SplitBackward(loss, [leaf], network.parameters())
    assert backward.parts
    backward.to_leaves()
    assert came == []
    backward.to_parameters()
    assert sorted(came) == sorted(n for n, _ in network.named_parameters() if n != "unused")


def test_a_tower_beside_the_embeddings_waits_for_them():
    model = DLRMBlock([8, 4], [8])
    shape = Columns((Group(4, (Column("a"), Column("b"))),), (Column("x"), Column("y")))
    net = network_of(shape, model)
    leaf = torch.randn(16, 2, 4, requires_grad=True)
    backward = SplitBackward(net((leaf,), torch.randn(16, 2)).sum(), [leaf], net.parameters())
    before = {name: p.grad for name, p in net.named_parameters()}
    backward.to_leaves()
    assert leaf.grad is not None
    assert all(p.grad is before[name] is None for name, p in net.named_parameters())
    backward.to_parameters()
    assert all(p.grad is not None for p in net.parameters())


def test_layers_of_others_and_hooked_ones_are_not_parted():
    assert can_part(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    assert not can_part(nn.Sequential(Tied(cut=True)))
    for kind in (
        "forward_hook",
        "forward_pre_hook",
        "full_backward_hook",
        "full_backward_pre_hook",
    ):
        layer = nn.Linear(2, 2)
        handle = getattr(layer, f"register_{kind}")(lambda *_: None)
        assert not can_part(nn.Sequential(layer))
        handle.remove()
        assert can_part(nn.Sequential(layer))
