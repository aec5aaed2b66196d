"""Bytes on a node's links and on the network between nodes, and what an exchange takes on both.

Ranks of a node are neighbours. An all-gather goes around a ring of all ranks, so each block comes
to a node once and is divided among its cards; an all-to-all goes straight to each peer. Both kinds
of links work at the same time. No torch in here.
"""

from dataclasses import dataclass

from distrain.embeddings.sharding.costs import COLLECTIVES, DEFAULT_COSTS, Costs, Sent


@dataclass(frozen=True)
class Links:
    """What connects ranks, on a node and between nodes; all nodes have as many ranks."""

    ranks_per_node: int
    on_node: Costs
    off_node: Costs

    def on_one_node(self, num_ranks: int) -> bool:
        """Whether so many ranks have one node."""
        return num_ranks <= self.ranks_per_node


def default_links(device_type: str, ranks_per_node: int) -> Links:
    """What is assumed of links that nobody measured; the same wherever and whenever one asks."""
    on_node = DEFAULT_COSTS.get(device_type, DEFAULT_COSTS["cpu"])
    # CPUs: a card of 10 Gbit/s for four ranks. GPUs: as the files of planning/machines say.
    off_node = Costs(45e9, 40e-6) if device_type == "cuda" else Costs(0.31e9, 500e-6)
    return Links(ranks_per_node, on_node, off_node)


def split_bytes(sent: float, placement: str, ranks: int, here: int) -> tuple[float, float]:
    """Of what a rank sends to all ranks: bytes over its node's links, and over its network card.

    >>> split_bytes(7.0, "row_wise", 8, 4), split_bytes(7.0, "replicated", 8, 4)
    ((3.0, 4.0), (7.0, 1.0))
    """
    if ranks <= here:
        return sent, 0.0
    if placement == "replicated":  # an all-gather, in which all blocks pass each rank
        return sent if here > 1 else 0.0, sent / (ranks - 1) * (ranks / here - 1)
    least = ranks % here or here  # a last node with fewer ranks sends most over its cards
    return sent * (here - 1) / (ranks - 1), sent * (ranks - least) / (ranks - 1)


@dataclass(frozen=True)
class Stage:
    """Collectives among some ranks, one after another.

    Attributes:
        placement: Of whose tables they are: "replicated" gathers, "row_wise" goes to owners.
        ranks: How many ranks exchange; `here` of them are on each node.
        sent_bytes: What a rank sends.
    """

    placement: str
    ranks: int
    here: int
    sent_bytes: float
    collectives: int

    @property
    def link_and_network_bytes(self) -> tuple[float, float]:
        """What a rank sends over its node's links, and over its network card."""
        return split_bytes(self.sent_bytes, self.placement, self.ranks, self.here)


def stages_of(
    placement: str, sent: Sent, num_ranks: int, ranks_per_node: int, group_size: int
) -> list[Stage]:
    """The collectives of a step: two-level tables exchange in groups, then across them."""
    if num_ranks == 1:
        return []
    if placement != "two_level":
        kind = "replicated" if placement == "replicated" else "row_wise"
        return [Stage(kind, num_ranks, ranks_per_node, sent.total, COLLECTIVES[placement])]
    within = Stage(
        "row_wise", group_size, ranks_per_node, sent.total - sent.across, COLLECTIVES["row_wise"]
    )
    across = Stage(
        "replicated",
        num_ranks // group_size,
        max(1, ranks_per_node // group_size),
        sent.across,
        COLLECTIVES["replicated"],
    )
    return [within, across]


def exchange_s(stages: list[Stage], links: Links) -> float:
    """Seconds of stages that follow on each other."""
    seconds = 0.0
    for stage in stages:
        on_node, off_node = stage.link_and_network_bytes
        waits = links.on_node if stage.ranks <= stage.here else links.off_node
        seconds += stage.collectives * waits.latency_s
        seconds += max(on_node / links.on_node.bytes_per_s, off_node / links.off_node.bytes_per_s)
    return seconds
