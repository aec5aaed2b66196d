"""Vocabularies in files that workers map into memory to look values up: of any size, read once.

The processes of a machine share the pages of these files, and the kernel takes them back when it
needs the memory.
"""
