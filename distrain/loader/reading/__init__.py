"""Decodes row groups to columns with Arrow, retries, and refuses files that changed."""

from distrain.loader.reading.arrow import ArrowReader, null_error
from distrain.loader.reading.reader import (
    DecodedColumns,
    Reader,
    RetryingReader,
    SameFilesReader,
    SharedReader,
    unreadable,
)

__all__ = [
    "ArrowReader",
    "DecodedColumns",
    "RetryingReader",
    "Reader",
    "SameFilesReader",
    "SharedReader",
    "null_error",
    "unreadable",
]
