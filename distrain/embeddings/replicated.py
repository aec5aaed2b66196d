"""Placement "replicated": every rank holds all rows, and all ranks update all touched rows.

A rank finds every row at home. After the backward pass the ranks gather each other's sums of
gradients, add them in rank order, and make the same update. A rank with u distinct rows of R bytes
sends `(W-1) * u * (R + 4)` bytes, its ids included.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from distrain.embeddings import kernels
from distrain.embeddings.kernels import Grouping, add_parts, keys_of, part_segments
from distrain.embeddings.peers import Peers


@dataclass(frozen=True)
class ReplicatedRoute:
    """Where a batch's distinct rows are.

    Attributes:
        keys: `[u]`, int64: the rows of the weight that this rank looks up.
        touched: `[v]`, int64: those that any rank looks up.
        inverse: For each rank `[u of that rank]`, int32: where its rows stand in `touched`. Empty
            for a rank alone.
    """

    keys: Tensor
    touched: Tensor
    inverse: tuple[Tensor, ...] = ()
    sent_ids_bytes: int = 0

    def sent_bytes(self, row_bytes: int) -> int:
        """Bytes that this rank sends in the step, for rows of `row_bytes`."""
        others = max(0, len(self.inverse) - 1)
        return self.sent_ids_bytes + others * len(self.keys) * row_bytes

    @property
    def num_updated(self) -> int:
        """How many rows this rank updates."""
        return len(self.touched)


def make_route(grouping: Grouping, starts: Tensor, peers: Peers) -> ReplicatedRoute:
    """Learn which rows the other ranks look up; a collective operation.

    `starts` says where each column's table begins in the weight: `[columns]`, int64, on the CPU.
    """
    keys = keys_of(grouping, starts)
    if peers.num_ranks == 1:
        return ReplicatedRoute(keys, keys)
    counts = peers.gather_counts(grouping.counts.to(keys.device))  # [ranks, columns]
    lengths = counts.sum(1).tolist()
    ids = peers.gather_rows(grouping.ids, lengths)
    union = kernels.unique(torch.cat(ids), *part_segments(counts))
    sent = (peers.num_ranks - 1) * (8 * counts.shape[1] + 4 * len(keys))
    return ReplicatedRoute(
        keys, keys_of(union, starts), tuple(torch.split(union.inverse, lengths)), sent
    )


def fetch(weight: Tensor, route: ReplicatedRoute, peers: Peers) -> Tensor:
    """The batch's distinct rows, `[u, dim]`."""
    return kernels.gather(weight, route.keys)


def begin_exchange(
    sums: Tensor, route: ReplicatedRoute, peers: Peers
) -> Callable[[], tuple[Tensor, Tensor]]:
    """Begin to bring the ranks' sums `[u, dim]` together; returns what adds them in rank order.

    That gives the rows to update `[v]`, and their sums `[v, dim]`.
    """
    if peers.num_ranks == 1:
        return lambda: (route.touched, sums)
    lengths = [len(own) for own in route.inverse]
    arriving = peers.begin_gather(sums, max(lengths))

    def finish() -> tuple[Tensor, Tensor]:
        gathered = peers.arrived(arriving)
        parts = [rows[:length] for rows, length in zip(gathered, lengths, strict=True)]
        total = sums.new_zeros(len(route.touched), sums.shape[1])
        add_parts(parts, route.inverse, total)
        return route.touched, total

    return finish
