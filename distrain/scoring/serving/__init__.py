"""Exports: folders that score without distrain, of ids or of raw rows, and deltas between them."""

from distrain.scoring.serving.folder import Written as Written, export_folder as export_folder
from distrain.scoring.serving.raw_values import (
    is_missing as is_missing,
    texts_of_any as texts_of_any,
)
