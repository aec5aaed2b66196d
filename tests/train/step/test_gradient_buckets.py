"""Buckets of gradients: what begins when, always in one order."""

import pytest
import torch
from torch import nn

from distrain.train.step import gradient_buckets as module_under_test
from distrain.train.step.gradient_buckets import GradientBuckets
from distrain.train.step.gradient_sync import FlatParameters


class Work:
    """A sum that is done when somebody waits for it."""

    def __init__(self, piece, waited):
        self.piece, self.waited = piece, waited

    def wait(self):
        self.waited.append(self.piece.data_ptr())


class Network(nn.Module):
    """Three layers of 256 parameters each, of which `used` are used, in that order."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16, bias=False) for _ in range(3))

    def forward(self, values, used):
        for number in used:
            values = self.layers[number](values)
        return values.sum()


@pytest.fixture
def made(monkeypatch):
    """A network, its vectors, a bucket for each layer, and what was begun and waited for."""
    monkeypatch.setattr(module_under_test, "LEAST_BYTES", 1024)
    network, begun, waited = Network(), [], []
    flat = FlatParameters(network)

    def all_reduce(piece):
        begun.append((piece.data_ptr() - flat.grads.data_ptr()) // 1024)
        return Work(piece, waited)

    made_buckets = GradientBuckets(flat.grads, flat.parameters, flat.starts, all_reduce)
    assert len(made_buckets) == 3
    return network, made_buckets, begun, waited


def test_backward_begins_the_last_layers_before_it_comes_to_the_first(made):
    network, buckets, begun, _ = made
    seen = {}
    for number, layer in enumerate(network.layers):
        layer.weight.register_post_accumulate_grad_hook(
            lambda _, number=number: seen.update({number: list(begun)})
        )
    buckets.arm()
    network(torch.ones(2, 16), (0, 1, 2)).backward()
    assert seen == {2: [2], 1: [2, 1], 0: [2, 1, 0]}


@pytest.mark.parametrize("used", [(2, 1, 0), (1, 0), (0, 2), (0, 1, 2, 0)])
def test_the_order_is_one_whatever_is_used_and_when(made, used):
    network, buckets, begun, waited = made
    for _ in range(2):
        begun.clear()
        waited.clear()
        buckets.arm()
        network(torch.ones(2, 16), used).backward()
        buckets.start()
        buckets.finish()
        assert begun == [2, 1, 0]
        assert len(waited) == 3


def test_an_earlier_slice_begins_nothing(made):
    network, buckets, begun, _ = made
    network(torch.ones(2, 16), (0, 1, 2)).backward()
    assert begun == []
    buckets.arm()
    network(torch.ones(2, 16), (0, 1, 2)).backward()
    assert begun == [2, 1, 0]
