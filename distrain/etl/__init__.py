"""Raw files to training parquet, on Dask: read, fit, write.

No torch here, and no dataframe library: Arrow and NumPy inside the tasks, and pylibcudf where
operators are to run on a GPU.
"""

from distrain.etl.column_group import ColumnGroup
from distrain.etl.days import DriftBounds, Drifted
from distrain.etl.features import (
    FeatureConfig,
    Inferred,
    check_named,
    check_tables,
    infer_features,
    with_features,
)
from distrain.etl.operators import (
    Categorify,
    Clip,
    FillMissing,
    ListSlice,
    LogOp,
    Normalize,
    Vocabulary,
)
from distrain.etl.parts import FILE, ROW_NUMBER
from distrain.etl.plain_lines import IS_BUILT as SPLITTER_IS_BUILT
from distrain.etl.prepare import prepare
from distrain.etl.progress import PrepProgress, ProgressCallback
from distrain.etl.raw_lines import BadLine, BadLineTally, TextLayout
from distrain.etl.reading import PARQUET, detect_format
from distrain.etl.request import PrepRequest, PrepResult, SplitReport
from distrain.etl.workflow import Workflow, criteo_workflow, output_schema

__all__ = [
    "FILE",
    "PARQUET",
    "ROW_NUMBER",
    "SPLITTER_IS_BUILT",
    "BadLine",
    "BadLineTally",
    "Categorify",
    "Clip",
    "ColumnGroup",
    "DriftBounds",
    "Drifted",
    "FeatureConfig",
    "FillMissing",
    "Inferred",
    "ListSlice",
    "LogOp",
    "Normalize",
    "PrepProgress",
    "PrepRequest",
    "PrepResult",
    "ProgressCallback",
    "SplitReport",
    "TextLayout",
    "Vocabulary",
    "Workflow",
    "check_named",
    "check_tables",
    "criteo_workflow",
    "detect_format",
    "infer_features",
    "output_schema",
    "prepare",
    "with_features",
]
