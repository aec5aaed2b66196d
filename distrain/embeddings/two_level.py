"""Placement "two_level": row-wise among the ranks of a group, each group with a copy of all rows.

A group is some neighbouring ranks, usually those of a node. Rows come from their owners in the
rank's own group. After the backward pass the owners add the sums of their group, as `row_wise.py`
does; then the ranks that own the same rows, one in each group, gather each other's totals, add them
in the order of the groups, and make the same update, as `replicated.py` does. Only rows that some
rank touched travel in either.

A rank with u distinct rows of R bytes sends about `(G-1)/G * u * (2R + 4)` bytes in its group of G,
and `(N-1) * v * (R + 4)` to the other N-1 groups, where v are its own rows that its group touched.

Sums are added by group first, so the bits are those of `replicated` and `row_wise` where all ranks
are one group or each is one, and else differ from theirs by rounding.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from distrain.embeddings import replicated, row_wise
from distrain.embeddings.kernels import Grouping
from distrain.embeddings.peers import Levels
from distrain.embeddings.replicated import ReplicatedRoute
from distrain.embeddings.row_wise import RowWiseRoute


@dataclass(frozen=True)
class TwoLevelRoute:
    """A batch's distinct rows: their owners in the group, and who else updates these.

    Attributes:
        within: Among the ranks of the group.
        across: Of the own rows that the group looks up, among the groups' ranks that own the same.
    """

    within: RowWiseRoute
    across: ReplicatedRoute

    @property
    def touched(self) -> Tensor:
        """The rows of the own weight that any rank looks up, `[v]`, int64."""
        return self.across.touched

    @property
    def num_updated(self) -> int:
        """How many rows this rank updates."""
        return self.across.num_updated

    def sent_bytes(self, row_bytes: int) -> int:
        """Bytes that this rank sends in the step, for rows of `row_bytes`: to all peers."""
        return self.within.sent_bytes(row_bytes) + self.across.sent_bytes(row_bytes)


def make_route(grouping: Grouping, starts: Tensor, levels: Levels) -> TwoLevelRoute:
    """Ask the group's owners for rows, and learn which the other groups ask for; collective.

    `starts` says where each column's keys begin: `[columns]`, int64, on the CPU.
    """
    within, union = row_wise.make_route_and_union(grouping, starts, levels.within)
    # The ids of the union are rows of the weight already.
    across = replicated.make_route(union, torch.zeros_like(starts), levels.across)
    return TwoLevelRoute(within, across)


def begin_exchange(
    sums: Tensor, route: TwoLevelRoute, levels: Levels
) -> Callable[[], tuple[Tensor, Tensor]]:
    """Add the group's sums `[u, dim]`, and begin to bring the groups' totals together.

    Waits for the group, whose links are the fast ones; the totals of the other groups are on their
    way when it returns. What it returns adds them in the order of the groups, and gives the rows of
    the own weight to update `[v]`, and their sums `[v, dim]`.
    """
    _, totals = row_wise.begin_exchange(sums, route.within, levels.within)()
    return replicated.begin_exchange(totals, route.across, levels.across)
