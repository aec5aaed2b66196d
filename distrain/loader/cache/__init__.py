"""The row cache: decoded row groups in a folder, which are read instead of the source files.

`row_group_cache` stores the columns that a reader decodes, `pack` fills a folder in advance, and
`entry` defines the file format.
"""
