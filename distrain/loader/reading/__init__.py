"""Decodes row groups to columns with Arrow, fetched ahead where remote; refuses changed files."""

from distrain.loader.reading.arrow import ArrowReader, null_error, null_item_error
from distrain.loader.reading.fetcher import FetchOptions
from distrain.loader.reading.reader import (
    DecodedColumns,
    Expected,
    Reader,
    RetryingReader,
    SameFilesReader,
    SharedReader,
    join_decoded,
    parts_after,
    unreadable,
)

__all__ = [
    "ArrowReader",
    "DecodedColumns",
    "Expected",
    "FetchOptions",
    "RetryingReader",
    "Reader",
    "SameFilesReader",
    "SharedReader",
    "join_decoded",
    "null_error",
    "null_item_error",
    "parts_after",
    "unreadable",
]
