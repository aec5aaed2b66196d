"""Raw files to training parquet, on Dask: read, fit, write.

No torch here, and no dataframe library: Arrow and NumPy inside the tasks, and pylibcudf where
operators are to run on a GPU.
"""

from distrain.etl.column_group import TEXTS as TEXTS, ColumnGroup as ColumnGroup
from distrain.etl.days import DriftBounds as DriftBounds, Drifted as Drifted
from distrain.etl.features import (
    CALENDAR as CALENDAR,
    PARQUET as PARQUET,
    ColumnSpec as ColumnSpec,
    FeatureConfig as FeatureConfig,
    check_named as check_named,
    check_tables as check_tables,
    detect_format as detect_format,
    infer_features as infer_features,
)
from distrain.etl.operators import (
    CANONICAL as CANONICAL,
    Bucketize as Bucketize,
    Categorify as Categorify,
    Clip as Clip,
    CountEncode as CountEncode,
    FillMissing as FillMissing,
    HashBucket as HashBucket,
    History as History,
    ListSlice as ListSlice,
    LogOp as LogOp,
    MissingFlag as MissingFlag,
    Normalize as Normalize,
    QuantileBuckets as QuantileBuckets,
    ServedOperator as ServedOperator,
    TargetEncode as TargetEncode,
    Vocabulary as Vocabulary,
    crossed as crossed,
    takes_of as takes_of,
)
from distrain.etl.parts import FILE as FILE, ROW_NUMBER as ROW_NUMBER
from distrain.etl.prepare import prepare as prepare
from distrain.etl.progress import PrepProgress as PrepProgress, ProgressCallback as ProgressCallback
from distrain.etl.raw_lines import (
    SPLITTER_IS_BUILT as SPLITTER_IS_BUILT,
    TextLayout as TextLayout,
)
from distrain.etl.reading import (
    RawSample as RawSample,
    first_rows as first_rows,
    saved_features as saved_features,
    with_features as with_features,
)
from distrain.etl.request import (
    PrepRequest as PrepRequest,
    PrepResult as PrepResult,
    output_schema as output_schema,
)
from distrain.etl.transforming import RawTables as RawTables, raw_tables as raw_tables
from distrain.etl.workers import as_they_end as as_they_end, result_of as result_of
from distrain.etl.workflow import (
    FORM as FORM,
    HOLDS as HOLDS,
    Workflow as Workflow,
    criteo_workflow as criteo_workflow,
)
