"""Which rank runs where: pure functions of the free workers."""

from distrain.placement.gang import Placement, Shortage, Slot, place_gang

__all__ = ["Placement", "Shortage", "Slot", "place_gang"]
