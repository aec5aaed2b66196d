"""Reads the records of `metrics.jsonl` that are new since a cursor, while the file grows.

The file grows line by line, and is written anew when records in it no longer count. A cursor holds
the file's number, a place in it, and a checksum of the bytes before that place. These differ in a
file that was written anew.
"""

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from distrain.runs.run_folder import RunFileReader

_LONGEST_BYTES = 8 * 2**20
_CHECKED_BYTES = 4096


@dataclass(frozen=True)
class NewRecords:
    records: tuple[Mapping[str, Any], ...]
    cursor: str  # where the next call goes on
    restart: bool  # whether these are from the beginning: earlier ones no longer count
    more: bool  # whether more can be read now
    damaged: int = 0  # how many lines are no records


def read_new_records(file: RunFileReader | None, since: str | None, limit_bytes: int) -> NewRecords:
    """Read whole lines after a cursor, up to a limit, or one line that is longer.

    Without a cursor, `since`, from the beginning; a bad one is a `ValueError`. `file` is `None`
    while there is none.
    """
    cursor_before = _parsed(since) if since is not None else None
    if file is None:
        return NewRecords(
            (), _cursor(0, 0, 0), cursor_before is None or cursor_before[1] > 0, more=False
        )
    number, size = file.number, file.size_bytes
    start = (
        cursor_before[1] if cursor_before is not None and _holds(file, number, cursor_before) else 0
    )
    restart = cursor_before is None or start != cursor_before[1]
    lines = _whole_lines(file, start, limit_bytes, size)
    parsed = [_record(line) for line in lines.splitlines()]
    records = tuple(record for record in parsed if record is not None)
    end = start + len(lines)
    cursor = _cursor(number, end, _checksum(file, end))
    more = bool(_whole_lines(file, end, min(limit_bytes, _CHECKED_BYTES), size))
    return NewRecords(records, cursor, restart, more, len(parsed) - len(records))


def _whole_lines(file: RunFileReader, start: int, limit_bytes: int, size: int) -> bytes:
    while True:
        data = file.pread(limit_bytes, start)
        whole = data[: data.rfind(b"\n") + 1]
        if whole or start + limit_bytes >= size:
            return whole
        if limit_bytes >= _LONGEST_BYTES:  # no line of ours: a file of zeros, say
            return b""
        limit_bytes *= 2  # a line that is longer than the limit


def _record(line: bytes) -> Mapping[str, Any] | None:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _holds(file: RunFileReader, number: int, cursor: tuple[int, int, int]) -> bool:
    return cursor[0] in (0, number) and _checksum(file, cursor[1]) == cursor[2]


def _checksum(file: RunFileReader, end: int) -> int:
    begin = max(0, end - _CHECKED_BYTES)
    data = file.pread(end - begin, begin) if end else b""
    return zlib.crc32(data) if len(data) == end - begin else -1


def _cursor(number: int, place: int, checksum: int) -> str:
    return f"{number:x}.{place:x}.{checksum:x}"


def _parsed(cursor: str) -> tuple[int, int, int]:
    try:
        number, place, checksum = (int(part, 16) for part in cursor[:100].split("."))
    except ValueError as error:
        raise ValueError("this is no cursor of metrics") from error
    if min(number, place, checksum) < 0 or max(number, place, checksum) >= 2**63:
        raise ValueError("this is no cursor of metrics")
    return number, place, checksum
