"""Any table, described by a features document: read, checked and staged for the workflow."""

from distrain.etl.features.columns import (
    CALENDAR as CALENDAR,
    KEYS_OF_HISTORY as KEYS_OF_HISTORY,
    TIMES_OF_HISTORY as TIMES_OF_HISTORY,
    TIMES_OF_SPLIT as TIMES_OF_SPLIT,
    ColumnSpec as ColumnSpec,
)
from distrain.etl.features.config import (
    FEATURES_FILE as FEATURES_FILE,
    FeatureConfig as FeatureConfig,
)
from distrain.etl.features.document import (
    FeatureDocument as FeatureDocument,
)
from distrain.etl.features.inferring import (
    Inferred as Inferred,
    infer_features as infer_features,
    rows_of as rows_of,
)
from distrain.etl.features.joins import side_tables as side_tables
from distrain.etl.features.looks import (
    check_tables as check_tables,
    looked_at as looked_at,
    rows_in_memory as rows_in_memory,
    same_in_all as same_in_all,
    table_file_of as table_file_of,
)
from distrain.etl.features.rows import window_numbers as window_numbers
from distrain.etl.features.staging import (
    Staged as Staged,
    StagingTask as StagingTask,
    stage_rows as stage_rows,
    staged_rows as staged_rows,
)
from distrain.etl.features.table_file import (
    PARQUET as PARQUET,
    TableFile as TableFile,
    check_named as check_named,
    detect_format as detect_format,
)
from distrain.etl.features.targets import TableWindows as TableWindows
