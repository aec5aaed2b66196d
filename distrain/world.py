"""A rank's place among its peers."""

from dataclasses import dataclass


@dataclass(frozen=True)
class World:
    """A rank's place in its gang.

    Attributes:
        rank: This rank, from 0.
        num_ranks: Ranks that train together (torch's world size).
        ranks_per_node: Ranks of the gang on its host.
    """

    rank: int = 0
    num_ranks: int = 1
    ranks_per_node: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.num_ranks:
            raise ValueError(f"rank {self.rank} is not in 0..{self.num_ranks - 1}")
        if self.ranks_per_node < 1:
            raise ValueError(f"ranks_per_node {self.ranks_per_node} is below 1")
