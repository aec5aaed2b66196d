"""Exports: folders that score without distrain, of ids or of raw rows, and deltas between them."""

from distrain.scoring.serving.folder import Written as Written, export_folder as export_folder
