"""Vocabularies of any size, in files that workers map into memory to look up values.

The processes of a machine share the pages of these files, and the kernel reclaims them when it
needs the memory.
"""
