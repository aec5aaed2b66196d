"""The one binning that every binary metric shares, and how counts travel as text.

A logit falls into one of `NUM_BINS` bins, uniform over `[-LOGIT_LIMIT, LOGIT_LIMIT]`; what lies
beyond falls into the outermost bins. The bin is a non-decreasing function of the logit, and that
is all that the certified bounds in `distrain.metrics.report` need.
"""

import base64
import binascii
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

NUM_BINS = 65_536
LOGIT_LIMIT = 16.0
BINS_PER_LOGIT = NUM_BINS / (2 * LOGIT_LIMIT)

Floats = npt.NDArray[np.floating[Any]]
Counts = npt.NDArray[np.int64]

_DTYPES = ("<u1", "<u2", "<u4", "<u8")


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
    """Counts as JSON values: of the bins that hold rows, the distances between them and the counts.

    Both are the narrowest unsigned integers that hold them, in base64. Most reports fill a small
    part of the bins: writing and reading that part alone takes a tenth of the time that zlib takes
    over all of them, and the scheduler reads every rank's reports.

    Args:
        counts: int64 `[NUM_BINS]`, none negative.
    """
    held = np.flatnonzero(counts)
    gap_dtype, gaps = _pack(np.diff(held, prepend=-1))
    count_dtype, filled = _pack(counts[held])
    return {"gap_dtype": gap_dtype, "gaps": gaps, "count_dtype": count_dtype, "counts": filled}


def add_packed(into: Counts, documents: Iterable[Mapping[str, str]]) -> None:
    """Add to counts what `pack_counts` gave, of many at once: NumPy takes its time per call.

    Args:
        into: int64 `[NUM_BINS]`.
        documents: Packed counts.

    Raises:
        ValueError: A document does not hold counts of ascending bins below `NUM_BINS`. What was
            added before it was noticed stays.

    >>> counts = np.zeros(NUM_BINS, np.int64)
    >>> counts[[3, 65_000]] = 1, 500
    >>> total = np.zeros(NUM_BINS, np.int64)
    >>> add_packed(total, [pack_counts(counts)] * 3)
    >>> total[[3, 65_000]].tolist()
    [3, 1500]
    """
    alike: dict[tuple[str, str], list[tuple[bytes, bytes]]] = defaultdict(list)
    for document in documents:
        raw = _raw(document["gaps"]), _raw(document["counts"])
        if any(raw):
            alike[document["gap_dtype"], document["count_dtype"]].append(raw)
    for (gap_dtype, count_dtype), pairs in alike.items():
        gaps, lengths = _joined(gap_dtype, [gaps for gaps, _ in pairs])
        counts, count_lengths = _joined(count_dtype, [counts for _, counts in pairs])
        if lengths != count_lengths:
            raise ValueError("counts cannot be unpacked: they are not as many as their bins")
        np.add.at(into, _bins(gaps, np.array(lengths)), counts)


def _bins(gaps: Counts, lengths: Counts) -> Counts:
    """The bins that gaps lead to, of documents with `lengths` gaps each, none of them 0."""
    # Before any sum: gaps that are no more than there are bins cannot overflow it.
    if gaps.min() < 1 or gaps.max() > NUM_BINS:
        raise ValueError("counts cannot be unpacked: their bins do not ascend")
    reached = np.cumsum(gaps)
    firsts = np.cumsum(lengths) - lengths
    bins: Counts = reached - np.repeat(reached[firsts] - gaps[firsts], lengths) - 1
    if bins.max() >= NUM_BINS:
        raise ValueError(f"counts of bin {bins.max()} of {NUM_BINS} cannot be unpacked")
    return bins


def _pack(values: Counts) -> tuple[str, str]:
    peak = int(values.max(initial=0))
    dtype = next(d for d in _DTYPES if peak <= np.iinfo(d).max)
    return dtype, base64.b64encode(values.astype(dtype).tobytes()).decode("ascii")


def _raw(text: str) -> bytes:
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except binascii.Error as error:
        raise ValueError(f"counts cannot be unpacked: {error}") from None


def _joined(dtype: str, raws: list[bytes]) -> tuple[Counts, list[int]]:
    """The integers of all, int64, and how many each has."""
    if dtype not in _DTYPES:
        raise ValueError(f"unknown dtype of counts {dtype!r}")
    itemsize = np.dtype(dtype).itemsize
    odd = [len(raw) for raw in raws if len(raw) % itemsize]
    if odd:
        raise ValueError(f"{odd[0]} bytes are no counts of {itemsize} bytes each")
    return np.frombuffer(b"".join(raws), dtype).astype(np.int64), [
        len(raw) // itemsize for raw in raws
    ]
