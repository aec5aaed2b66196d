"""The fast layout: parquet that any tool opens, and that needs no decoding.

Columns are int32 and float32 or lists of these, not nullable, neither compressed nor encoded, one
page per column chunk: behind a header lie the raw values. `PackedReader` reads a row group with one
call into a buffer, checks its checksum, and hands out views. `pack` writes such files from any
parquet that the loader can read; `CachingReader` keeps row groups of slower sources in this layout.
"""
