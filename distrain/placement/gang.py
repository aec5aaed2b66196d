"""Place a gang whole, or say why it has to wait."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from distrain.world import World


@dataclass(frozen=True, order=True)
class Slot:
    """Room for one rank: one Dask worker.

    Attributes:
        host: The worker's host; ranks of a gang are packed on few hosts.
        worker: The worker's address, which is another one when its nanny has restarted it.
        name: Its name, which stays; "" if it has none.
    """

    host: str
    worker: str
    name: str = ""


@dataclass(frozen=True)
class Placement:
    """One rank's worker and its place in the gang."""

    slot: Slot
    world: World


@dataclass(frozen=True)
class Shortage:
    """Why a gang cannot start now, in words."""

    reason: str


def place_gang(
    num_ranks: int, slots: Collection[Slot], busy: Collection[Slot] = ()
) -> tuple[Placement, ...] | Shortage:
    """Give every rank of a gang a free slot, or none a slot.

    Hosts with the most free slots are filled first, so that a gang spans few hosts; ties go by
    name, so the same cluster gives the same placement.

    >>> slots = [Slot("b", "tcp://b:1"), Slot("a", "tcp://a:1"), Slot("b", "tcp://b:2")]
    >>> [p.slot.worker for p in place_gang(2, slots)]
    ['tcp://b:1', 'tcp://b:2']
    >>> place_gang(4, slots).reason
    'needs 4 workers, the cluster has 3'
    """
    slots = set(slots)
    free = sorted(slots - set(busy))
    if len(free) < num_ranks:
        needs = f"needs {num_ranks} worker{'s' if num_ranks > 1 else ''}"
        if len(slots) < num_ranks:
            return Shortage(f"{needs}, the cluster has {len(slots)}")
        return Shortage(f"{needs}, {len(free)} of {len(slots)} are free, others run jobs")
    by_host = Counter(slot.host for slot in free)
    chosen = sorted(free, key=lambda slot: (-by_host[slot.host], slot))[:num_ranks]
    ranks_per_host = Counter(slot.host for slot in chosen)
    seen: Counter[str] = Counter()
    placements = []
    for rank, slot in enumerate(chosen):
        world = World(rank, num_ranks, seen[slot.host], ranks_per_host[slot.host])
        seen[slot.host] += 1
        placements.append(Placement(slot, world))
    return tuple(placements)
