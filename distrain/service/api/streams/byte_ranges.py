"""The header `Range` as RFC 9110 has it; pure."""

import re

_ONE_RANGE = re.compile(r"bytes=[ \t]*([0-9]*)-([0-9]*)[ \t]*", re.IGNORECASE)


class NoSuchBytes(ValueError):
    pass


def wanted_range(header: str | None, size_bytes: int) -> tuple[int, int] | None:
    """The first byte of a range, and the one behind its last; `None`: all of the file.

    A header with a mistake, with several ranges or of another unit is ignored, as RFC 9110 allows.
    A range beyond the file raises `NoSuchBytes`.

    >>> wanted_range("bytes=2-4", 10), wanted_range("bytes=-3", 10), wanted_range("bytes=8-", 10)
    ((2, 5), (7, 10), (8, 10))
    """
    found = _ONE_RANGE.fullmatch(header or "")
    if found is None or not any(found.groups()):
        return None
    if not found[1]:
        length = min(int(found[2][:20]), size_bytes)
        if not length:
            raise NoSuchBytes(header)
        return size_bytes - length, size_bytes
    first = int(found[1][:20])
    last = int(found[2][:20]) if found[2] else size_bytes - 1
    if found[2] and last < first:
        return None
    if first >= size_bytes:
        raise NoSuchBytes(header)
    return first, min(last + 1, size_bytes)
