"""Operators, the steps from a column's raw values to its training values."""

from typing import Any

from distrain.prep.operators.buckets import Bucketize, HashBucket, QuantileBuckets
from distrain.prep.operators.categorify import Categorify
from distrain.prep.operators.encodings import CountEncode, TargetEncode
from distrain.prep.operators.list_slice import ListSlice
from distrain.prep.operators.numbers import Clip, FillMissing, LogOp, MissingFlag, Normalize
from distrain.prep.operators.operator import DocumentKey

OPERATORS: dict[str, Any] = {
    operator.kind: operator
    for operator in (
        *(ListSlice, MissingFlag, HashBucket, CountEncode, TargetEncode),
        *(FillMissing, Clip, LogOp, Normalize, Bucketize, QuantileBuckets, Categorify),
    )
}
"""All operators by kind, in the order in which they are applied to a features document's column."""

DOCUMENT_KEYS: tuple[DocumentKey, ...] = tuple(
    operator.key for operator in OPERATORS.values() if hasattr(operator, "key")
)
"""The keys of a continuous column in a features document, in the order of `OPERATORS`."""
