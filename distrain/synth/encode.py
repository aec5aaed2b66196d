"""Drawn features as an arrow table of raw Criteo values."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from distrain.schema import CATEGORICAL, CONTINUOUS, LABEL
from distrain.synth.draw import Features, Flags
from distrain.synth.hashing import Words32, raw_category

# Four hexadecimal digits of every 16-bit word, as the four bytes of an integer.
_HEX = np.frombuffer("".join(f"{word:04x}" for word in range(1 << 16)).encode(), np.uint32)

RAW_SCHEMA = pa.schema(
    [
        (LABEL, pa.int32()),
        *((name, pa.int64()) for name in CONTINUOUS),
        *((name, pa.string()) for name in CATEGORICAL),
    ]
)


def raw_table(features: Features, labels: npt.NDArray[np.int32]) -> Any:
    """The rows as a `pyarrow.Table` of `RAW_SCHEMA`: label, I1..I13, C1..C26; missing is null."""
    arrays = [pa.array(labels)]
    for name in CONTINUOUS:
        values = features.integers[name].astype(np.int64)
        arrays.append(pa.array(values, mask=features.missing.get(name)))
    for column, name in enumerate(CATEGORICAL):
        words = raw_category(column, features.ids[name])
        arrays.append(_hex_strings(words, features.missing.get(name)))
    return pa.Table.from_arrays(arrays, schema=RAW_SCHEMA)


def _hex_strings(words: Words32, missing: Flags | None) -> Any:
    rows = len(words)
    digits = np.empty((rows, 2), np.uint32)
    digits[:, 0] = _HEX[words >> np.uint32(16)]
    digits[:, 1] = _HEX[words & np.uint32(0xFFFF)]
    offsets = np.zeros(rows + 1, np.int32)
    if missing is None:
        offsets[1:] = 8
        validity = None
    else:
        offsets[1:] = np.where(missing, 0, 8)
        validity = pa.py_buffer(np.packbits(~missing, bitorder="little"))
        digits = digits[~missing]
    np.cumsum(offsets, out=offsets)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(digits), validity)
