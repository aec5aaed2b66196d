"""What each placement of a table means: the one place that knows their names. No torch in here."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PlacementFacts:
    """One placement."""

    is_dealt: bool  # whether rank r has the rows of keys with `key % num_ranks == r`, not all rows
    collectives: int  # collective operations of a store in a step
    # whether rows lie in the host's memory, and recently used ones on the device too
    on_host: bool = False


PLACEMENTS = {
    "replicated": PlacementFacts(is_dealt=False, collectives=3),
    "row_wise": PlacementFacts(is_dealt=True, collectives=4),
    "host_cached": PlacementFacts(is_dealt=True, collectives=4, on_host=True),
}
