"""Prepares training parquet from raw files; saves a workflow to prepare later rows the same way.

Words that the modules of this package share:

- *block*: a stretch of a text file that one task reads.
- *staging file*: a temporary file with the converted columns of some rows, or with other
  intermediate results; *staged* rows are the rows of such files.
- *part*: some consecutive rows of one parquet or staging file, which one task handles.
- *operator*, *group*, *workflow*: a step such as `Normalize`; columns with the same operators; and
  all groups of a table.
- *domain*: the name of a vocabulary that several columns share.
- *pass*: one reading of all training rows, which fits one operator of each group.
- *bucket*, *piece*: a range of the hashes of values; and some neighbouring buckets, whose counts
  one task adds up.
- *known* or *kept* values: those with an id in a vocabulary. *Kept counts* are the counts of
  frequent values without an id, stored for later updates.
- *lookup*: a vocabulary as files that workers map into memory.
- *history*: the lists of a row's earlier events; *span*: where these events are among all events.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distrain.prep.column_group import ColumnGroup as ColumnGroup
    from distrain.prep.features.columns import ColumnSpec as ColumnSpec
    from distrain.prep.features.config import FeatureConfig as FeatureConfig
    from distrain.prep.features.inference.infer import infer_features as infer_features
    from distrain.prep.operators.buckets import (
        Bucketize as Bucketize,
        HashBucket as HashBucket,
        QuantileBuckets as QuantileBuckets,
    )
    from distrain.prep.operators.categorify import Categorify as Categorify
    from distrain.prep.operators.encodings import (
        CountEncode as CountEncode,
        TargetEncode as TargetEncode,
    )
    from distrain.prep.operators.history import History as History
    from distrain.prep.operators.list_slice import ListSlice as ListSlice
    from distrain.prep.operators.numbers import (
        Clip as Clip,
        FillMissing as FillMissing,
        LogOp as LogOp,
        MissingFlag as MissingFlag,
        Normalize as Normalize,
    )
    from distrain.prep.preparation import prepare as prepare
    from distrain.prep.request import (
        PrepRequest as PrepRequest,
        PrepResult as PrepResult,
        output_schema as output_schema,
    )
    from distrain.prep.workflow import Workflow as Workflow

_MODULES = {
    "Bucketize": "distrain.prep.operators.buckets",
    "Categorify": "distrain.prep.operators.categorify",
    "Clip": "distrain.prep.operators.numbers",
    "ColumnGroup": "distrain.prep.column_group",
    "ColumnSpec": "distrain.prep.features.columns",
    "CountEncode": "distrain.prep.operators.encodings",
    "FeatureConfig": "distrain.prep.features.config",
    "FillMissing": "distrain.prep.operators.numbers",
    "HashBucket": "distrain.prep.operators.buckets",
    "History": "distrain.prep.operators.history",
    "ListSlice": "distrain.prep.operators.list_slice",
    "LogOp": "distrain.prep.operators.numbers",
    "MissingFlag": "distrain.prep.operators.numbers",
    "Normalize": "distrain.prep.operators.numbers",
    "PrepRequest": "distrain.prep.request",
    "PrepResult": "distrain.prep.request",
    "QuantileBuckets": "distrain.prep.operators.buckets",
    "TargetEncode": "distrain.prep.operators.encodings",
    "Workflow": "distrain.prep.workflow",
    "infer_features": "distrain.prep.features.inference.infer",
    "output_schema": "distrain.prep.request",
    "prepare": "distrain.prep.preparation",
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
