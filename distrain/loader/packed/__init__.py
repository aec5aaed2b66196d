"""The fast layout: parquet that any tool opens, and that needs no decoding.

Columns are int32 and float32 or lists of these, not nullable, neither compressed nor encoded, one
page per column chunk: behind a header lie the raw values. `PackedReader` reads a row group with one
call into a buffer, checks its checksum, and hands out views. `pack` writes such files from any
parquet that the loader can read; `CachingReader` keeps row groups of slower sources in this layout.
"""

from distrain.loader.packed.cache import (
    CachingReader as CachingReader,
)
from distrain.loader.packed.pack import PackReport as PackReport, pack as pack
from distrain.loader.packed.reader import PackedReader as PackedReader
from distrain.loader.packed.writer import MOST_GROUP_ROWS as MOST_GROUP_ROWS
