"""Columns whose values are in the names of folders: `.../day=2026-11/hour=7/part-0.parquet`."""

from urllib.parse import unquote

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
"""The folder name of a missing value."""


def folder_values(path: str) -> tuple[tuple[str, str], ...]:
    """Return keys and values of the folders directly above a file, outermost first, URL-decoded.

    Only the unbroken run of `key=value` folders that ends at the file counts. Folders above the
    table do not describe its rows.

    >>> folder_values("s3://runs/try=3/clicks/day=7/name=a%20b/part-0.parquet")
    (('day', '7'), ('name', 'a b'))
    """
    pairs = []
    for folder in reversed(path.split("/")[:-1]):
        key, equals, value = folder.partition("=")
        if not key or not equals:
            break
        pairs.append((unquote(key), unquote(value)))
    return tuple(reversed(pairs))
