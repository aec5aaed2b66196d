"""Parses blocks of text lines to rows, with the line number of each row."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json

from distrain.prep.bad_lines import BYTE_ORDER_MARK, BadLine, num_lines, shown
from distrain.prep.features.bad_values import Places
from distrain.prep.features.document import CRITEO, FormatSpec
from distrain.prep.features.table_file import TableFile, json_row, json_type
from distrain.prep.lists import holds_lists
from distrain.prep.operators.spelling import texts_of
from distrain.prep.raw_lines import TextLayout, rows_and_bad_lines, without_header
from distrain.schema.criteo import LABEL
from distrain.storage.retrying import first_line

_PARSED_AT_ONCE_BYTES = 4 << 20


@dataclass(frozen=True, eq=False)
class TextRows:
    """The rows of a block of text."""

    table: pa.Table  # the columns that are read; for CSV as bytes
    lines: Places  # the line of each row, from 0, in the block
    bad: tuple[BadLine, ...] = ()  # lines that are not rows, numbered from 1


class TornLines(Exception):
    """From `line` on, a block's lines do not match its rows; a quoted value may have a line end."""

    def __init__(self, line: BadLine):
        super().__init__(line.problem)
        self.line = line


def parse_block(
    block: bytes,
    file: TableFile,
    text: FormatSpec,
    columns: Sequence[str],
    *,
    stop_at_first: bool = False,
) -> TextRows:
    """Return the rows and the bad lines of a block of whole lines.

    With `stop_at_first`, the rows of a block with bad lines may be missing from the result: the
    caller stops at the first bad line. Raises `TornLines` if a quoted value may contain a line end,
    and the errors of `rows_and_bad_lines` for text in Criteo's form.
    """
    if file.kind == CRITEO:
        layout = _layout_of(file, text)
        table, bad = rows_and_bad_lines(block, layout, file.path, stop_at_first=stop_at_first)
        every = np.arange(table.num_rows + len(bad))
        lines = np.delete(every, [n.line - 1 for n in bad]) if table.num_rows else every[:0]
        return TextRows(table.select(list(columns)), lines, tuple(bad))
    if file.kind == "jsonl":
        return _parse_json(block, file, columns)
    if text.encoding != "utf-8":
        block = block.decode(text.encoding).encode()
    return _parse_csv(block, file, text, columns)


def without_head(block: bytes, file: TableFile, text: FormatSpec) -> tuple[bytes, int]:
    """Return a file's first block without its header, and the number of header lines, 0 or 1.

    Raises a `DataError` if a header of Criteo's columns is wrong or missing.
    """
    if file.kind == CRITEO:
        block = block.removeprefix(BYTE_ORDER_MARK)
    if not text.header or file.kind == "jsonl":
        return block, 0
    if file.kind == CRITEO:
        return without_header(block, _layout_of(file, text), file.path), 1
    return block.partition(b"\n")[2], 1


def _layout_of(file: TableFile, text: FormatSpec) -> TextLayout:
    return TextLayout(file.delimiter, text.header, labeled=LABEL in file.types)


def rows_of_pieces(
    pieces: Iterable[bytes], file: TableFile, text: FormatSpec, columns: Sequence[str]
) -> Iterator[tuple[TextRows, int]]:
    """Yield the rows of a file's pieces of whole lines, each with the number of lines before it.

    Raises:
        DataError: A quoted value may contain a line end, or a header of Criteo's columns is wrong
            or missing.
    """
    before = 0
    for number, piece in enumerate(pieces):
        if number == 0:
            piece, before = without_head(piece, file, text)
        try:
            yield parse_block(piece, file, text, columns), before
        except TornLines as torn:
            raise torn.line.at(file.path, before).error() from None
        before += num_lines(piece)


def line_of(block: bytes, line: int) -> bytes:
    """Return a line of a block, numbered from 0, without its line end."""
    return block.split(b"\n", line + 1)[line].removesuffix(b"\r")


def _parse_csv(block: bytes, file: TableFile, text: FormatSpec, columns: Sequence[str]) -> TextRows:
    block, lines = _without_blank_lines(block.removeprefix(BYTE_ORDER_MARK))
    schema = pa.schema([(column, pa.binary()) for column in columns])
    if not len(lines):
        return TextRows(schema.empty_table(), lines)
    bad: list[BadLine] = []

    def skip(row: Any) -> str:
        fields = "field" if row.actual_columns == 1 else "fields"
        problem = f"{row.actual_columns} {fields}, not {row.expected_columns}"
        line = int(lines[row.number - 1]) + 1
        bad.append(BadLine(line, "wrong number of fields", problem, shown(row.text.encode())))
        return "skip"

    try:
        table = pa_csv.read_csv(
            pa.BufferReader(block),
            pa_csv.ReadOptions(
                use_threads=False,
                block_size=min(len(block), _PARSED_AT_ONCE_BYTES),
                column_names=list(file.types),
            ),
            pa_csv.ParseOptions(
                delimiter=file.delimiter,
                quote_char=text.quote or False,
                escape_char=text.escape or False,
                ignore_empty_lines=False,
                invalid_row_handler=skip,
            ),
            pa_csv.ConvertOptions(
                column_types=schema,
                include_columns=list(columns),
                null_values=list(text.null_values),
                strings_can_be_null=True,
            ),
        )
    except pa.ArrowInvalid as error:
        raise _torn(block, lines, text, first_line(error)) from None
    is_row = ~np.isin(lines + 1, [line.line for line in bad])
    if table.num_rows != is_row.sum():
        raise _torn(block, lines, text, "rows and lines do not match")
    return TextRows(table.combine_chunks(), lines[is_row], tuple(bad))


def _without_blank_lines(block: bytes) -> tuple[bytes, Places]:
    """Return a block without its blank lines, and the indices of the lines that remain.

    Arrow would read blank lines as rows of nulls.
    """
    if not block.endswith(b"\n"):
        block += b"\n"
    if block[:1] not in b"\r\n" and b"\n\n" not in block and b"\n\r\n" not in block:
        return block, np.arange(block.count(b"\n"), dtype=np.int64)
    lines = block[:-1].split(b"\n")
    kept = [place for place, line in enumerate(lines) if line not in (b"", b"\r")]
    return b"".join(lines[p] + b"\n" for p in kept), np.array(kept, np.int64)


def _torn(block: bytes, lines: Places, text: FormatSpec, cause: str) -> TornLines:
    quote = text.quote.encode() if text.quote else b"\0"
    content = block.split(b"\n")
    odd = (n for n, line in enumerate(content) if line.count(quote) % 2 or b"\r" in line[:-1])
    place = next(odd, 0)
    hint = "A value cannot contain a line end; if quotes are plain text, set format.quote to null."
    problem = f"lines and rows do not match: {cause}"
    line = int(lines[min(place, len(lines) - 1)]) + 1
    return TornLines(BadLine(line, "torn", problem, shown(content[place]), hint))


def _parse_json(block: bytes, file: TableFile, columns: Sequence[str]) -> TextRows:
    count = num_lines(block)
    known = [(c, file.types[c]) for c in columns if not pa.types.is_null(file.types[c])]
    if len(known) == len(columns):
        try:
            block.decode()  # Arrow does not check whether texts are UTF-8
            table = pa_json.read_json(
                pa.BufferReader(block),
                pa_json.ReadOptions(use_threads=False, block_size=len(block) + 1),
                pa_json.ParseOptions(
                    explicit_schema=pa.schema(known), unexpected_field_behavior="ignore"
                ),
            )
        except (pa.ArrowInvalid, UnicodeDecodeError):
            table = None
        if table is not None and table.num_rows == count:
            lines = np.arange(count, dtype=np.int64)
            return TextRows(table.select(list(columns)).combine_chunks(), lines)
    return _parse_json_lines(block, file, columns)


def _parse_json_lines(block: bytes, file: TableFile, columns: Sequence[str]) -> TextRows:
    """Parse JSON line by line, for a block with bad or blank lines, or with changing types.

    A line is bad if it is not JSON, or not an object that fits the columns. Blank lines are
    skipped.
    """
    rows, lines, bad = [], [], []
    for place, line in enumerate(block.removesuffix(b"\n").split(b"\n")):
        if not line.strip():
            continue
        try:
            row = json_row(line)
        except ValueError as error:
            bad.append(BadLine(place + 1, "not JSON", f"not JSON: {error}", shown(line)))
            continue
        problem = _misfit(row, file, columns)
        if problem is not None:
            bad.append(BadLine(place + 1, "misfit", problem, shown(line)))
            continue
        rows.append(row)
        lines.append(place)
    arrays = {column: _as_column([row.get(column) for row in rows]) for column in columns}
    return TextRows(pa.table(arrays), np.array(lines, np.int64), tuple(bad))


def _misfit(row: Any, file: TableFile, columns: Sequence[str]) -> str | None:
    if not isinstance(row, dict):
        return "not a JSON object"
    for column in columns:
        value, dtype = row.get(column), file.types[column]
        if value is None:
            continue
        items = value if isinstance(value, list) else [value]
        if any(isinstance(item, dict | list) for item in items):
            return f"{column} is {json.dumps(value)[:60]}, not a value or a list of values"
        if holds_lists(dtype) != isinstance(value, list) and not pa.types.is_null(dtype):
            wanted = "a list" if holds_lists(dtype) else "a single value"
            return f"{column} is {json.dumps(value)[:60]}, not {wanted}"
    return None


def _as_column(values: list[Any]) -> pa.Array:
    try:
        return pa.array(values, json_type(values))
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        pass
    if any(isinstance(value, list) for value in values):
        lists = [None if value is None else [_text(item) for item in value] for value in values]
        return pa.array(lists, pa.list_(pa.string()))
    return pa.array([_text(value) for value in values], pa.string())


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, float):
        found: str | None = texts_of(pa.array([value]))[0].as_py()  # spelled as in whole columns
        return found
    return json.dumps(value)
