"""Raw Criteo files to training parquet, on Dask: read, fit, write.

No torch here, and no dataframe library: Arrow and NumPy inside the tasks.
"""

from distrain.etl.bad_lines import BadLine, BadLineTally
from distrain.etl.column_group import ColumnGroup
from distrain.etl.operators import Categorify, Clip, FillMissing, LogOp, Normalize, Vocabulary
from distrain.etl.prepare import output_schema, prepare
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
