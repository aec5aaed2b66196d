"""Decodes row groups to columns with Arrow. Prefetches remote files; rejects changed files.

`raw_rows` is imported only to read raw rows, since it imports `prep`.
"""
