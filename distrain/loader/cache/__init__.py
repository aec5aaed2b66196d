"""The raw format: a folder of row groups as plain values, which are read instead of the source.

`row_cache` stores what a reader decodes, `pack` fills a folder in advance, `entry` is the format.
"""
