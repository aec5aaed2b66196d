"""The raw format: a folder of row groups as plain values, which are read instead of the source.

`row_cache` keeps what a reader decodes, `pack` fills a folder beforehand, `entry` is the format.
"""
