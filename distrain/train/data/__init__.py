"""A rank's inputs: tables, schema, fields and loaders."""

from distrain.train.data.handed_tables import Inputs as Inputs, hand_on as hand_on
from distrain.train.data.inputs import (
    check_fields as check_fields,
    check_inputs as check_inputs,
    check_negatives as check_negatives,
    find_data_schema as find_data_schema,
    find_vocabularies as find_vocabularies,
    list_combiners as list_combiners,
    read_inputs as read_inputs,
)
from distrain.train.data.loaders import job_loader as job_loader
from distrain.train.data.span import JobSpan as JobSpan
from distrain.train.data.vocabularies import (
    WORKFLOW as WORKFLOW,
    Vocabularies as Vocabularies,
    VocabularyFile as VocabularyFile,
    check_meaning as check_meaning,
    new_ids as new_ids,
    vocabularies_in as vocabularies_in,
    workflows_beside as workflows_beside,
)
