"""Reads the records added to a run since a cursor, while the run trains.

Attempts are read one after the other, each up to the step at which a later attempt began. A cursor
holds the number of the newest attempt, a position in an attempt's file, and the last step of each
kind of record. If a newer attempt began before one of these steps, reading restarts from the
beginning.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from distrain.runs.attempts import EARLIER, name_of, numbers_of, whole_lines
from distrain.runs.stored.folder import OpenRunFolder

_LONGEST_BYTES = 8 * 2**20
_HEAD_BYTES = 2**16
_SPLITS = ("train", "valid", "next_window")


@dataclass(frozen=True)
class NewRecords:
    """The records of a run after a cursor, and the next cursor."""

    records: tuple[Mapping[str, Any], ...]
    cursor: str  # where the next call continues
    restart: bool  # whether these records replace all earlier ones
    more: bool  # whether more can be read now
    damaged: int = 0  # the number of lines that are not records


@dataclass
class _Cursor:
    """The position after the records that were read; its text is `NewRecords.cursor`."""

    newest: int = -1  # the newest attempt that had begun to train
    attempt: int = -1  # the attempt whose file was read last
    offset: int = 0  # the number of bytes read of that file
    # the last step of each kind of record
    steps: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_SPLITS, -1))

    @classmethod
    def parse(cls, text: str) -> "_Cursor":
        try:
            newest, attempt, offset, *steps = (int(part, 16) for part in text[:100].split("."))
            last_steps = dict(zip(_SPLITS, (step - 1 for step in steps), strict=True))
        except ValueError as error:
            raise ValueError("this is not a cursor of metrics") from error
        if max(newest, attempt, offset) >= 2**63:
            raise ValueError("this is not a cursor of metrics")
        return cls(newest - 1, attempt - 1, offset, last_steps)

    def __str__(self) -> str:
        numbers = (self.newest + 1, self.attempt + 1, self.offset)
        return ".".join(f"{n:x}" for n in (*numbers, *(step + 1 for step in self.steps.values())))


@dataclass(frozen=True)
class _Part:
    attempt: int
    begin: int  # the step at which the attempt began
    until: float  # the lowest step at which a later attempt began; infinite without one


def read_new_records(
    folder: OpenRunFolder | None, since: str | None, limit_bytes: int
) -> NewRecords:
    """Read records after a cursor: up to `limit_bytes` of lines, or one longer line.

    Args:
        folder: The run folder; `None` while the run has none, which gives no records.
        since: The `cursor` of an earlier result; `None` to read from the beginning.

    Raises:
        ValueError: `since` is not a cursor.
    """
    cursor = _Cursor.parse(since) if since is not None else None
    parts = list(_parts(folder)) if folder is not None else []
    last_step = -1 if cursor is None else max(cursor.steps.values())
    restart = cursor is None or any(
        part.attempt > cursor.newest and part.begin < last_step for part in parts
    )
    if cursor is None or restart:
        cursor = _Cursor()
    cursor.newest = max((part.attempt for part in parts), default=-1)
    records: list[Mapping[str, Any]] = []
    damaged = read_bytes = 0
    for part in parts:
        if part.attempt < cursor.attempt:
            continue
        if part.attempt > cursor.attempt:
            cursor.attempt, cursor.offset = part.attempt, 0
        assert folder is not None
        while lines := _whole_lines(folder, part.attempt, cursor.offset, limit_bytes):
            if read_bytes and read_bytes + len(lines) > limit_bytes:
                return NewRecords(tuple(records), str(cursor), restart, True, damaged)
            read_bytes += len(lines)
            cursor.offset += len(lines)
            damaged += _take(lines, part, cursor.steps, records)
    return NewRecords(tuple(records), str(cursor), restart, False, damaged)


def _parts(folder: OpenRunFolder) -> Iterator[_Part]:
    """Yield the attempts that have begun to train, oldest first."""
    numbers = numbers_of(folder)
    begun = {EARLIER: 0} if EARLIER in numbers else {}
    for number in numbers:
        if number != EARLIER and (step := _first_step(folder, number)) is not None:
            begun[number] = step
    for number, step in begun.items():
        later = (other for one, other in begun.items() if one > number)
        yield _Part(number, step, min(later, default=math.inf))


def _first_step(folder: OpenRunFolder, number: int) -> int | None:
    """Return the step at which an attempt began to train; `None` if it has not begun."""
    for line in whole_lines(folder, number, _HEAD_BYTES):
        entry = _parsed(line)
        if entry is not None and entry.get("entry") == "resumed":
            return int(entry["step"])
    return None


def _take(
    lines: bytes, part: _Part, steps: dict[str, int], records: list[Mapping[str, Any]]
) -> int:
    """Append the records in `lines` to `records`; return the number of damaged lines.

    Skips records up to the last step of their kind in `steps` (which is updated), and records of
    steps that a later attempt repeats. `part` is the attempt of the lines.
    """
    damaged = 0
    for line in lines.splitlines():
        entry = _parsed(line)
        if entry is None:
            damaged += 1
            continue
        step, split = entry.get("step"), entry.get("split")
        if entry.pop("entry", "record") != "record" or not isinstance(step, int):
            continue
        if 0 < (entry.get("attempt") or 0) < part.attempt and step > part.begin:
            continue  # a record of an earlier attempt, whose step this attempt repeats
        if split in steps and steps[split] < step <= part.until:
            steps[split] = step
            records.append(entry)
    return damaged


def _whole_lines(folder: OpenRunFolder, number: int, start: int, limit_bytes: int) -> bytes:
    """Return complete lines of an attempt's file from byte `start` on; b"" if there are none.

    They have up to `limit_bytes`. If the first line is longer, the limit is doubled until the line
    fits, to at least 8 MiB; a line that does not fit then counts as none.
    """
    while True:
        data = folder.read_growing(name_of(number), start, limit_bytes)
        whole = data[: data.rfind(b"\n") + 1]
        if whole or len(data) < limit_bytes:
            return whole
        if limit_bytes >= _LONGEST_BYTES:  # not a line that distrain wrote, such as zeros
            return b""
        limit_bytes *= 2  # a line that is longer than the limit


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None
