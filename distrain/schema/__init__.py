"""What each column of a table means; Merlin's schema files, read and written."""

from distrain.schema.column import (
    TARGET_TAGS as TARGET_TAGS,
    ColumnSchema as ColumnSchema,
    Tags as Tags,
    TargetKind as TargetKind,
)
from distrain.schema.criteo import (
    CATEGORICAL as CATEGORICAL,
    CONTINUOUS as CONTINUOUS,
    LABEL as LABEL,
    criteo_schema as criteo_schema,
)
from distrain.schema.files import (
    find_schema as find_schema,
    find_schema_beside as find_schema_beside,
    hint_without_schema as hint_without_schema,
)
from distrain.schema.folders import NULL_FOLDER as NULL_FOLDER, folder_values as folder_values
from distrain.schema.schema import Schema as Schema
