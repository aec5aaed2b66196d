"""What each placement of a table means: the one place that knows their names. No torch in here."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PlacementFacts:
    """One placement.

    Attributes:
        is_dealt: Whether rank r has the rows of keys with `key % num_ranks == r`, not all rows.
        on_host: Whether rows lie in the host's memory, and recently used ones on the device too.
        collectives: Collective operations of a store in a step.
    """

    is_dealt: bool
    collectives: int
    on_host: bool = False


PLACEMENTS = {
    "replicated": PlacementFacts(is_dealt=False, collectives=3),
    "row_wise": PlacementFacts(is_dealt=True, collectives=4),
    "host_cached": PlacementFacts(is_dealt=True, collectives=4, on_host=True),
}
