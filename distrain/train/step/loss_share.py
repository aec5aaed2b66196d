"""A rank's share of the global loss: the sum of its rows' losses over the rows of all ranks."""

from collections.abc import Callable

import torch
from torch import Tensor

from distrain.loader.batch import Batch
from distrain.models.embeddings.peers import Peers
from distrain.models.heads.targets import Candidates
from distrain.models.heads.tasks import Task

ShareOfLoss = Callable[[Tensor, Batch], tuple[Tensor, Tensor]]
"""Takes a model's output for some rows, and these rows.

Returns two scalars: the sum of the rows' losses, and their share of the global loss, which is
differentiated.
"""


def make_share_of_loss(
    task: Task, weights: Tensor | None, peers: Peers, rows: int | Tensor
) -> ShareOfLoss:
    """Return a `ShareOfLoss`: a function of a model's output for rows of the step, and these rows.

    It returns the sum of the rows' losses, and that sum's share of the step's loss: divided by
    `rows`, or with weights by the sum of all ranks' weights. With weights, making the function is a
    collective operation. If the loss compares rows with those of all ranks (`Task.candidates`),
    calling the function is one, too.

    Args:
        weights: The sums of the weights of this rank's rows (`Task.weight_sums`); `None` without
            weights.
        rows: Rows of the step over all ranks; a scalar on the device in a CUDA graph.
    """

    def unweighted(output: Tensor, some: Batch) -> tuple[Tensor, Tensor]:
        offered = task.candidates(output, some)
        if offered is not None:
            loss, share = loss_against_all(task, output, some, offered, peers)
        else:
            loss = share = task.loss(output, some)
        return loss, share / rows

    if weights is None:
        return unweighted
    sums = sums_over_ranks(weights, peers)
    return lambda output, some: weighted_share(task, output, some, sums)


def loss_against_all(
    task: Task, output: Tensor, batch: Batch, offered: Candidates, peers: Peers
) -> tuple[Tensor, Tensor]:
    """Return the loss of this rank's rows, and a scalar whose gradient is that of all losses.

    A collective operation; "all losses" are those of all ranks' rows. Candidates come from all
    ranks, and the gradients of their vectors are sent back and added up in rank order. Autograd's
    backward pass contains no exchange.
    """
    if peers.num_ranks == 1:
        loss = task.loss_against(output, batch, offered, 0)
        task.observe(Candidates(offered.vectors.detach(), *offered[1:]))
        return loss, loss
    sizes = torch.tensor([len(part) for part in (offered.vectors, offered.known)])
    counts = peers.gather_counts(sizes.to(output.device))
    lengths, pairs = counts.t().tolist()
    everything = Candidates(
        torch.cat(peers.gather_rows(offered.vectors.detach(), lengths)).requires_grad_(),
        torch.cat(peers.gather_rows(offered.ids, lengths)),
        torch.cat(peers.gather_rows(offered.known, pairs)),
    )
    own, first = output.detach().requires_grad_(), sum(lengths[: peers.rank])
    loss = task.loss_against(own, batch, everything, first)
    task.observe(everything)
    to_output, to_vectors = torch.autograd.grad(loss, (own, everything.vectors))
    arrived = peers.exchange_rows(to_vectors, lengths, [len(offered.vectors)] * peers.num_ranks)
    of_ranks = arrived.view(peers.num_ranks, *offered.vectors.shape)
    to_offered = torch.zeros_like(of_ranks[0])
    for part in of_ranks:
        to_offered += part
    share = (output * to_output).sum() + (offered.vectors * to_offered).sum()
    return loss.detach(), share


def sums_over_ranks(weights: Tensor, peers: Peers) -> Tensor:
    """Return the sums of `weights` over all ranks, `[targets]`, float64, for use as divisors.

    A collective operation. Sums of 0 are replaced by 1.
    """
    total = peers.all_reduce_sum(weights)
    return torch.where(total > 0, total, 1.0)


def weighted_share(task: Task, output: Tensor, batch: Batch, sums: Tensor) -> tuple[Tensor, Tensor]:
    """Return the results of `ShareOfLoss` for weighted rows; `sums` is from `sums_over_ranks`."""
    losses = task.losses(output, batch)
    return losses.sum(), (losses / sums.to(losses.dtype)).sum()
