"""Who a rank is among its peers."""

from dataclasses import dataclass


@dataclass(frozen=True)
class World:
    """A rank's place in its gang.

    Attributes:
        rank: This rank, from 0.
        num_ranks: How many ranks train together (torch's world size).
        rank_of_node: This rank's place among the ranks of its host, from 0.
        ranks_per_node: How many ranks of the gang share its host.
    """

    rank: int = 0
    num_ranks: int = 1
    rank_of_node: int = 0
    ranks_per_node: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.num_ranks:
            raise ValueError(f"rank {self.rank} is not in 0..{self.num_ranks - 1}")
        if not 0 <= self.rank_of_node < self.ranks_per_node:
            raise ValueError(
                f"rank_of_node {self.rank_of_node} is not in 0..{self.ranks_per_node - 1}"
            )
