"""Commands that make data: generate it, prepare it, pack it; and show its schema."""

from distrain.cli.data.prepared import left_out_of as left_out_of, warn_of as warn_of
