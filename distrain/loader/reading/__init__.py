"""Decodes row groups to columns with Arrow, fetched ahead where remote; refuses changed files.

`raw` is imported where rows are raw: it needs the ETL.
"""
