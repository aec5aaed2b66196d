"""A rank's share of the global loss: the sum of its rows' losses over the rows of all ranks."""

from collections.abc import Callable

import torch
from torch import Tensor

from distrain.batch import Batch
from distrain.embeddings import Peers
from distrain.models.heads import Task

ShareOfLoss = Callable[[Tensor, Batch], tuple[Tensor, Tensor]]
"""Of an output and its rows: the sum of their losses, and the share of it to differentiate."""


def share_of(task: Task, weights: Tensor | None, peers: Peers, rows: int) -> ShareOfLoss:
    """The share of a step's rows, or of slices of them; a collective operation with weights.

    Args:
        weights: Their sums of this rank's rows (`Task.weight_sums`); `None` without weights.
        rows: Rows of the step over all ranks.
    """

    def unweighted(output: Tensor, some: Batch) -> tuple[Tensor, Tensor]:
        loss = task.loss(output, some)
        return loss, loss / rows

    if weights is None:
        return unweighted
    sums = sums_over_ranks(weights, peers)
    return lambda output, some: weighted_share(task, output, some, sums)


def sums_over_ranks(weights: Tensor, peers: Peers) -> Tensor:
    """The sums of all ranks, `[targets]`, float64; 1 for those of a step in which no row counts."""
    total = peers.add_up(weights)
    return torch.where(total > 0, total, 1.0)


def weighted_share(task: Task, output: Tensor, batch: Batch, sums: Tensor) -> tuple[Tensor, Tensor]:
    losses = task.losses(output, batch)
    return losses.sum(), (losses / sums.to(losses.dtype)).sum()
