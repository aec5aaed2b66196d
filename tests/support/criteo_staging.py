"""Ranges of Criteo's lines, staged as a preparation without a features document stages them."""

from distrain.etl.features import FeatureConfig, Staged, StagingTask, TableFile, stage_rows
from distrain.etl.raw_lines import STAGED_SCHEMA, TextLayout
from distrain.etl.texts import TextRange
from distrain.etl.workflow import criteo_workflow

_TYPES = {field.name: field.type for field in STAGED_SCHEMA}


def stage_text(
    text: TextRange, layout: TextLayout, skip_bad_lines: bool, block_bytes: int, stem: str
) -> Staged:
    """The staging files of one range."""
    features = FeatureConfig.built_in(criteo_workflow(), layout, False, ())
    file = TableFile(text.path, "criteo", text.codec, _TYPES, layout.delimiter)
    lists: frozenset[str] = frozenset()
    return stage_rows(StagingTask(file, text, features, lists, skip_bad_lines, block_bytes, stem))
