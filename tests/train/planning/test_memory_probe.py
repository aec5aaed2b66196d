"""Counting the memory of tensors while code runs."""

import torch
from torch import nn

from distrain.train.planning.memory_probe import LiveBytes


def test_views_and_dropped_tensors_do_not_count():
    with LiveBytes() as counted:
        first = torch.zeros(1000)
        view = first[10:].view(-1, 2)
        assert counted.live == 4000
        second = first + 1
        assert (counted.live, counted.most) == (8000, 8000)
        del first
        assert counted.live == 8000  # the view keeps it
        del view
        assert counted.live == 4000
        second.add_(1)
    assert (counted.live, counted.most) == (4000, 8000)
    assert second[0] == 2


def test_what_the_graph_keeps_counts_until_backward_has_used_it():
    rows, layer = 100, nn.Linear(8, 16)
    for parameter in layer.parameters():
        parameter.grad = torch.zeros_like(parameter)
    leaf = torch.zeros(rows, 8, requires_grad=True)
    with LiveBytes() as counted:
        loss = torch.relu(layer(leaf)).square().sum()
        # relu's output is kept, for itself and for the square; what came before it is not.
        assert counted.live == 4 * (rows * 16 + 1)
        assert counted.most == 4 * (2 * rows * 16 + 1)
        loss.backward()
    assert leaf.grad is not None
    del loss
    assert counted.live == leaf.grad.nbytes
