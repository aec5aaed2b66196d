"""The binning that all binary metrics share, and the serialisation of counts as text.

A logit falls into one of `NUM_BINS` bins, uniform over `[-LOGIT_LIMIT, LOGIT_LIMIT]`; logits
outside fall into the outermost bins. The bin is a non-decreasing function of the logit, which
is all that the certified bounds in `distrain.metrics.report` need.
"""

import base64
import binascii
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

NUM_BINS = 65_536
LOGIT_LIMIT = 16.0
BINS_PER_LOGIT = NUM_BINS / (2 * LOGIT_LIMIT)

Floats = npt.NDArray[np.floating[Any]]
Counts = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]
Weights = npt.NDArray[Any]
"""Rows per bin, or the sums of their weights."""

MAX_GAP = 255
AT_ONCE = 64
"""Number of documents that are unpacked together; their bins fit a core's cache."""

_DTYPES = ("<u1", "<u2", "<u4", "<u8")
_WEIGHTS = "<f8"


def bin_of(logits: Floats) -> Counts:
    """Return the bin of each finite logit, int64 in `0 .. NUM_BINS-1`.

    It uses float32 arithmetic in a fixed order, so that torch on any device gives the same bins:
    the factor is a power of two, hence exact, and a fused multiply-add cannot change the result.

    >>> bin_of(np.array([-99.0, -16.0, 0.0, 15.9999, 16.0, 99.0])).tolist()
    [0, 0, 32768, 65535, 65535, 65535]
    """
    clamped = np.clip(logits, -LOGIT_LIMIT, LOGIT_LIMIT).astype(np.float32)
    bins = ((clamped + np.float32(LOGIT_LIMIT)) * np.float32(BINS_PER_LOGIT)).astype(np.int64)
    return np.minimum(bins, NUM_BINS - 1)


def pack_counts(counts: Weights) -> dict[str, str]:
    """Return counts per bin as JSON values.

    The values are the distances between non-empty bins (`gaps`), the counts of these bins
    (`counts`), and the dtype of the counts (`dtype`).

    Most reports fill a small part of the bins. Serialising only that part takes a tenth of the time
    of zlib over all bins, and the scheduler reads every rank's reports. A distance is one byte; a
    longer distance is split into steps of 255, to bins with the count 0. Counts use the narrowest
    unsigned integers that hold them; fractional sums of weights are float64. Distances and counts
    are encoded as base64.
    """
    held = np.flatnonzero(counts)
    distances = np.diff(held, prepend=-1)
    full_steps = (distances - 1) // MAX_GAP
    at = np.cumsum(full_steps + 1) - 1
    gaps = np.full(len(held) + int(full_steps.sum()), MAX_GAP, np.uint8)
    gaps[at] = distances - MAX_GAP * full_steps
    dtype = _narrowest(counts)
    steps = np.zeros(len(gaps), dtype)
    steps[at] = counts[held]
    return {"gaps": _text(gaps), "dtype": dtype, "counts": _text(steps)}


def _narrowest(counts: Weights) -> str:
    if counts.dtype == np.float64 and (counts != np.floor(counts)).any():
        return _WEIGHTS
    return next((d for d in _DTYPES if counts.max() <= np.iinfo(d).max), _WEIGHTS)


def add_packed(into: Weights, documents: Sequence[Mapping[str, str]]) -> None:
    """Add the counts of documents from `pack_counts` to `into`, `[bins]`, in place.

    Many documents are added in one call of NumPy, which is faster.

    Raises:
        ValueError: A document does not hold counts of ascending bins of `into`, or has fractional
            weights while `into` holds integers; earlier documents may have been added.

    >>> counts = np.zeros(NUM_BINS, np.int64)
    >>> counts[[3, 65_000]] = 1, 500
    >>> total = np.zeros(NUM_BINS, np.int64)
    >>> add_packed(total, [pack_counts(counts)] * 3)
    >>> total[[3, 65_000]].tolist()
    [3, 1500]
    """
    alike: dict[str, list[tuple[bytes, bytes]]] = defaultdict(list)
    for document in documents:
        raw = _raw(document["gaps"]), _raw(document["counts"])
        if any(raw):
            alike[document["dtype"]].append(raw)
    for dtype, pairs in alike.items():
        for first in range(0, len(pairs), AT_ONCE):
            _add(into, dtype, pairs[first : first + AT_ONCE])


def _add(into: Weights, dtype: str, pairs: list[tuple[bytes, bytes]]) -> None:
    takes_weights = into.dtype == np.float64
    if dtype not in (*_DTYPES, *((_WEIGHTS,) if takes_weights else ())):
        raise ValueError(f"unknown dtype of counts {dtype!r}")
    itemsize = np.dtype(dtype).itemsize
    if any(len(gaps) * itemsize != len(counts) for gaps, counts in pairs):
        raise ValueError("counts cannot be unpacked: their number differs from the number of bins")
    bins = _bins([gaps for gaps, _ in pairs], len(into))
    counts = np.frombuffer(b"".join(counts for _, counts in pairs), dtype)
    if dtype == _WEIGHTS and not ((counts >= 0) & np.isfinite(counts)).all():
        raise ValueError("weights cannot be unpacked: one is below 0 or not finite")
    np.add.at(into, bins, counts.astype(into.dtype))


def _bins(raws: list[bytes], num_bins: int) -> Counts:
    """Return the numbers of the non-empty bins of several documents, one document after another.

    `raws` has the decoded `gaps` of each document (see `pack_counts`), which may not be empty.
    Raises `ValueError` for bins that do not ascend, or are not below `num_bins`.
    """
    gaps = np.frombuffer(b"".join(raws), np.uint8)
    if not gaps.all():
        raise ValueError("counts cannot be unpacked: their bins do not ascend")
    lengths = np.array([len(raw) for raw in raws])
    firsts = np.cumsum(lengths) - lengths
    reached = np.cumsum(gaps, dtype=np.int64)
    bins: Counts = reached - np.repeat(reached[firsts] - gaps[firsts] + 1, lengths)
    if bins.max() >= num_bins:
        raise ValueError(f"counts of bin {bins.max()} of {num_bins} cannot be unpacked")
    return bins


def _text(values: npt.NDArray[Any]) -> str:
    return base64.b64encode(values.tobytes()).decode("ascii")


def _raw(text: str) -> bytes:
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except binascii.Error as error:
        raise ValueError(f"counts cannot be unpacked: {error}") from None
