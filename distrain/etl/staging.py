"""Text files to staging files: typed Arrow files, one per block of lines, gone after the run.

A task stages a range of a file, block by block, in bounded memory.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from distrain.errors import DataError
from distrain.etl.parts import ROW_NUMBER, STAGED_SUFFIX, Part, write_staged
from distrain.etl.raw_lines import (
    BYTE_ORDER_MARK,
    RAW_COLUMNS,
    STAGED_SCHEMA,
    BadLine,
    BadLineTally,
    TextLayout,
    num_lines,
    parse_lines,
    shown,
    split_bad_lines,
)
from distrain.etl.texts import TextRange, check_stream, count_lines_before, parsed_pieces


@dataclass(frozen=True)
class StagedText:
    """The staging files of one range of text.

    Attributes:
        parts: The staging files, in input order; none are empty. With `number_rows` they have the
            place of each row in the range, too, bad ones counted.
        num_lines: How many lines the range has, with the header and the bad ones.
        bad_lines: The lines left out, numbered from the range's start.
    """

    parts: tuple[Part, ...]
    num_lines: int
    bad_lines: BadLineTally


_NUMBERED = STAGED_SCHEMA.append(pa.field(ROW_NUMBER, pa.int64()))


def stage_text(
    text: TextRange,
    layout: TextLayout,
    skip_bad_lines: bool,
    block_bytes: int,
    stem: str,
    number_rows: bool = False,
) -> StagedText:
    """Parse a range and write the rows of each block to `STEM-00000.arrow`, ..."""

    def parse(piece: bytes, lines_before: int) -> _ParsedPiece:
        found, before = piece, lines_before
        if text.start == before == 0:
            found = piece.removeprefix(BYTE_ORDER_MARK)
            if layout.header:
                found = _without_header(found, layout, text.path)
                before = 1
        rows, bad = _parse_or_explain(found, layout, skip_bad_lines, text, before)
        tally = BadLineTally.of(bad).shifted(text.path, before)
        every = np.arange(rows.num_rows + len(bad))
        numbers = np.delete(every, [line.line - 1 for line in bad])
        return _ParsedPiece(rows, numbers, num_lines(piece), tally)

    parts: list[Part] = []
    tally, lines, rows = BadLineTally(), 0, 0
    schema = _NUMBERED if number_rows else STAGED_SCHEMA
    with closing(parsed_pieces(text, block_bytes, parse)) as pieces:
        for number, block in groupby(pieces, key=itemgetter(0)):
            path = f"{stem}-{number:05d}{STAGED_SUFFIX}"
            with write_staged(path, schema) as staged:
                for _, piece in block:
                    numbers = pa.array(piece.row_numbers + rows)
                    numbered = piece.rows.append_column(_NUMBERED.field(ROW_NUMBER), numbers)
                    staged.write(numbered.select(schema.names))
                    tally = tally.merged(piece.bad_lines)
                    lines += piece.num_lines
                    rows += piece.rows.num_rows + piece.bad_lines.count
            if staged.num_rows:
                parts.append(Part(path, (0,), staged.num_rows, text.path))
    return StagedText(tuple(parts), lines, tally)


class _ParsedPiece(NamedTuple):
    rows: pa.Table
    row_numbers: np.ndarray[Any, np.dtype[np.int64]]
    num_lines: int
    bad_lines: BadLineTally


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
    if not layout.labeled and len(names) == layout.num_fields:
        wanted = wanted[1:]
    if len(names) != len(wanted):
        raise DataError(
            f"the header has {len(names)} fields, not {layout.num_fields}",
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
