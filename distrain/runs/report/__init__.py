"""Draws runs: curves, the report page, comparisons."""
