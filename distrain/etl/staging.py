"""Text files to staging files: typed Arrow files, one per block of lines, gone after the run.

A plain file is cut into byte ranges, read by as many tasks: a line belongs to the range that holds
its first byte. A compressed file is cut where one of its members begins, or has an index
(`compressed.py`); else one task streams it from its start. Tasks work block by block, in bounded
memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import IO

import pyarrow as pa

from distrain.errors import DataError
from distrain.etl.compressed import INDEX_SUFFIX, Inflated, cuts_of, index_gzip, open_indexed
from distrain.etl.parts import STAGED_SUFFIX, Part, write_staged
from distrain.etl.raw_lines import (
    BYTE_ORDER_MARK,
    RAW_COLUMNS,
    STAGED_SCHEMA,
    BadLine,
    BadLineTally,
    TextLayout,
    parse_lines,
    shown,
    split_bad_lines,
)
from distrain.etl.workers import TaskRunner
from distrain.storage import RETRY_S, InputFile, open_input

_LONGEST_LINE_BYTES = 1 << 20
# Text that is parsed and written before more is read: it stays in the processor's cache.
_PIECE_BYTES = 4 << 20
_COUNT_BYTES = 8 << 20
_TAIL_BYTES = 64 << 10


@dataclass(frozen=True)
class TextRange:
    """The bytes that one task reads.

    Attributes:
        path: The file.
        start: First byte; of a compressed file the first of a member.
        stop: One past the last byte in which a line may start; of a compressed file, one past a
            member's last byte, or `None` for the file's end.
        codec: `gzip`, `zstd` or `None`.
        index: An index of a gzip file, with which `start` and `stop` count bytes of text.
    """

    path: str
    start: int = 0
    stop: int | None = None
    codec: str | None = None
    index: str | None = None

    @property
    def is_plain(self) -> bool:
        """Whether places are those of the text itself."""
        return self.codec is None or self.index is not None


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
    files: Sequence[tuple[InputFile, str | None]],
    block_bytes: int,
    runner: TaskRunner,
    staging: str,
) -> list[list[TextRange]]:
    """The ranges of each file, given with its codec; large compressed ones are looked into.

    That happens in tasks, which leave indexes in the folder `staging`.
    """
    large = [
        number
        for number, (file, codec) in enumerate(files)
        if codec and file.size_bytes > block_bytes
    ]
    tasks = [
        (*files[number], block_bytes, f"{staging}/{number:05d}{INDEX_SUFFIX}") for number in large
    ]
    found = dict(zip(large, runner.run("cut", plan_compressed, tasks), strict=True))
    return [
        found[number] if number in found else plan_ranges(file, codec, block_bytes)
        for number, (file, codec) in enumerate(files)
    ]


def plan_compressed(file: InputFile, codec: str, block_bytes: int, index: str) -> list[TextRange]:
    """The ranges of a large compressed file; an index that it needs is written to `index`."""
    cuts = cuts_of(file.path, codec, file.size_bytes, block_bytes)
    if len(cuts) > 1:
        stops = [*cuts[1:], None]
        return [
            TextRange(file.path, start, stop, codec)
            for start, stop in zip(cuts, stops, strict=True)
        ]
    text_bytes = index_gzip(file.path, index) if codec == "gzip" else None
    if text_bytes is None:
        return plan_ranges(file, codec, block_bytes)
    ranges = plan_ranges(InputFile(file.path, text_bytes), None, block_bytes)
    return [replace(text, codec=codec, index=index) for text in ranges]


@contextmanager
def _opened(text: TextRange) -> Iterator[IO[bytes]]:
    with _reading(text):
        if text.index is None:
            with open_input(text.path, retry_s=RETRY_S) as handle:
                yield handle
        else:
            with open_indexed(text.path, text.index) as handle:
                yield handle


def read_pieces(text: TextRange, block_bytes: int) -> Iterator[tuple[int, bytes]]:
    """A range's text in pieces of whole lines, in order, each with the number of its block.

    A plain range is one block; a compressed one has one for each `block_bytes`.
    """
    with _opened(text) as handle:
        if text.is_plain:
            for piece in _read_range(handle, text):
                yield 0, piece
        else:
            for number, block in enumerate(_stream(handle, text, block_bytes)):
                for piece in _cut(block):
                    yield number, piece


def check_stream(text: TextRange) -> None:
    """Raise if a compressed range is damaged; reads all of it, so only call it on failure.

    A bit that has changed gives wrong bytes at first: the checksum at the end tells it.

    Raises:
        DataError: It cannot be decompressed, or its checksum is another one.
    """
    if text.codec is None:
        return
    start, stop = (text.start, text.stop) if text.index is None else (0, None)
    with open_input(text.path, retry_s=RETRY_S) as handle, _reading(text):
        source = Inflated(handle, text.path, text.codec, start, stop)
        while source.read(_COUNT_BYTES):
            pass


def count_lines_before(text: TextRange) -> int:
    """How many lines start before a range; reads all that is before, so only call it on failure."""
    if not text.is_plain:
        return _count_compressed_lines_before(text)
    total, left = 0, text.start - 1
    with _opened(text) as handle:
        while left > 0 and (data := handle.read(min(left, _COUNT_BYTES))):
            total += data.count(b"\n")
            left -= len(data)
        # The first line of the range starts after the next line end.
        return total + 1 if text.start else 0


def _count_compressed_lines_before(text: TextRange) -> int:
    if not text.start:
        return 0
    total = 1  # the one that ends in the range
    with open_input(text.path, retry_s=RETRY_S) as handle, _reading(text):
        assert text.codec is not None
        source = Inflated(handle, text.path, text.codec, 0, text.start)
        while data := source.read(_COUNT_BYTES):
            total += data.count(b"\n")
    return total


def _read_range(handle: IO[bytes], text: TextRange) -> Iterator[bytes]:
    assert text.stop is not None
    # One byte early: a line that starts exactly at `start` follows a line end at `start - 1`.
    left = text.stop - max(text.start - 1, 0)
    handle.seek(max(text.start - 1, 0))
    within_line_before = text.start > 0
    rest = b""
    while left:
        data = handle.read(min(left, _PIECE_BYTES))
        if not data:
            raise DataError(
                "the file became shorter while it was read",
                where={"file": text.path},
                hint="Another program may still be writing it.",
            )
        left -= len(data)
        if within_line_before:
            if (end := data.find(b"\n")) < 0:
                continue
            data, within_line_before = data[end + 1 :], False
        cut = data.rfind(b"\n") + 1
        if cut:
            yield rest + data[:cut]
            rest = data[cut:]
        else:
            rest += data
            if len(rest) > max(_LONGEST_LINE_BYTES, _PIECE_BYTES):
                raise _no_line_end(text, _LONGEST_LINE_BYTES)
    if rest:
        yield rest + _rest_of_line(handle, text)


def _cut(block: bytes) -> Iterator[bytes]:
    """A block of whole lines in pieces of whole lines."""
    begin = 0
    while len(block) - begin > _PIECE_BYTES:
        end = block.rfind(b"\n", begin, begin + _PIECE_BYTES) + 1
        if not end:  # a line longer than a piece
            break
        yield block[begin:end]
        begin = end
    yield block[begin:] if begin else block


def _rest_of_line(handle: IO[bytes] | Inflated, text: TextRange) -> bytes:
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
    """A range begins behind its first line end, and ends behind that of the range after it."""
    assert text.codec is not None
    rest = b""
    longest = max(block_bytes, _LONGEST_LINE_BYTES)
    within_line_before = text.start > 0
    source = Inflated(handle, text.path, text.codec, text.start, text.stop)
    at_end = False
    while not at_end and (data := source.read(block_bytes)):
        at_end = len(data) < block_bytes
        if within_line_before:
            if (end := data.find(b"\n")) < 0:
                continue
            data, within_line_before = data[end + 1 :], False
        # At the end of the file a line without its line end is no block of its own.
        cut = len(data) if at_end else data.rfind(b"\n") + 1
        if cut and not at_end:
            yield rest + data[:cut]
            rest = data[cut:]
        else:
            rest += data
            if not cut and len(rest) > longest:
                check_stream(text)
                raise _no_line_end(text, longest)
    if text.stop is not None and not within_line_before:
        after = Inflated(handle, text.path, text.codec, text.stop)
        rest += _rest_of_line(after, text)
    if rest:
        yield rest


@contextmanager
def _reading(text: TextRange) -> Iterator[None]:
    # Or it would be told as an error of the output that is being written meanwhile.
    try:
        yield
    except (OSError, RuntimeError) as error:  # the second are those of files with an index
        if isinstance(error, RuntimeError) and text.index is None:
            raise
        raise DataError(
            f"the file could not be read: {error}",
            where={"file": text.path},
            hint="Check its disk or its server, and start again.",
        ) from None


def _no_line_end(text: TextRange, size_bytes: int) -> DataError:
    return DataError(
        f"no line end within {size_bytes:,} bytes",
        where={"file": text.path},
        hint="That is no text file of Criteo rows.",
    )


@dataclass(frozen=True)
class StagedText:
    """The staging files of one range of text.

    Attributes:
        parts: The staging files, in input order; none are empty.
        num_lines: How many lines the range has, with the header and the bad ones.
        bad_lines: The lines left out, numbered from the range's start.
    """

    parts: tuple[Part, ...]
    num_lines: int
    bad_lines: BadLineTally


def stage_text(
    text: TextRange, layout: TextLayout, skip_bad_lines: bool, block_bytes: int, stem: str
) -> StagedText:
    """Parse a range and write the rows of each block to `STEM-00000.arrow`, ..."""
    parts: list[Part] = []
    tally = BadLineTally()
    lines = 0
    at_start = text.start == 0
    for number, block in groupby(read_pieces(text, block_bytes), key=itemgetter(0)):
        path = f"{stem}-{number:05d}{STAGED_SUFFIX}"
        with write_staged(path, STAGED_SCHEMA) as staged:
            for _, piece in block:
                if at_start:
                    piece = piece.removeprefix(BYTE_ORDER_MARK)
                if at_start and layout.header:
                    piece = _without_header(piece, layout, text.path)
                    lines += 1
                at_start = False
                table, bad = _parse_or_explain(piece, layout, skip_bad_lines, text, lines)
                tally = tally.merged(BadLineTally.of(bad).shifted(text.path, lines))
                lines += table.num_rows + len(bad)
                staged.write(table)
        if staged.num_rows:
            parts.append(Part(path, (0,), staged.num_rows, text.path))
    return StagedText(tuple(parts), lines, tally)


def _parse_or_explain(
    piece: bytes, layout: TextLayout, skip_bad_lines: bool, text: TextRange, lines_before: int
) -> tuple[pa.Table, list[BadLine]]:
    """The rows of a piece and its bad lines; raises if there are some that are not to be skipped.

    `lines_before` are those of the range before the piece.
    """
    try:
        table, bad = _parse(piece, layout, skip_bad_lines, text.path)
        if bad and not skip_bad_lines:
            raise bad[0].at(text.path, lines_before + count_lines_before(text)).error()
    except DataError:
        check_stream(text)  # or a damaged file would be told as a mistake of its writer
        raise
    return table, bad


def _parse(
    block: bytes, layout: TextLayout, skip_bad_lines: bool, path: str
) -> tuple[pa.Table, list[BadLine]]:
    table = parse_lines(block, layout)
    if table is not None:
        return table, []
    good, bad = split_bad_lines(block, layout, stop_at_first=not skip_bad_lines)
    if bad and not skip_bad_lines:
        return None, bad
    table = parse_lines(good, layout) if bad else None
    if table is None:
        raise DataError(
            "lines that look right cannot be parsed",
            where={"file": path},
            hint="A field may hold a lone carriage return; remove it.",
        )
    return table, bad


def _without_header(block: bytes, layout: TextLayout, path: str) -> bytes:
    header, _, rest = block.partition(b"\n")
    names = header.decode("utf-8", "replace").strip("\r").split(layout.delimiter)
    lower, wanted = [n.strip().lower() for n in names], [n.lower() for n in RAW_COLUMNS]
    if len(names) != len(wanted):
        raise DataError(
            f"the header has {len(names)} fields, not {len(wanted)}",
            where={"file": path, "line": 1},
            hint="Check --delimiter, and that the file has a label, I1..I13 and C1..C26.",
        )
    if sorted(lower) == sorted(wanted) and lower != wanted:
        raise DataError(
            "the header names Criteo's columns in another order",
            where={"file": path, "line": 1},
            hint="The columns must be in the order label, I1..I13, C1..C26.",
        )
    if parse_lines(header + b"\n", layout) is not None:
        raise DataError(
            "the first line is a row, not a header",
            where={"file": path, "line": 1, "content": shown(header)},
            hint="Leave --header out, or the first row of each file is lost.",
        )
    return rest
