"""Ranges of Criteo's lines, staged as a preparation without a features document stages them."""

from distrain.prep.features.config import FeatureConfig
from distrain.prep.features.staging import Staged, StagingTask, stage_rows
from distrain.prep.features.table_file import TableFile
from distrain.prep.raw_lines import STAGED_SCHEMA, TextLayout
from distrain.prep.text_files.byte_ranges import TextRange
from distrain.prep.workflow import criteo_workflow

_TYPES = {field.name: field.type for field in STAGED_SCHEMA}


def stage_text(
    text: TextRange, layout: TextLayout, skip_bad_lines: bool, block_bytes: int, stem: str
) -> Staged:
    """The staging files of one range."""
    features = FeatureConfig.built_in(criteo_workflow(), layout, False, ())
    file = TableFile(text.path, "criteo", text.codec, _TYPES, layout.delimiter)
    lists: frozenset[str] = frozenset()
    return stage_rows(StagingTask(file, text, features, lists, skip_bad_lines, block_bytes, stem))
