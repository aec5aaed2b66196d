"""Raw Criteo lines to a table, and what is wrong with those that cannot be parsed.

A line has 40 fields: label (0 or 1), I1..I13 (integers, may be empty), C1..C26 (8 hex digits, may
be empty). In the table the label is int8, I int64 and C uint32, the number that the hex digits
spell; an empty field is a null. `parse_lines` takes good blocks, fast: the plainest in C
(`plain_lines.py`), others with Arrow. Only blocks that both refuse are split line by line, in
Python.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from distrain.errors import DataError
from distrain.etl.bad_lines import BYTE_ORDER_MARK, NO_LABEL, BadLine, num_lines, shown
from distrain.etl.plain_lines import parse_plain
from distrain.schema import CATEGORICAL, CONTINUOUS, LABEL

_Words = np.ndarray[Any, np.dtype[np.uint64]]

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
# What fits into a core's cache: twice as fast as whole blocks.
_PARSED_AT_ONCE_BYTES = 1 << 18


@dataclass(frozen=True)
class TextLayout:
    """How a text file is laid out.

    Attributes:
        delimiter: What separates the fields, one character.
        header: Whether each file's first line names the columns.
        labeled: Whether lines begin with the label; if not, those that do are read without it.
    """

    delimiter: str = "\t"
    header: bool = False
    labeled: bool = True

    def with_label(self, line: bytes) -> bytes:
        """A line that begins with a label; one without gets the label 0."""
        lacks_it = not self.labeled and line.count(self._separator) == len(RAW_COLUMNS) - 2
        return b"0" + self._separator + line if lacks_it else line

    @property
    def num_fields(self) -> int:
        return len(RAW_COLUMNS) - (not self.labeled)

    @property
    def _separator(self) -> bytes:
        return self.delimiter.encode()


def parse_lines(block: bytes, layout: TextLayout) -> pa.Table | None:
    """The rows of whole lines, or `None` if some line is bad.

    The caller finds out which, and what is wrong with it; that takes far longer than this.
    """
    if not block:
        return STAGED_SCHEMA.empty_table()
    if not layout.labeled:
        block = b"\n".join(map(layout.with_label, block.split(b"\n")))
    columns = parse_plain(block, layout.delimiter, num_lines(block))
    if columns is not None:
        return pa.table(columns, schema=STAGED_SCHEMA)
    return _parse_with_arrow(block, layout)


def _parse_with_arrow(block: bytes, layout: TextLayout) -> pa.Table | None:
    if b"x" in block or b"X" in block:
        return None  # Arrow would take 0x1F for an integer.
    if block.startswith(BYTE_ORDER_MARK):
        return None  # Arrow would leave it out, in the middle of a file, too.
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


def _hex_to_uint32(column: pa.ChunkedArray) -> pa.Array | None:
    """The numbers that 8 hex digits spell, `[rows]`, nulls kept; `None` if one is no hex digit."""
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0)
    text = np.frombuffer(array.buffers()[1], ">u8", count=len(array), offset=8 * array.offset)
    words = text.astype(np.uint64)
    is_null = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    if is_null is not None:
        words[is_null] = _each_byte(ord("0"))
    numbers = _spelt(words)
    return None if numbers is None else pa.array(numbers, mask=is_null)


def _each_byte(value: int) -> np.uint64:
    return np.uint64(value * 0x0101010101010101)


_HIGH_BITS = _each_byte(0x80)
# Added to a byte below 128 they set its high bit if it is at least that character.
_FROM_0, _PAST_9 = _each_byte(0x80 - ord("0")), _each_byte(0x80 - ord("9") - 1)
_FROM_A, _PAST_F = _each_byte(0x80 - ord("a")), _each_byte(0x80 - ord("f") - 1)


def _spelt(words: _Words) -> np.ndarray[Any, np.dtype[np.uint32]] | None:
    """The numbers that words of 8 hex digits spell, first digit in the highest byte.

    All bytes of a word at a time; `None` if one is no hex digit.
    """
    lower = words | _each_byte(ord("a") - ord("A"))
    is_letter = (lower + _FROM_A) & ~(lower + _PAST_F) & _HIGH_BITS
    is_digit = (words + _FROM_0) & ~(words + _PAST_9) & _HIGH_BITS
    if ((words & _HIGH_BITS) != 0).any() or ((is_letter | is_digit) != _HIGH_BITS).any():
        return None
    digits = (words & _each_byte(0x0F)) + (is_letter >> np.uint64(7)) * np.uint64(9)
    digits = (digits | (digits >> np.uint64(4))) & np.uint64(0x00FF00FF00FF00FF)
    digits = (digits | (digits >> np.uint64(8))) & np.uint64(0x0000FFFF0000FFFF)
    numbers: np.ndarray[Any, np.dtype[np.uint32]]
    numbers = (digits | (digits >> np.uint64(16))).astype(np.uint32)
    return numbers


_NOT_CRITEO = (
    "Mend the line, or pass --bad-lines skip to leave such lines out. If the file is no log of "
    "Criteo's, `distrain prep INPUT --infer --out features.yaml` describes its columns."
)
_INT64_RANGE = range(-(2**63), 2**63)
_INT64_DIGITS = 19

# The same values that the fast way takes: Arrow allows blanks around a number.
_BLANKS = b" \t"
_LABEL = re.compile(rb"0*1|-?0+")
_INTEGER = re.compile(rb"-?\d+")
_HEX = re.compile(rb"[0-9a-fA-F]{8}")


def split_bad_lines(
    block: bytes, layout: TextLayout, *, stop_at_first: bool
) -> tuple[bytes, list[BadLine]]:
    """The good lines of a block of whole lines, and its bad ones.

    With `stop_at_first` only the first bad line is found, and the good lines are of no use.
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
        found = None if plain.fullmatch(whole) else _diagnose(whole, layout)
        if found is None:
            good.append(line)
            continue
        kind, problem, hint = found
        bad.append(BadLine(number, kind, problem, shown(content), hint))
        if stop_at_first:
            break
    return b"".join(line + b"\n" for line in good), bad


def rows_and_bad_lines(
    block: bytes, layout: TextLayout, path: str, *, stop_at_first: bool
) -> tuple[pa.Table, list[BadLine]]:
    """The good lines' rows and the bad lines, numbered in the block.

    With `stop_at_first` a block with a bad line gives that line alone.

    Raises:
        DataError: Lines that look good cannot be parsed.
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
            "lines that look right cannot be parsed",
            where={"file": path},
            hint="A field may hold a lone carriage return; remove it.",
        )
    return table, bad


def without_header(block: bytes, layout: TextLayout, path: str) -> bytes:
    """A file's first block without its first line, which must name the columns in order."""
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


@lru_cache
def _plain_line(delimiter: str) -> re.Pattern[bytes]:
    """Matches good lines in their usual form; one match is much faster than 40 checks."""
    label, integer, category = rb"[01]", rb"(?:-?\d{1,18})?", rb"(?:[0-9a-fA-F]{8})?"
    fields = [label] + [integer] * len(CONTINUOUS) + [category] * len(CATEGORICAL)
    return re.compile(re.escape(delimiter.encode()).join(fields))


def _diagnose(content: bytes, layout: TextLayout) -> tuple[str, str, str | None] | None:
    """Kind, problem and hint of a bad line; `None` if it is good after all."""
    fields = content.split(layout.delimiter.encode())
    if len(fields) != len(RAW_COLUMNS):
        return _wrong_field_count(content, len(fields), layout)
    for name, value in zip(RAW_COLUMNS, fields, strict=True):
        if (found := _diagnose_field(name, value)) is not None:
            return found
    return None


def _wrong_field_count(
    content: bytes, found: int, layout: TextLayout
) -> tuple[str, str, str | None]:
    wanted = layout.num_fields
    if not content:
        return "empty line", f"the line is empty; it should have {wanted} fields", None
    hint: str | None = _NOT_CRITEO
    if layout.labeled and found == wanted - 1:
        hint = (
            "Unlabelled test files have 39 fields: with --workflow, --unlabeled prepares them. "
            "Without it prep needs the label as the first of 40."
        )
    for other, name in ((",", "','"), ("\t", "'\\t'")):
        if other != layout.delimiter and content.count(other.encode()) == wanted - 1:
            hint = f"Its fields seem to be separated otherwise: pass --delimiter {name}."
    fields = "field" if found == 1 else "fields"
    return "wrong number of fields", f"{found} {fields}, not {wanted}", hint


def _diagnose_field(name: str, value: bytes) -> tuple[str, str, str | None] | None:
    said = f"{name} is {shown(value)!r}"
    bare = value.strip(_BLANKS)
    if name == LABEL:
        if _LABEL.fullmatch(bare):
            return None
        hint = (
            "If the first line names the columns, pass --header." if value[:1].isalpha() else None
        )
        return "bad label" if bare else NO_LABEL, f"{said}, not 0 or 1", hint
    if value == b"":
        return None
    if name in CONTINUOUS:
        if not _INTEGER.fullmatch(bare):
            return "bad integer", f"{said}, not an integer", None
        if not _fits_int64(bare):
            return "bad integer", f"{said}, which does not fit into 64 bits", None
        return None
    if _HEX.fullmatch(value):
        return None
    return "bad hex", f"{said}, not 8 hex digits", None


def _fits_int64(number: bytes) -> bool:
    # Without leading zeros: Python refuses to convert thousands of digits.
    digits = number.removeprefix(b"-").lstrip(b"0") or b"0"
    sign = -1 if number.startswith(b"-") else 1
    return len(digits) <= _INT64_DIGITS and sign * int(digits) in _INT64_RANGE
