"""Placement "replicated": every rank holds all rows, and all ranks update all touched rows.

A rank finds every row at home. After the backward pass the ranks gather each other's sums of
gradients, add them in rank order, and make the same update. A rank with u distinct rows of R bytes
sends `(W-1) * u * (R + 4)` bytes, its ids included.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from distrain.embeddings import kernels
from distrain.embeddings.kernels import Grouping
from distrain.embeddings.keys import add_parts, keys_of, segments_of
from distrain.embeddings.peers import Peers


@dataclass(frozen=True)
class ReplicatedRoute:
    """Where a batch's distinct rows are.

    Attributes:
        keys: `[u]`, int64: the rows of the weight that this rank looks up.
        touched: `[v]`, int64: those that any rank looks up.
        numbers: For each rank `[u of that rank]`, int32: where its rows stand in `touched`. Empty
            for a rank alone.
        sent_ids_bytes: What this rank sent to make the route.
    """

    keys: Tensor
    touched: Tensor
    numbers: tuple[Tensor, ...] = ()
    sent_ids_bytes: int = 0

    def sent_bytes(self, row_bytes: int) -> int:
        """What the step sends on this rank, for rows of so many bytes."""
        others = max(0, len(self.numbers) - 1)
        return self.sent_ids_bytes + others * len(self.keys) * row_bytes

    @property
    def num_updated(self) -> int:
        """How many rows this rank updates."""
        return len(self.touched)


def make_route(grouping: Grouping, starts: Tensor, peers: Peers) -> ReplicatedRoute:
    """Learn which rows the other ranks look up; a collective operation.

    Args:
        grouping: This rank's distinct ids.
        starts: `[columns]`, int64, on the CPU: where each column's table begins in the weight.
        peers: Who shares the tables.
    """
    keys = keys_of(grouping, starts)
    if peers.num_ranks == 1:
        return ReplicatedRoute(keys, keys)
    counts = peers.gather_counts(grouping.counts.to(keys.device))  # [ranks, columns]
    lengths = counts.sum(1).tolist()
    ids = peers.gather_rows(grouping.ids, lengths)
    union = kernels.unique(torch.cat(ids), *segments_of(counts))
    sent = (peers.num_ranks - 1) * (8 * counts.shape[1] + 4 * len(keys))
    return ReplicatedRoute(
        keys, keys_of(union, starts), tuple(torch.split(union.numbers, lengths)), sent
    )


def fetch(weight: Tensor, route: ReplicatedRoute, peers: Peers) -> Tensor:
    """The batch's distinct rows, `[u, dim]`."""
    return kernels.gather(weight, route.keys)


def exchange(sums: Tensor, route: ReplicatedRoute, peers: Peers) -> tuple[Tensor, Tensor]:
    """Add the ranks' sums, in rank order.

    Args:
        sums: `[u, dim]`: of this rank's gradients.
        route: The batch's.
        peers: Who shares the tables.

    Returns:
        The rows to update `[v]`, and the sums over all ranks `[v, dim]`.
    """
    if peers.num_ranks == 1:
        return route.touched, sums
    parts = peers.gather_rows(sums, [len(numbers) for numbers in route.numbers])
    total = sums.new_zeros(len(route.touched), sums.shape[1])
    add_parts(parts, route.numbers, total)
    return route.touched, total
