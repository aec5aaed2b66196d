"""The real gloo ranks of `test_buffer_sync.py`."""

import torch
from torch import nn

from distrain.jobs.spec import TrainSpec
from distrain.models.blocks.layers import BatchNorm
from distrain.train.step.dense import DenseTraining

NUM_RANKS, WIDTH = 3, 4
# Rows of each rank in each step: even, and with ranks of one row and of none.
STEPS = [(5, 5, 5), (6, 1, 3), (0, 4, 2), (0, 0, 1)]


class Normed(nn.Module):
    """A batch norm, torch's own or ours, and a constant that is not saved."""

    def __init__(self, norm):
        super().__init__()
        self.norm = norm(WIDTH)
        self.out = nn.Linear(WIDTH, 1)
        self.register_buffer("constant", torch.ones(2), persistent=False)

    def forward(self, embedded, continuous):
        return self.out(self.norm(embedded[0])).squeeze(1)


def rows_of(step, rank, count):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(count, WIDTH, generator=generator) * (1 + rank) + step


def train(rank, norm):
    """The buffers after each step; `rank` begins with statistics of its own."""
    torch.manual_seed(rank)
    module = Normed(norm)
    module.norm.running_mean += rank + 1
    module.constant *= rank
    dense = DenseTraining(module, TrainSpec(), NUM_RANKS)
    told = []
    for step, counts in enumerate(STEPS):
        count = max(counts[rank], 2) if norm is nn.BatchNorm1d else counts[rank]
        leaf = rows_of(step, rank, count).requires_grad_()
        dense.begin_slice(True)
        dense.backward(dense.forward((leaf,), torch.zeros(count, 0)).sum())
        dense.start_sync()
        dense.finish_sync()
        dense.zero_grad()
        told.append({name: b.clone() for name, b in module.named_buffers()})
    return told


def results(rank, num_ranks):
    """The buffers of a rank after each step, for each norm."""
    return {norm.__name__: train(rank, norm) for norm in (BatchNorm, nn.BatchNorm1d)}
