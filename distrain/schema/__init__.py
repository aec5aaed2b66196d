"""What each column of a table means; Merlin's schema files, read and written."""

from distrain.schema.column import ColumnSchema, Tags
from distrain.schema.criteo import CATEGORICAL, CONTINUOUS, LABEL, criteo_schema
from distrain.schema.files import find_schema, find_schema_beside, hint_without_schema
from distrain.schema.schema import Schema

__all__ = [
    "CATEGORICAL",
    "CONTINUOUS",
    "ColumnSchema",
    "LABEL",
    "Schema",
    "Tags",
    "criteo_schema",
    "find_schema",
    "find_schema_beside",
    "hint_without_schema",
]
