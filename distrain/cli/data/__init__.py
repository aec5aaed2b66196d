"""Commands that make data: generate it, prepare it, pack it; and show its schema."""

from distrain.cli.data.prepared import bad_lines_of, warn_of

__all__ = ["bad_lines_of", "warn_of"]
