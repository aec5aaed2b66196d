"""A rank's inputs: tables, schema, fields and loaders."""

from distrain.train.data.inputs import (
    Inputs,
    check_fields,
    check_inputs,
    find_data_schema,
    hand_on,
    list_combiners,
    read_inputs,
)
from distrain.train.data.loaders import job_loader
from distrain.train.data.span import Span

__all__ = [
    "Inputs",
    "Span",
    "check_fields",
    "check_inputs",
    "find_data_schema",
    "hand_on",
    "job_loader",
    "list_combiners",
    "read_inputs",
]
