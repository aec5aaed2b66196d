"""Vocabularies in files that workers map into memory for lookups: of any size, read once.

The processes of a machine share the pages of these files, and the kernel reclaims them when it
needs the memory.
"""
