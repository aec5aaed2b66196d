"""Schemas: the name, type and role of each column of a table. Reads and writes Merlin's files."""

from distrain.schema.column import (
    ColumnSchema as ColumnSchema,
    Tags as Tags,
    TargetKind as TargetKind,
)
from distrain.schema.criteo import criteo_schema as criteo_schema
from distrain.schema.files import find_schema as find_schema
from distrain.schema.schema import Schema as Schema
