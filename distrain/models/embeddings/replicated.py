"""Placement "replicated": every rank holds all rows, and all ranks update all touched rows.

Every rank looks up rows in its own memory. After the backward pass the ranks gather each other's
sums of gradients, add them in rank order, and make the same update.

Every rank pads its rows to u, the largest number of distinct rows of any rank. With W ranks and
rows of R bytes, each rank sends `(W-1) * (u * (R + 4) + 8 * columns)` bytes: the sums, the ids, and
the number of ids of each column.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import Tensor

from distrain.models.embeddings import kernels
from distrain.models.embeddings.kernels import Grouping, add_rows, keys_of, part_segments
from distrain.models.embeddings.peers import Peers


@dataclass(frozen=True)
class ReplicatedRoute:
    keys: Tensor  # `[u]`, int64: the rows of the weight that this rank looks up
    touched: Tensor  # `[v]`, int64: the rows that any rank looks up
    # `[ranks * most]`, int32: the position of each rank's rows in `touched`, rank by rank. Padding
    # is one past the end. `None` for a single rank.
    inverse: Tensor | None = None
    most: int = 0  # the largest u of a rank, to which the other ranks are padded
    others: int = 0  # the number of other ranks
    sent_ids_bytes: int = 0  # the bytes that this rank sent to make the route

    def sent_bytes(self, row_bytes: int) -> int:
        return self.sent_ids_bytes + self.others * self.most * row_bytes

    def at(self, places: Callable[[Tensor], Tensor]) -> "ReplicatedRoute":
        """Return the same route for a tensor whose rows have other positions, such as a cache.

        `places` maps row indices of the weight to positions in that tensor.
        """
        return replace(self, keys=places(self.keys))

    def fetch(self, weight: Tensor, peers: Peers) -> Tensor:
        return kernels.gather(weight, self.keys)

    def begin_exchange(self, sums: Tensor, peers: Peers) -> Callable[[], tuple[Tensor, Tensor]]:
        """Begin to gather all ranks' sums of gradients; a collective operation with several ranks.

        `sums`, `[u, dim]`, are those of this rank. The returned function waits. It returns the rows
        that any rank touched, `[v]`, and each row's gradient, `[v, dim]`, added in rank order.
        """
        inverse = self.inverse
        if inverse is None:
            return lambda: (self.touched, sums)
        arriving = peers.begin_gather(sums, self.most)

        def finish() -> tuple[Tensor, Tensor]:
            gathered = peers.wait_for_rows(arriving).flatten(0, 1)
            count = len(self.touched)
            total = sums.new_zeros(count + 1, sums.shape[1])  # the last row receives the padding
            add_rows(gathered, inverse, total)
            return self.touched, total[:count]

        return finish


def make_route(grouping: Grouping, starts: Tensor, peers: Peers) -> ReplicatedRoute:
    """Return the route of this rank's distinct ids, after gathering all ranks' ids; collective.

    `starts` has the first key of each column's table.
    """
    keys = keys_of(grouping, starts)
    if peers.num_ranks == 1:
        return ReplicatedRoute(keys, keys)
    counts = peers.gather_counts(grouping.counts.to(keys.device))  # [ranks, columns]
    lengths = counts.sum(1).tolist()
    most, others = max(lengths), peers.num_ranks - 1
    ids, inverse_places = peers.gather_padded(grouping.ids, most), None
    if most > min(lengths):
        inverse_places = kernels.padded_positions(lengths, [most] * len(lengths), ids.device)
        ids = ids[inverse_places]
    union = kernels.unique(ids, *part_segments(counts))
    touched, inverse = keys_of(union, starts), union.inverse
    if inverse_places is not None:
        inverse = inverse.new_full((peers.num_ranks * most,), len(touched))
        inverse[inverse_places] = union.inverse
    sent = others * (8 * counts.shape[1] + 4 * most)
    return ReplicatedRoute(keys, touched, inverse, most, others, sent)
