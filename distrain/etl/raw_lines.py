"""Raw Criteo lines to a table: one fast way for good blocks.

A line has 40 fields: label (0 or 1), I1..I13 (integers, may be empty), C1..C26 (8 hex digits, may
be empty). In the table the label is int8, I int64 and C uint32, the number that the hex digits
spell; an empty field is a null.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from distrain.schema import CATEGORICAL, CONTINUOUS, LABEL

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
_NOT_HEX = 255
# What fits into a core's cache: twice as fast as whole blocks.
_PARSED_AT_ONCE_BYTES = 1 << 20
_HEX_VALUE = np.full(256, _NOT_HEX, np.uint8)
for _value, _digit in enumerate("0123456789abcdef"):
    _HEX_VALUE[ord(_digit)] = _HEX_VALUE[ord(_digit.upper())] = _value


@dataclass(frozen=True)
class TextLayout:
    """How a text file is laid out.

    Attributes:
        delimiter: What separates the fields, one character.
        header: Whether each file's first line names the columns.
    """

    delimiter: str = "\t"
    header: bool = False


def num_lines(block: bytes) -> int:
    """How many lines a block holds; the last may lack its line end."""
    return block.count(b"\n") + (not block.endswith(b"\n") if block else 0)


def parse_lines(block: bytes, layout: TextLayout) -> pa.Table | None:
    """The rows of whole lines, or `None` if some line is bad.

    The caller finds out which, and what is wrong with it; that takes far longer than this.
    """
    if not block:
        return STAGED_SCHEMA.empty_table()
    if b"x" in block or b"X" in block:
        return None  # Arrow would take 0x1F for an integer.
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
    text = np.frombuffer(
        array.buffers()[1], np.uint8, count=8 * len(array), offset=8 * array.offset
    )
    is_null = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    digits = _HEX_VALUE[text].reshape(-1, 8)
    if is_null is not None:
        digits[is_null] = 0
    if digits.max(initial=0) == _NOT_HEX:
        return None
    return pa.array(_join_digits(digits), mask=is_null)


def _join_digits(digits: np.ndarray[Any, np.dtype[np.uint8]]) -> Any:
    octets = (digits[:, 0::2] << 4) | digits[:, 1::2]
    return np.ascontiguousarray(octets).view(">u4").reshape(-1).astype(np.uint32)
