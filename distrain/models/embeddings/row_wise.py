"""Placement "row_wise": each row is on one rank, which `row_owners.py` selects.

Rows are assigned to ranks one by one, not in blocks. Ids are often ordered by frequency, so one
block would hold the rows that every rank requests. A rank requests its distinct rows from each
owner, receives them, and later sends their sums of gradients back. Owners add the sums in rank
order and update. Of W ranks, one with u distinct rows of R bytes sends about
`(W-1)/W * u * (2R + 4)` bytes: ids, rows that others requested, sums.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from distrain.models.embeddings import kernels
from distrain.models.embeddings.kernels import Grouping, add_rows, keys_of, part_segments
from distrain.models.embeddings.peers import Peers
from distrain.models.embeddings.row_owners import owner_and_row


@dataclass(frozen=True)
class RowWiseRoute:
    # `[u]`, int64: this rank's distinct rows in the order of their requests, rank 0 first
    by_owner: Tensor
    arrival: Tensor  # `[u]`, int64: the inverse: each distinct row's position in received rows
    asked: tuple[int, ...]  # the number of rows that this rank requests from each rank
    # `[sum of wanted]`, int64: rows of this rank's weight that the ranks request, rank 0 first
    requested: Tensor
    wanted: tuple[int, ...]  # the number of rows that each rank requests from this rank
    touched: Tensor  # `[v]`, int64: the distinct rows of `requested`
    inverse: Tensor  # `[sum of wanted]`, int32: the position of each requested row in `touched`
    rank: int
    sent_ids_bytes: int  # the bytes that this rank sent to make the route

    def sent_bytes(self, row_bytes: int) -> int:
        away = sum(self.asked) + sum(self.wanted) - self.asked[self.rank] - self.wanted[self.rank]
        return self.sent_ids_bytes + away * row_bytes

    def at(self, places: Callable[[Tensor], Tensor]) -> "RowWiseRoute":
        """Return the same route for a tensor whose rows have other positions, such as a cache.

        `places` maps row indices of the weight to positions in that tensor.
        """
        return replace(self, requested=places(self.requested))

    def fetch(self, weight: Tensor, peers: Peers) -> Tensor:
        """Return a batch's distinct rows from their owners, `[u, dim]`; a collective operation."""
        served = kernels.gather(weight, self.requested)
        arrived = peers.exchange_rows(served, self.wanted, self.asked)
        return kernels.gather(arrived, self.arrival)

    def begin_exchange(self, sums: Tensor, peers: Peers) -> Callable[[], tuple[Tensor, Tensor]]:
        """Begin to send sums of gradients, `[u, dim]`, to the rows' owners; a collective operation.

        The returned function waits. It returns the rows that this rank owns and any rank touched,
        `[v]`, and each row's gradient, `[v, dim]`, added in rank order.
        """
        arriving = peers.begin_exchange_rows(
            kernels.gather(sums, self.by_owner), self.asked, self.wanted
        )

        def finish() -> tuple[Tensor, Tensor]:
            arrived = peers.wait_for_rows(arriving)
            total = sums.new_zeros(len(self.touched), sums.shape[1])
            add_rows(arrived, self.inverse, total)
            return self.touched, total

        return finish


def make_route(grouping: Grouping, starts: Tensor, peers: Peers) -> RowWiseRoute:
    """Return the route of this rank's distinct ids, whose rows it requests; collective.

    `starts` has the first key of each column's table.
    """
    own = ask_owners(grouping, starts, peers)
    union = kernels.unique(own.requested, *part_segments(own.wanted))
    arrival = torch.empty_like(own.by_owner)
    arrival[own.by_owner] = torch.arange(len(own.by_owner), device=arrival.device)
    return RowWiseRoute(
        by_owner=own.by_owner,
        arrival=arrival,
        asked=own.asked,
        requested=own.requested.long(),
        wanted=tuple(own.wanted.sum(1).tolist()),
        touched=union.ids.long(),
        inverse=union.inverse,
        rank=peers.rank,
        sent_ids_bytes=own.sent_bytes,
    )


class RowRequests(NamedTuple):
    by_owner: Tensor  # as in `RowWiseRoute`, like the next two
    asked: tuple[int, ...]
    requested: Tensor  # but int32
    # `[ranks, columns]`, int64, on the CPU: the number of rows that each rank requests from this
    # rank
    wanted: Tensor
    sent_bytes: int  # the bytes that this rank sent for its requests


def ask_owners(grouping: Grouping, starts: Tensor, peers: Peers) -> RowRequests:
    """Request this rank's distinct rows from their owners; return these and the others' requests.

    A collective operation, the first part of `make_route`, with the same arguments. If the ids are
    on a GPU, the host waits for the numbers of requested rows.
    """
    num_ranks, num_columns = peers.num_ranks, len(starts)
    keys = keys_of(grouping, starts)
    owners, rows = owner_and_row(keys, num_ranks)
    short = torch.int16 if num_ranks <= 1 << 15 else torch.int32  # sorted faster than int64
    by_owner = torch.argsort(owners.to(short), stable=True)
    columns = kernels.repeated(torch.arange(num_columns), grouping.counts, keys)
    asked = torch.bincount(owners * num_columns + columns, minlength=num_ranks * num_columns)
    asked = asked.view(num_ranks, num_columns)  # [owner, column]
    wanted = peers.exchange_counts(asked)  # [requesting rank, column]
    send = asked.sum(1).tolist()
    # Rows of the owner's weight fit into int32 for any number of keys.
    local = rows[by_owner].int()
    requested = peers.exchange_rows(local, send, wanted.sum(1).tolist())
    sent_bytes = 4 * (len(keys) - send[peers.rank]) + 8 * (num_ranks - 1) * num_columns
    return RowRequests(by_owner, tuple(send), requested, wanted, sent_bytes)
