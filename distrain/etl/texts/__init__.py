"""Text files in ranges that tasks read, and ranges in pieces of whole lines."""

from distrain.etl.texts.pieces import (
    check_stream,
    count_lines_before,
    parsed_pieces,
    read_pieces,
)
from distrain.etl.texts.ranges import TextRange, plan_all, plan_compressed, plan_ranges

__all__ = [
    "TextRange",
    "check_stream",
    "count_lines_before",
    "parsed_pieces",
    "plan_all",
    "plan_compressed",
    "plan_ranges",
    "read_pieces",
]
