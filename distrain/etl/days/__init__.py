"""More days for a fitted workflow: what they hold that it does not know, and learning it."""

from distrain.etl.days.drift import DriftBounds, Drifted, drifted_columns
from distrain.etl.days.growing import kept_file
from distrain.etl.days.lineage import (
    keep_counts_of,
    learnt_before,
    with_keep_counts,
    with_update,
)
from distrain.etl.days.seen import Seen, Shares, mean_shifts, seen_in
from distrain.etl.days.vocabularies import VocabularyReport, learn_vocabularies

__all__ = [
    "DriftBounds",
    "Drifted",
    "Seen",
    "Shares",
    "VocabularyReport",
    "drifted_columns",
    "keep_counts_of",
    "kept_file",
    "learn_vocabularies",
    "learnt_before",
    "mean_shifts",
    "seen_in",
    "with_keep_counts",
    "with_update",
]
