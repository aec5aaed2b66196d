"""The one binning that every binary metric shares, and how counts travel as text.

A logit falls into one of `NUM_BINS` bins, uniform over `[-LOGIT_LIMIT, LOGIT_LIMIT]`; what lies
beyond falls into the outermost bins. The bin is a non-decreasing function of the logit, and that
is all that the certified bounds in `distrain.metrics.report` need.
"""

import base64
import binascii
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

NUM_BINS = 65_536
LOGIT_LIMIT = 16.0
BINS_PER_LOGIT = NUM_BINS / (2 * LOGIT_LIMIT)

Floats = npt.NDArray[np.floating[Any]]
Counts = npt.NDArray[np.int64]

_COUNT_DTYPES = ("<u1", "<u2", "<u4", "<u8")


def bin_of(logits: Floats) -> Counts:
    """The bin of each finite logit, int64 in `0 .. NUM_BINS-1`.

    float32 arithmetic in this order, so that torch on any device finds the same bins: the factor
    is a power of two, hence exact, and a fused multiply-add cannot change the result.

    >>> bin_of(np.array([-99.0, -16.0, 0.0, 15.9999, 16.0, 99.0])).tolist()
    [0, 0, 32768, 65535, 65535, 65535]
    """
    clamped = np.clip(logits, -LOGIT_LIMIT, LOGIT_LIMIT).astype(np.float32)
    bins = ((clamped + np.float32(LOGIT_LIMIT)) * np.float32(BINS_PER_LOGIT)).astype(np.int64)
    return np.minimum(bins, NUM_BINS - 1)


def pack_counts(counts: Counts) -> dict[str, str]:
    """Counts as JSON values: zlib over the narrowest unsigned integers that hold them, base64.

    One byte a bin does until some bin holds more than 255 rows, so a batch stays small.
    """
    peak = int(counts.max())
    dtype = next(d for d in _COUNT_DTYPES if peak <= np.iinfo(d).max)
    packed = zlib.compress(counts.astype(dtype).tobytes(), 6)
    return {"dtype": dtype, "zlib": base64.b64encode(packed).decode("ascii")}


def unpack_counts(document: dict[str, str]) -> Counts:
    """The inverse of `pack_counts`.

    Raises:
        ValueError: The document does not hold `NUM_BINS` counts.
    """
    dtype = document["dtype"]
    if dtype not in _COUNT_DTYPES:
        raise ValueError(f"unknown dtype of counts {dtype!r}")
    size_bytes = NUM_BINS * np.dtype(dtype).itemsize
    try:
        packed = base64.b64decode(document["zlib"], validate=True)
        # Never more than one byte too many, whatever the text claims to unpack to.
        raw = zlib.decompressobj().decompress(packed, size_bytes + 1)
    except (binascii.Error, zlib.error) as error:
        raise ValueError(f"counts cannot be unpacked: {error}") from None
    if len(raw) != size_bytes:
        raise ValueError(f"the counts unpack to {len(raw)} bytes or more, not {size_bytes}")
    return np.frombuffer(raw, dtype).astype(np.int64)
