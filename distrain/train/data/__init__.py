"""A rank's inputs: tables, schema, fields and loaders."""

from distrain.train.data.inputs import (
    Inputs,
    check_fields,
    check_inputs,
    find_data_schema,
    find_vocabularies,
    hand_on,
    list_combiners,
    read_inputs,
)
from distrain.train.data.loaders import job_loader
from distrain.train.data.span import Span
from distrain.train.data.vocabularies import (
    WORKFLOW,
    Vocabularies,
    VocabularyFile,
    check_meaning,
    new_ids,
    vocabularies_in,
)

__all__ = [
    "Inputs",
    "Span",
    "Vocabularies",
    "VocabularyFile",
    "WORKFLOW",
    "check_fields",
    "check_inputs",
    "check_meaning",
    "find_data_schema",
    "find_vocabularies",
    "hand_on",
    "job_loader",
    "list_combiners",
    "new_ids",
    "read_inputs",
    "vocabularies_in",
]
