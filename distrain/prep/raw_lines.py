"""Parses raw Criteo lines to a table, and diagnoses lines that cannot be parsed.

A line has 40 fields: label (0 or 1), I1..I13 (integers, may be empty), C1..C26 (8 hex digits, may
be empty). In the table the label is int8, I int64 and C uint32, the number that the hex digits
spell; an empty field is null. `parse_lines` parses blocks without bad lines: plain ones in C
(`_lines.c`), others with Arrow. Only blocks that both reject are split into lines and diagnosed in
Python, which takes far longer.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from distrain.errors import DataError
from distrain.prep.bad_lines import BYTE_ORDER_MARK, NO_LABEL, BadLine, num_lines, shown
from distrain.prep.vocabulary import is_text
from distrain.schema.criteo import CATEGORICAL, CONTINUOUS, LABEL

try:
    from distrain.prep import _lines
except ImportError:  # built without a compiler
    _lines = None  # type: ignore[assignment]

SPLITTER_IS_BUILT = _lines is not None
_DELIMITERS = "\t,;|"

RAW_COLUMNS = (LABEL, *CONTINUOUS, *CATEGORICAL)
STAGED_SCHEMA = pa.schema(
    [
        pa.field(LABEL, pa.int8()),
        *(pa.field(name, pa.int64()) for name in CONTINUOUS),
        *(pa.field(name, pa.uint32()) for name in CATEGORICAL),
    ]
)

_CSV_TYPES = {
    LABEL: pa.int8(),
    **dict.fromkeys(CONTINUOUS, pa.int64()),
    **dict.fromkeys(CATEGORICAL, pa.binary(8)),
}
# Pieces of this size fit a core's cache, which is twice as fast as whole blocks.
_PARSED_AT_ONCE_BYTES = 1 << 18


@dataclass(frozen=True)
class TextLayout:
    """Text format of Criteo's lines: delimiter, header, and whether a label comes first."""

    delimiter: str = "\t"  # the character between fields
    header: bool = False  # whether each file's first line names the columns
    # whether lines begin with a label; if false, lines may have a label, which is not used
    labeled: bool = True

    def with_label(self, line: bytes) -> bytes:
        """Return the line; in an unlabelled layout, with the label 0 in front if it lacks one."""
        lacks_it = not self.labeled and line.count(self._separator) == len(RAW_COLUMNS) - 2
        return b"0" + self._separator + line if lacks_it else line

    @property
    def num_fields(self) -> int:
        return len(RAW_COLUMNS) - (not self.labeled)

    @property
    def _separator(self) -> bytes:
        return self.delimiter.encode()


def parse_lines(block: bytes, layout: TextLayout) -> pa.Table | None:
    """Return the rows of a block of whole Criteo lines, as `STAGED_SCHEMA`.

    `None` if a line is bad. If it returns `None`, call `split_bad_lines` to find the bad lines.
    """
    if not block:
        return STAGED_SCHEMA.empty_table()
    if not layout.labeled:
        block = b"\n".join(map(layout.with_label, block.split(b"\n")))
    columns = parse_plain(block, layout.delimiter, num_lines(block))
    if columns is not None:
        return pa.table(columns, schema=STAGED_SCHEMA)
    return _parse_with_arrow(block, layout)


def parse_plain(block: bytes, delimiter: str, num_rows: int) -> list[pa.Array] | None:
    """Return the columns of whole lines: label (int8), I1..I13 (int64), C1..C26 (uint32).

    Each column is `[num_rows]`. Returns `None` if the C kernel is not built, the delimiter is not
    one of `_DELIMITERS`, or a line is not plain. A plain line has 0 or 1, 13 integers of at most 18
    digits, and 26 words of 8 hex digits; empty integers and words are nulls.
    """
    if _lines is None or delimiter not in _DELIMITERS:
        return None
    num_columns = len(CONTINUOUS) + len(CATEGORICAL)
    labels = np.empty(num_rows, np.int8)
    numbers = np.empty((len(CONTINUOUS), num_rows), np.int64)
    words = np.empty((len(CATEGORICAL), num_rows), np.uint32)
    valid = np.zeros((num_columns, (num_rows + 7) // 8), np.uint8)
    missing = np.zeros(num_columns, np.int64)
    if not _lines.parse(block, ord(delimiter), labels, numbers, words, valid, missing):
        return None
    features = zip([*numbers, *words], valid, missing.tolist(), strict=True)
    return [pa.array(labels), *(_array(*column) for column in features)]


def _array(values: np.ndarray[Any, Any], valid: np.ndarray[Any, Any], missing: int) -> pa.Array:
    buffers = [pa.py_buffer(valid) if missing else None, pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), buffers, missing)


def _parse_with_arrow(block: bytes, layout: TextLayout) -> pa.Table | None:
    if b"x" in block or b"X" in block:
        return None  # Arrow would parse 0x1F as an integer.
    if block.startswith(BYTE_ORDER_MARK):
        return None  # Arrow would drop it, even in the middle of a file.
    try:
        table = pa_csv.read_csv(
            pa.BufferReader(block),
            pa_csv.ReadOptions(
                use_threads=False, block_size=_PARSED_AT_ONCE_BYTES, column_names=RAW_COLUMNS
            ),
            pa_csv.ParseOptions(
                delimiter=layout.delimiter, quote_char=False, ignore_empty_lines=False
            ),
            pa_csv.ConvertOptions(
                column_types=_CSV_TYPES, null_values=[""], strings_can_be_null=True
            ),
        ).combine_chunks()
    except pa.ArrowInvalid:
        return None
    # Arrow also ends a line at a lone carriage return; then the counts differ.
    if table.num_rows != num_lines(block) or not _labels_are_good(table[LABEL]):
        return None
    columns = [table[LABEL], *(table[name] for name in CONTINUOUS)]
    for name in CATEGORICAL:
        values = _hex_to_uint32(table[name])
        if values is None:
            return None
        columns.append(values)
    return pa.table(columns, schema=STAGED_SCHEMA)


def _labels_are_good(labels: pa.ChunkedArray) -> bool:
    bounds = pc.min_max(labels).as_py()
    return bool(labels.null_count == 0 and bounds["min"] >= 0 and bounds["max"] <= 1)


_NO_DIGIT = 255
_DIGITS = np.full(256, _NO_DIGIT, np.uint8)
for _value, _digit in enumerate("0123456789abcdef"):
    _DIGITS[[ord(_digit), ord(_digit.upper())]] = _value
_WEIGHTS = (np.uint32(1) << np.arange(28, -1, -4)).astype(np.uint32)


def _hex_to_uint32(column: pa.ChunkedArray) -> pa.Array | None:
    """Return words of 8 hex digits as numbers, `[rows]`, uint32; nulls stay null.

    `None` if a word has a character that is not a hex digit.
    """
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0)
    text = np.frombuffer(array.buffers()[1], np.uint8, 8 * len(array), 8 * array.offset)
    digits = _DIGITS[text.reshape(-1, 8)]
    is_null = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    if is_null is not None:
        digits[is_null] = 0
    if (digits == _NO_DIGIT).any():
        return None
    return pa.array(digits.astype(np.uint32) @ _WEIGHTS, mask=is_null)


def with_words_as_numbers(table: pa.Table, columns: Collection[str]) -> pa.Table:
    """Return the table with the hex words of `columns` as numbers, uint32; "" becomes null.

    Columns that do not hold texts are unchanged.

    Raises:
        DataError: A word is not 8 hex digits; the first such row is named.
    """
    for place, field in enumerate(table.schema):
        if field.name not in columns or not is_text(field.type):
            continue
        words = table[field.name].cast(pa.string())
        words = pc.if_else(pc.equal(words, ""), pa.scalar(None, pa.string()), words)
        is_word = pc.match_substring_regex(words, "^[0-9a-fA-F]{8}$").fill_null(True)
        row = pc.index(is_word, False).as_py()
        if row >= 0:
            raise DataError(
                f"{field.name} is {words[row].as_py()!r}, not 8 hex digits",
                where={"column": field.name, "row": row},
                hint="Use None for a missing value.",
            )
        numbers = _hex_to_uint32(words.cast(pa.binary()).cast(pa.binary(8)))
        table = table.set_column(place, field.name, numbers)
    return table


_NOT_CRITEO = (
    "Correct the line, or pass --bad-lines skip to drop such lines. If the file is not a log of "
    "Criteo's, `distrain prep INPUT --infer --out features.yaml` describes its columns."
)
_INT64_RANGE = range(-(2**63), 2**63)
_INT64_DIGITS = 19

# These accept the same values as the fast parsers: Arrow allows blanks around a number.
_BLANKS = b" \t"
_LABEL = re.compile(rb"0*1|-?0+")
_INTEGER = re.compile(rb"-?\d+")
_HEX = re.compile(rb"[0-9a-fA-F]{8}")


def split_bad_lines(
    block: bytes, layout: TextLayout, *, stop_at_first: bool
) -> tuple[bytes, list[BadLine]]:
    """Return the good lines of a block of whole lines, and its bad lines.

    With `stop_at_first`, stop at the first bad line: return it, and the good lines before it.
    """
    plain = _plain_line(layout.delimiter)
    good: list[bytes] = []
    bad: list[BadLine] = []
    lines = block.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    for number, line in enumerate(lines, start=1):
        content = line.removesuffix(b"\r")
        whole = layout.with_label(content)
        diagnosis = None if plain.fullmatch(whole) else _diagnose(whole, layout)
        if diagnosis is None:
            good.append(line)
            continue
        kind, problem, hint = diagnosis
        bad.append(BadLine(number, kind, problem, shown(content), hint))
        if stop_at_first:
            break
    return b"".join(line + b"\n" for line in good), bad


def rows_and_bad_lines(
    block: bytes, layout: TextLayout, path: str, *, stop_at_first: bool
) -> tuple[pa.Table, list[BadLine]]:
    """Return the rows of a block's good lines, and its bad lines, numbered from the block's start.

    With `stop_at_first`, a block with bad lines gives no rows and only the first bad line. Raises
    `DataError` if lines that look correct cannot be parsed.
    """
    table = parse_lines(block, layout)
    if table is not None:
        return table, []
    good, bad = split_bad_lines(block, layout, stop_at_first=stop_at_first)
    if bad and stop_at_first:
        return STAGED_SCHEMA.empty_table(), bad
    table = parse_lines(good, layout) if bad else None
    if table is None:
        raise DataError(
            "lines that look correct cannot be parsed",
            where={"file": path},
            hint="A field may hold a lone carriage return; remove it.",
        )
    return table, bad


def without_header(block: bytes, layout: TextLayout, path: str) -> bytes:
    """Return a file's first block without its first line, the header.

    Raises a `DataError` if the header has a wrong number of fields, names Criteo's columns in
    another order, or is a row.
    """
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
            hint="Leave --header out; otherwise the first row of each file is lost.",
        )
    return rest


@lru_cache
def _plain_line(delimiter: str) -> re.Pattern[bytes]:
    """Return a pattern that matches a good line with this delimiter, in the usual form.

    Matching it is much faster than checking each field.
    """
    label, integer, category = rb"[01]", rb"(?:-?\d{1,18})?", rb"(?:[0-9a-fA-F]{8})?"
    fields = [label] + [integer] * len(CONTINUOUS) + [category] * len(CATEGORICAL)
    return re.compile(re.escape(delimiter.encode()).join(fields))


def _diagnose(content: bytes, layout: TextLayout) -> tuple[str, str, str | None] | None:
    fields = content.split(layout.delimiter.encode())
    if len(fields) != len(RAW_COLUMNS):
        return _wrong_field_count(content, len(fields), layout)
    for name, value in zip(RAW_COLUMNS, fields, strict=True):
        if (diagnosis := _diagnose_field(name, value)) is not None:
            return diagnosis
    return None


def _wrong_field_count(
    content: bytes, num_found: int, layout: TextLayout
) -> tuple[str, str, str | None]:
    wanted = layout.num_fields
    if not content:
        return "empty line", f"the line is empty; it should have {wanted} fields", None
    hint: str | None = _NOT_CRITEO
    if layout.labeled and num_found == wanted - 1:
        hint = (
            "Unlabelled test files have 39 fields: with --workflow, --unlabeled prepares them. "
            "Without it prep needs the label as the first of 40 fields."
        )
    for other, name in ((",", "','"), ("\t", "'\\t'")):
        if other != layout.delimiter and content.count(other.encode()) == wanted - 1:
            hint = f"Its fields seem to have another delimiter: pass --delimiter {name}."
    fields = "field" if num_found == 1 else "fields"
    return "wrong number of fields", f"{num_found} {fields}, not {wanted}", hint


def _diagnose_field(name: str, value: bytes) -> tuple[str, str, str | None] | None:
    description = f"{name} is {shown(value)!r}"
    bare = value.strip(_BLANKS)
    if name == LABEL:
        if _LABEL.fullmatch(bare):
            return None
        hint = (
            "If the first line names the columns, pass --header." if value[:1].isalpha() else None
        )
        return "bad label" if bare else NO_LABEL, f"{description}, not 0 or 1", hint
    if value == b"":
        return None
    if name in CONTINUOUS:
        if not _INTEGER.fullmatch(bare):
            return "bad integer", f"{description}, not an integer", None
        if not _fits_int64(bare):
            return "bad integer", f"{description}, which does not fit into 64 bits", None
        return None
    if _HEX.fullmatch(value):
        return None
    return "bad hex", f"{description}, not 8 hex digits", None


def _fits_int64(number: bytes) -> bool:
    # Leading zeros are removed: `int` rejects texts of thousands of digits.
    digits = number.removeprefix(b"-").lstrip(b"0") or b"0"
    sign = -1 if number.startswith(b"-") else 1
    return len(digits) <= _INT64_DIGITS and sign * int(digits) in _INT64_RANGE
