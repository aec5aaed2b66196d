"""Text files to blocks of whole lines.

A plain file is cut into byte ranges, read by as many tasks: a line belongs to the range that holds
its first byte. A compressed file can only be read from its start, so one task streams it, block
by block, in bounded memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

import pyarrow as pa

from distrain.errors import DataError
from distrain.storage import InputFile, open_input

_LONGEST_LINE_BYTES = 1 << 20
_COUNT_BYTES = 8 << 20
_TAIL_BYTES = 64 << 10


@dataclass(frozen=True)
class TextRange:
    """What one task reads.

    Attributes:
        path: The file.
        start: First byte; 0 for a compressed file.
        stop: One past the last byte in which a line may start; `None` for a compressed file.
        codec: `gzip`, `zstd` or `None`.
    """

    path: str
    start: int = 0
    stop: int | None = None
    codec: str | None = None


def plan_ranges(file: InputFile, codec: str | None, block_bytes: int) -> list[TextRange]:
    """The ranges of one file.

    >>> [(r.start, r.stop) for r in plan_ranges(InputFile("day_0", 25), None, 10)]
    [(0, 10), (10, 20), (20, 25)]
    """
    if codec:
        return [TextRange(file.path, codec=codec)]
    starts = range(0, file.size_bytes, block_bytes)
    return [TextRange(file.path, s, min(s + block_bytes, file.size_bytes)) for s in starts]


def read_blocks(text: TextRange, block_bytes: int) -> Iterator[bytes]:
    """The blocks of a range, each of whole lines.

    Raises:
        DataError: The file is missing, cut short or no text.
    """
    with open_input(text.path) as handle:
        if text.codec is None:
            yield _read_range(handle, text)
        else:
            yield from _stream(handle, text, block_bytes)


def count_lines_before(text: TextRange) -> int:
    """How many lines start before a range; reads all that is before, so only call it on failure."""
    total, left = 0, text.start - 1
    with open_input(text.path) as handle:
        while left > 0 and (data := handle.read(min(left, _COUNT_BYTES))):
            total += data.count(b"\n")
            left -= len(data)
        # The first line of the range starts after the next line end.
        return total + 1 if text.start else 0


def _read_range(handle: IO[bytes], text: TextRange) -> bytes:
    assert text.stop is not None
    # One byte early: a line that starts exactly at `start` follows a line end at `start - 1`.
    first = max(text.start - 1, 0)
    handle.seek(first)
    data = handle.read(text.stop - first)
    if len(data) < text.stop - first:
        raise DataError(
            "the file became shorter while it was read",
            where={"file": text.path},
            hint="Another program may still be writing it.",
        )
    if text.start:
        cut = data.find(b"\n")
        if cut < 0:
            return b""
        data = data[cut + 1 :]
    if not data or data.endswith(b"\n"):
        return data
    return data + _rest_of_line(handle, text)


def _rest_of_line(handle: IO[bytes], text: TextRange) -> bytes:
    """What is left of the line that the handle stands in; fsspec's `readline` knows no limit."""
    rest = b""
    while len(rest) < _LONGEST_LINE_BYTES and (data := handle.read(_TAIL_BYTES)):
        rest += data
        end = data.find(b"\n")
        if end >= 0:
            return rest[: len(rest) - len(data) + end + 1]
    if len(rest) >= _LONGEST_LINE_BYTES:
        raise _no_line_end(text, _LONGEST_LINE_BYTES)
    return rest


def _stream(handle: IO[bytes], text: TextRange, block_bytes: int) -> Iterator[bytes]:
    rest = b""
    longest = max(block_bytes, _LONGEST_LINE_BYTES)
    try:
        source = pa.CompressedInputStream(pa.PythonFile(handle, mode="r"), text.codec)
        while data := _read_full(source, block_bytes):
            # At the end of the file a line without its line end is no block of its own.
            at_end = len(data) < block_bytes
            cut = len(data) if at_end else data.rfind(b"\n") + 1
            if cut:
                yield rest + data[:cut]
                rest = data[cut:]
            else:
                rest += data
                if len(rest) > longest:
                    raise _no_line_end(text, longest)
    except OSError as error:
        raise DataError(
            f"the {text.codec} file cannot be decompressed: {error}",
            where={"file": text.path},
            hint="It was cut short or damaged; get it again.",
        ) from None
    if rest:
        yield rest


def _read_full(source: IO[bytes], size_bytes: int) -> bytes:
    """The next `size_bytes` bytes; fewer only at the end."""
    data = source.read(size_bytes)
    while len(data) < size_bytes and (more := source.read(size_bytes - len(data))):
        data += more
    return data


def _no_line_end(text: TextRange, size_bytes: int) -> DataError:
    return DataError(
        f"no line end within {size_bytes:,} bytes",
        where={"file": text.path},
        hint="That is no text file of Criteo rows.",
    )
