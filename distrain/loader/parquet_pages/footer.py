"""What the footer of a parquet file says about its column chunks, without Arrow.

pyarrow ends the process where it is asked for a codec that does not exist, as damaged footers have.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection
from typing import IO, NamedTuple

from distrain.loader.kernel_version import check_kernel_version

try:
    from distrain.loader.parquet_pages import _pages
except ImportError:  # built without a compiler
    IS_BUILT = False
else:
    IS_BUILT = True

KERNEL_VERSION = 7
"""That of the C code that these Python files call; `_pages.c` has the same number."""

CODECS = ("UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4_HADOOP", "ZSTD", "LZ4")
"""By their numbers; LZ4 is what parquet calls LZ4_RAW, as in pyarrow."""

_MAGIC = b"PAR1"
_TAIL_BYTES = 8  # the footer's length, and the magic word


if IS_BUILT:
    check_kernel_version(
        "distrain/loader/parquet_pages/_pages", getattr(_pages, "VERSION", None), KERNEL_VERSION
    )


class ChunkFacts(NamedTuple):
    """A column chunk as the footer has it; -1 for what it does not tell."""

    type: int  # the number of its physical type
    codec: int  # A number, in `CODECS` if it is known
    num_values: int  # its values and nulls
    num_bytes: int  # compressed
    data_page: int  # where its first data page begins in the file
    dictionary_page: int  # where its dictionary begins in the file, before the data pages
    nulls: int  # how many there are
    encodings: int  # A bit for the number of each
    is_elsewhere: int  # whether it lies in another file or is encrypted


def chunks_of(row_group: bytes | memoryview) -> list[ChunkFacts]:
    """The column chunks in a row group's part of a footer; a `ValueError` if that is damaged."""
    return [ChunkFacts(*facts) for facts in _pages.chunks(row_group)]


def read_row_groups(read_at: Callable[[int, int], bytes], num_bytes: int) -> list[memoryview]:
    """Return each row group's part of the footer of a file of `num_bytes`; raises as `chunks_of`.

    `read_at` reads from a place on so many bytes of the file.
    """
    end = num_bytes - _TAIL_BYTES
    tail = read_at(max(0, end), _TAIL_BYTES)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != _MAGIC or length > end:
        raise ValueError("the file does not end with a footer")
    footer = memoryview(read_at(end - length, length))
    bounds = _pages.row_groups(footer)
    return [footer[a:b] for a, b in itertools.pairwise(bounds)]


def codec_bytes(handle: IO[bytes], columns: Collection[int]) -> list[Counter[str]]:
    """Compressed bytes of columns by codec for each row group; empty if laid out otherwise."""
    if not IS_BUILT:
        return []
    found: list[Counter[str]] = []

    def read_at(start: int, count: int) -> bytes:
        handle.seek(start)
        return handle.read(count)

    try:
        for part in read_row_groups(read_at, handle.seek(0, 2)):
            chunks = chunks_of(part)
            sizes: Counter[str] = Counter()
            for facts in (chunks[number] for number in columns if number < len(chunks)):
                if 0 <= facts.codec < len(CODECS):
                    sizes[CODECS[facts.codec]] += facts.num_bytes
            found.append(sizes)
    except ValueError:
        return []
    return found
