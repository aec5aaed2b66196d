"""Reads values from the names of folders, as in `.../day=2026-11/hour=7/part-0.parquet`."""

from urllib.parse import unquote

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
"""The value that means null in the name of a folder `key=value`."""


def folder_values(path: str) -> tuple[tuple[str, str], ...]:
    """Return the key and value of each folder `key=value` directly above a file, URL-decoded.

    The outermost folder is first. Folders above one that is not named `key=value` are ignored,
    since folders above the table do not describe its rows.

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
