"""Raw Criteo lines in their plainest form to columns, in one pass, in C.

It takes less than `raw_lines.parse_lines` does, and what it takes it reads the same way.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from distrain.schema import CATEGORICAL, CONTINUOUS

try:
    from distrain.etl import _lines
except ImportError:  # built without a compiler
    _lines = None  # type: ignore[assignment]

SPLITTER_IS_BUILT = _lines is not None
_DELIMITERS = "\t,;|"


def parse_plain(block: bytes, delimiter: str, num_rows: int) -> list[pa.Array] | None:
    """The columns of whole lines; `None` if some line is not plain, or without the kernel.

    Plain are 40 fields: 0 or 1, 13 integers of at most 18 digits, 26 words of 8 hex digits; empty
    integers and words are nulls.

    Args:
        num_rows: How many lines the block has.

    Returns:
        Label (int8), I1..I13 (int64), C1..C26 (uint32), `[num_rows]` each.
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
