"""What each column of a table means."""

from distrain.schema.column import ColumnSchema
from distrain.schema.criteo import CATEGORICAL, CONTINUOUS, LABEL, criteo_schema
from distrain.schema.schema import Schema
from distrain.schema.tags import Tags

__all__ = [
    "CATEGORICAL",
    "CONTINUOUS",
    "LABEL",
    "ColumnSchema",
    "Schema",
    "Tags",
    "criteo_schema",
]
