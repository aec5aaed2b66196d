"""Text files in ranges that tasks read, and ranges in pieces of whole lines."""

from distrain.etl.texts.pieces import (
    TextRange as TextRange,
    check_stream as check_stream,
    count_lines_before as count_lines_before,
    parsed_pieces as parsed_pieces,
    plan_all as plan_all,
    read_pieces as read_pieces,
)
