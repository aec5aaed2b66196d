"""Reads size, offset and codec of column chunks from the footer of a parquet file, without Arrow.

A damaged footer may have a codec that does not exist; pyarrow aborts the process if that is read.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

from distrain.loader.kernel_version import check_kernel_version

try:
    from distrain.loader.parquet_pages import _pages
except ImportError:  # built without a compiler
    IS_BUILT = False
else:
    IS_BUILT = True

KERNEL_VERSION = 8
"""The version of the C code that this package needs; `_pages.c` must have the same number."""

_MAGIC = b"PAR1"
TAIL_BYTES = 8  # the footer's length, and the magic word


if IS_BUILT:
    check_kernel_version(
        "distrain/loader/parquet_pages/_pages", getattr(_pages, "VERSION", None), KERNEL_VERSION
    )


class ChunkFacts(NamedTuple):
    """A column chunk as described by the footer; -1 for missing values."""

    type: int  # the number of its physical type
    codec: int  # its number in the footer
    num_values: int  # number of values, including nulls
    num_bytes: int  # compressed size
    data_page: int  # offset of its first data page in the file
    dictionary_page: int  # offset of its dictionary in the file, before the data pages
    nulls: int  # number of nulls
    encodings: int  # bit mask of the numbers of its encodings
    is_elsewhere: int  # whether it is in another file or encrypted


def chunks_of(row_group: bytes | memoryview) -> list[ChunkFacts]:
    """Return the facts of each column chunk, from a row group's part of a footer.

    Raises:
        ValueError: The bytes are damaged.
    """
    return [ChunkFacts(*facts) for facts in _pages.chunks(row_group)]


def read_row_groups(read_at: Callable[[int, int], bytes], num_bytes: int) -> list[memoryview]:
    """Return each row group's part of the footer of a file of `num_bytes` bytes.

    `read_at(start, count)` must return bytes of the file.

    Raises:
        ValueError: The footer is missing or damaged.
    """
    end = num_bytes - TAIL_BYTES
    tail = read_at(max(0, end), TAIL_BYTES)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != _MAGIC or length > end:
        raise ValueError("the file does not end with a footer")
    footer = memoryview(read_at(end - length, length))
    bounds = _pages.row_groups(footer)
    return [footer[a:b] for a, b in itertools.pairwise(bounds)]
