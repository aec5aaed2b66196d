"""Divides text files into ranges of bytes, and reads a range in pieces of whole lines.

Compressed text is decompressed by one thread, and parsed by other threads at the same time.

A line belongs to the range that holds its first byte. A compressed file is one range. Memory is
bounded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO, TypeVar, cast

from distrain.errors import DataError
from distrain.prep.bad_lines import num_lines
from distrain.prep.text_files.compressed import Inflated, read_errors
from distrain.storage.inputs import InputFile, open_input
from distrain.storage.retrying import RETRY_S

_LONGEST_LINE_BYTES = 1 << 20
# Pieces of this size are parsed and written before more text is read: they fit the CPU cache.
_PIECE_BYTES = 4 << 20
_COUNT_BYTES = 8 << 20
_TAIL_BYTES = 64 << 10
_PARSING_THREADS = 2

_END = object()

Item = TypeVar("Item")
Parsed = TypeVar("Parsed")


def read_pieces(text: TextRange, block_bytes: int) -> Generator[tuple[int, bytes], None, None]:
    """Yield a range's text in pieces of whole lines, in order, each with the number of its block.

    A plain range is one block; a compressed file has one block for each `block_bytes` of text.
    Raises `DataError` for a file that cannot be read, damaged content, or a line that is too long,
    and `Unavailable` if the storage does not answer.
    """
    with read_errors(text.path), open_input(text.path, retry_s=RETRY_S) as handle:
        if text.codec is None:
            for piece in _read_range(handle, text):
                yield 0, piece
        else:
            yield from _stream(handle, text, block_bytes)


def parsed_pieces(
    text: TextRange, block_bytes: int, parse: Callable[[bytes, int], Parsed]
) -> Generator[tuple[int, Parsed], None, None]:
    """Yield the result of `parse` for each piece of a range, in order, with its block's number.

    Compressed text is decompressed by one thread and parsed by other threads, ahead of the caller.

    Args:
        parse: Called with a piece, and the number of the range's lines before the piece.
    """

    def parsed(piece: tuple[int, int, bytes]) -> tuple[int, Parsed]:
        number, lines_before, content = piece
        return number, parse(content, lines_before)

    pieces = _with_lines_before(read_pieces(text, block_bytes))
    if text.codec is None:
        yield from map(parsed, pieces)
    else:
        yield from map_ahead(parsed, pieces, _PARSING_THREADS)


def map_ahead(
    make: Callable[[Item], Parsed], items: Generator[Item, None, None], threads: int
) -> Generator[Parsed, None, None]:
    """Yield the result of `make` for each item, in order, computed ahead of the caller.

    One thread iterates over the items, and `threads` other threads compute results; at most
    `threads + 1` results are in progress or waiting. An error is raised in the place of its result.
    If the caller stops early, `items` is closed.

    >>> list(map_ahead(lambda n: n * n, (n for n in range(4)), 2))
    [0, 1, 4, 9]
    """
    waiting: deque[Future[object]] = deque()

    def made_of(item: Future[object]) -> object:
        value = item.result()
        return _END if value is _END else make(cast(Item, value))

    with (
        ThreadPoolExecutor(1, thread_name_prefix="distrain-items") as source,
        ThreadPoolExecutor(threads, thread_name_prefix="distrain-ahead") as makers,
    ):

        def begin_one() -> None:
            item: Future[object] = source.submit(next, items, _END)
            waiting.append(makers.submit(made_of, item))

        try:
            for _ in range(threads + 1):
                begin_one()
            while (result := waiting.popleft().result()) is not _END:
                begin_one()
                yield cast(Parsed, result)
        finally:
            makers.shutdown(cancel_futures=True, wait=False)
            source.shutdown(cancel_futures=True)  # makers end whose item is cancelled
            items.close()


def _with_lines_before(
    pieces: Iterator[tuple[int, bytes]],
) -> Generator[tuple[int, int, bytes], None, None]:
    lines = 0
    for number, piece in pieces:
        yield number, lines, piece
        lines += num_lines(piece)


def count_lines_before(text: TextRange) -> int:
    """Return how many lines start before a range; reads all of them, so only call it on failure."""
    if not text.start:
        return 0
    total = 1  # the line that began before the range; the loops count the other line ends
    with read_errors(text.path), open_input(text.path, retry_s=RETRY_S) as handle:
        left = text.start - 1
        while left > 0 and (data := handle.read(min(left, _COUNT_BYTES))):
            total += data.count(b"\n")
            left -= len(data)
        return total


class _WholeLines:
    """Takes text in parts of any size, and returns it in pieces of whole lines.

    Attributes:
        is_within_line_before: Whether all text so far belongs to a line of the previous range; such
            text is skipped.
        rest: The text after the last line end.
    """

    def __init__(self, text: TextRange):
        self.is_within_line_before = text.start > 0
        self.rest = b""

    def cut(self, data: bytes) -> bytes:
        """Add text; return all complete lines that were not returned before."""
        if self.is_within_line_before:
            if (end := data.find(b"\n")) < 0:
                return b""
            data, self.is_within_line_before = data[end + 1 :], False
        cut = data.rfind(b"\n") + 1
        before, self.rest = self.rest, data[cut:] if cut else self.rest + data
        return before + data[:cut] if cut else b""


def _read_range(handle: IO[bytes], text: TextRange) -> Iterator[bytes]:
    assert text.stop is not None
    # One byte early: a line that starts exactly at `start` follows a line end at `start - 1`.
    left = text.stop - max(text.start - 1, 0)
    handle.seek(max(text.start - 1, 0))
    lines = _WholeLines(text)
    while left:
        data = handle.read(min(left, _PIECE_BYTES))
        if not data:
            raise DataError(
                "the file became shorter while it was read",
                where={"file": text.path},
                hint="Another program may still be writing it.",
            )
        left -= len(data)
        if piece := lines.cut(data):
            yield piece
        elif len(lines.rest) > max(_LONGEST_LINE_BYTES, _PIECE_BYTES):
            raise _no_line_end(text, _LONGEST_LINE_BYTES)
    if lines.rest:
        yield lines.rest + _rest_of_line(handle, text)


def _rest_of_line(handle: IO[bytes], text: TextRange) -> bytes:
    """Return the rest of the handle's current line.

    Raises a `DataError` if the rest exceeds 1 MiB; fsspec's `readline` would have no limit.
    """
    rest = b""
    while len(rest) < _LONGEST_LINE_BYTES and (data := handle.read(_TAIL_BYTES)):
        rest += data
        end = data.find(b"\n")
        if end >= 0:
            return rest[: len(rest) - len(data) + end + 1]
    if len(rest) >= _LONGEST_LINE_BYTES:
        raise _no_line_end(text, _LONGEST_LINE_BYTES)
    return rest


def _stream(
    handle: IO[bytes], text: TextRange, block_bytes: int
) -> Generator[tuple[int, bytes], None, None]:
    """Yield pieces of whole lines, each with the number of the block in which its last line ends.

    Raises `DataError` for a line that is too long, and for damaged content.
    """
    assert text.codec is not None
    longest = max(block_bytes, _LONGEST_LINE_BYTES)
    lines = _WholeLines(text)
    source = Inflated(handle, text.path, text.codec)
    number, left = 0, block_bytes
    while data := source.read(min(left, _PIECE_BYTES)):
        of_block = number
        left -= len(data)
        if not left:
            number, left = number + 1, block_bytes
        if piece := lines.cut(data):
            yield of_block, piece
        elif len(lines.rest) > longest:
            raise _no_line_end(text, longest)
    if lines.rest:
        yield number, lines.rest


def _no_line_end(text: TextRange, size_bytes: int) -> DataError:
    return DataError(
        f"no line end within {size_bytes:,} bytes",
        where={"file": text.path},
        hint="Is it text with lines that end with \\n? This is the longest line allowed.",
    )


@dataclass(frozen=True)
class TextRange:
    """The lines of a text file that one task reads."""

    path: str
    start: int = 0  # first byte
    # one past the last byte in which a line may start; `None` for the end of a compressed file
    stop: int | None = None
    codec: str | None = None  # `gzip`, `zstd` or `None`


def plan_ranges(file: InputFile, codec: str | None, block_bytes: int) -> list[TextRange]:
    """Divide a file into ranges of `block_bytes`; a compressed file is one range.

    >>> [(r.start, r.stop) for r in plan_ranges(InputFile("day_0", 25), None, 10)]
    [(0, 10), (10, 20), (20, 25)]
    """
    if codec:
        return [TextRange(file.path, codec=codec)]
    starts = range(0, file.size_bytes, block_bytes)
    return [TextRange(file.path, s, min(s + block_bytes, file.size_bytes)) for s in starts]
