"""More days for a fitted workflow: what they hold that it does not know, and learning it."""

from distrain.etl.days.drift import DriftBounds, Drifted, drifted_columns
from distrain.etl.days.seen import Seen, Shares, mean_shifts, seen_in

__all__ = [
    "DriftBounds",
    "Drifted",
    "Seen",
    "Shares",
    "drifted_columns",
    "mean_shifts",
    "seen_in",
]
