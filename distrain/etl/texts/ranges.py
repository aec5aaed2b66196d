"""Text files cut into ranges of bytes, each read by one task.

A line belongs to the range that holds its first byte. A compressed file is cut where one of its
members begins (`compressed.py`); one member is one range.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from distrain.etl.texts.compressed import cuts_of
from distrain.etl.workers import TaskRunner
from distrain.storage import InputFile


@dataclass(frozen=True)
class TextRange:
    path: str
    start: int = 0  # first byte; of a compressed file the first of a member
    # one past the last byte in which a line may start; of a compressed file, one past a member's
    # last byte, or `None` for the file's end
    stop: int | None = None
    codec: str | None = None  # `gzip`, `zstd` or `None`


def plan_ranges(file: InputFile, codec: str | None, block_bytes: int) -> list[TextRange]:
    """The ranges of one file.

    >>> [(r.start, r.stop) for r in plan_ranges(InputFile("day_0", 25), None, 10)]
    [(0, 10), (10, 20), (20, 25)]
    """
    if codec:
        return [TextRange(file.path, codec=codec)]
    starts = range(0, file.size_bytes, block_bytes)
    return [TextRange(file.path, s, min(s + block_bytes, file.size_bytes)) for s in starts]


def plan_all(
    files: Sequence[tuple[InputFile, str | None]], block_bytes: int, runner: TaskRunner
) -> list[list[TextRange]]:
    """The ranges of each file, given with its codec; tasks look into large compressed ones."""
    large = [
        number
        for number, (file, codec) in enumerate(files)
        if codec and file.size_bytes > block_bytes
    ]
    tasks = [(*files[number], block_bytes) for number in large]
    found = dict(zip(large, runner.run("cut", plan_compressed, tasks), strict=True))
    return [
        found[number] if number in found else plan_ranges(file, codec, block_bytes)
        for number, (file, codec) in enumerate(files)
    ]


def plan_compressed(file: InputFile, codec: str, block_bytes: int) -> list[TextRange]:
    cuts = cuts_of(file.path, codec, file.size_bytes, block_bytes)
    return [
        TextRange(file.path, start, stop, codec)
        for start, stop in zip(cuts, [*cuts[1:], None], strict=True)
    ]
