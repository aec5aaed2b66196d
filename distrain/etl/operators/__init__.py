"""Operators, the steps from a column's raw values to its training values."""

from typing import Any

from distrain.etl.operators.buckets import (
    Bucketize as Bucketize,
    HashBucket as HashBucket,
    QuantileBuckets as QuantileBuckets,
)
from distrain.etl.operators.categorify import (
    Categorify as Categorify,
    by_frequency as by_frequency,
    category_type as category_type,
)
from distrain.etl.operators.counts import (
    NUM_BUCKETS as NUM_BUCKETS,
    Counts as Counts,
    added_up as added_up,
    buckets_of as buckets_of,
    in_buckets as in_buckets,
    joined as joined,
    text_hashes as text_hashes,
)
from distrain.etl.operators.device import Device as Device
from distrain.etl.operators.encodings import (
    CountEncode as CountEncode,
    TargetEncode as TargetEncode,
    ValueTable as ValueTable,
    fold_numbers as fold_numbers,
)
from distrain.etl.operators.history import (
    MOST_KEPT as MOST_KEPT,
    Floats as Floats,
    History as History,
    Spans as Spans,
    as_lists as as_lists,
    in_order as in_order,
    keys_of as keys_of,
    ranks_of as ranks_of,
    seconds_before as seconds_before,
    seconds_of as seconds_of,
)
from distrain.etl.operators.list_slice import ListSlice as ListSlice
from distrain.etl.operators.numbers import (
    Clip as Clip,
    FillMissing as FillMissing,
    LogOp as LogOp,
    MissingFlag as MissingFlag,
    Moments as Moments,
    Normalize as Normalize,
)
from distrain.etl.operators.operator import (
    DeviceOperator as DeviceOperator,
    DocumentKey as DocumentKey,
    FittedOperator as FittedOperator,
    LabelledOperator as LabelledOperator,
    Operator as Operator,
    ServedOperator as ServedOperator,
    Takes as Takes,
    TrainingRows as TrainingRows,
    concrete as concrete,
    in_column as in_column,
    takes_of as takes_of,
)
from distrain.etl.operators.spelling import (
    BETWEEN_TEXTS as BETWEEN_TEXTS,
    CANONICAL as CANONICAL,
    category_texts as category_texts,
    crossed as crossed,
    joined_texts as joined_texts,
    texts_of as texts_of,
)
from distrain.vocabulary import Vocabulary as Vocabulary

OPERATORS: dict[str, Any] = {
    operator.kind: operator
    for operator in (
        *(ListSlice, MissingFlag, HashBucket, CountEncode, TargetEncode),
        *(FillMissing, Clip, LogOp, Normalize, Bucketize, QuantileBuckets, Categorify),
    )
}
"""All operators by kind, in the order in which a features document's column goes through them."""

DOCUMENT_KEYS: tuple[DocumentKey, ...] = tuple(
    operator.key for operator in OPERATORS.values() if hasattr(operator, "key")
)
"""What a features document may say of a continuous column, in that order."""
