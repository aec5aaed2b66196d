"""Workflows ready to fit."""

from distrain.etl.column_group import ColumnGroup
from distrain.etl.operators import Categorify, Clip, FillMissing, LogOp, Normalize
from distrain.etl.workflow import Workflow
from distrain.schema import CATEGORICAL, CONTINUOUS


def criteo_workflow(
    freq_threshold: int = 6, max_size: int = 10_000_000, num_buckets: int = 0
) -> Workflow:
    """Criteo's columns: logarithms of the counts, normalised; ids of the categories.

    Args:
        freq_threshold: Keep only categories seen at least this often.
        max_size: Keep at most this many per column; 0 keeps all.
        num_buckets: Spread the others over so many ids; 0 means one id.
    """
    numbers = (FillMissing(0), Clip(min=0), LogOp(), Normalize())
    categories = (Categorify(freq_threshold, max_size, num_buckets),)
    return Workflow((ColumnGroup(CONTINUOUS, numbers), ColumnGroup(CATEGORICAL, categories)))
