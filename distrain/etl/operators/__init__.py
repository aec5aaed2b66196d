"""Operators, the steps from a column's raw values to its training values."""

from typing import Any

from distrain.etl.operators.categorify import (
    Categorify,
    by_frequency,
    category_type,
    fitting_int32,
)
from distrain.etl.operators.counts import (
    NUM_BUCKETS,
    Counts,
    added_up,
    buckets_of,
    in_buckets,
    joined,
    narrow_enough,
    text_hashes,
)
from distrain.etl.operators.list_slice import ListSlice
from distrain.etl.operators.numbers import Clip, FillMissing, LogOp, Moments, Normalize
from distrain.etl.operators.operator import FittedOperator, Operator, concrete
from distrain.etl.operators.spelling import AS_TYPED, PLAIN, texts_of
from distrain.vocabulary import Vocabulary

OPERATORS: dict[str, Any] = {
    operator.kind: operator
    for operator in (Categorify, Clip, FillMissing, ListSlice, LogOp, Normalize)
}
"""The operators that a saved workflow can name, by kind."""

__all__ = [
    "AS_TYPED",
    "NUM_BUCKETS",
    "added_up",
    "buckets_of",
    "by_frequency",
    "in_buckets",
    "joined",
    "Categorify",
    "Clip",
    "Counts",
    "FillMissing",
    "FittedOperator",
    "ListSlice",
    "LogOp",
    "Moments",
    "Normalize",
    "OPERATORS",
    "Operator",
    "PLAIN",
    "Vocabulary",
    "category_type",
    "concrete",
    "fitting_int32",
    "narrow_enough",
    "text_hashes",
    "texts_of",
]
