"""Raw Criteo files to training parquet, on Dask: read, fit, write.

No torch here, and no dataframe library: Arrow and NumPy inside the tasks.
"""

from distrain.etl.bad_lines import BadLine, BadLineTally
from distrain.etl.column_group import ColumnGroup
from distrain.etl.operators import (
    Categorify,
    Clip,
    FillMissing,
    ListSlice,
    LogOp,
    Normalize,
    Vocabulary,
)
from distrain.etl.output_schema import output_schema
from distrain.etl.prepare import prepare
from distrain.etl.presets import criteo_workflow
from distrain.etl.raw_lines import TextLayout
from distrain.etl.request import PrepRequest, PrepResult, ProgressCallback, SplitReport
from distrain.etl.workflow import Workflow

__all__ = [
    "BadLine",
    "BadLineTally",
    "Categorify",
    "Clip",
    "ColumnGroup",
    "FillMissing",
    "ListSlice",
    "LogOp",
    "Normalize",
    "PrepRequest",
    "PrepResult",
    "ProgressCallback",
    "SplitReport",
    "TextLayout",
    "Vocabulary",
    "Workflow",
    "criteo_workflow",
    "output_schema",
    "prepare",
]
