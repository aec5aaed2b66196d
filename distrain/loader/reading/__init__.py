"""Decodes row groups to columns with Arrow, fetched ahead where remote; refuses changed files.

`raw` is imported where rows are raw: it needs the ETL.
"""

from distrain.loader.reading.arrow import (
    ArrowReader as ArrowReader,
    null_error as null_error,
    null_item_error as null_item_error,
)
from distrain.loader.reading.reader import (
    DecodedColumns as DecodedColumns,
    Expected as Expected,
    Reader as Reader,
    RetryingReader as RetryingReader,
    SameFilesReader as SameFilesReader,
    SharedReader as SharedReader,
    TableReader as TableReader,
    join_decoded as join_decoded,
    parts_after as parts_after,
    taken_rows as taken_rows,
    unreadable as unreadable,
)
