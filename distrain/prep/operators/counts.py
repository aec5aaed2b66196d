"""Counts values, adds counts up, and divides them into buckets of the values' hashes.

Equal values have equal hashes. So the counts can be added up independently for each piece (some
neighbouring buckets), with the memory of one piece.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distrain.prep.vocabulary import is_text, one_array

NUM_BUCKETS = 4096
"""Number of buckets of the hashes of values.

The counts of a range of buckets are a piece, which one task adds up.
"""

_STRING_BYTES = 2**31 - 1
"""The largest offset of Arrow's `string`; `large_string` has 64-bit offsets."""

_TABLE_PLACES = 64
_HASHED_AT_ONCE = 1 << 16

Buckets = np.ndarray[Any, np.dtype[np.uint16]]
Hashes = np.ndarray[Any, np.dtype[np.uint64]]
_Int64Array = np.ndarray[Any, np.dtype[np.int64]]
_HALF_WORD = 1 << 32


@dataclass(frozen=True, eq=False)
class Counts:
    """The values of a column and the number of times that each occurs."""

    # the values, int64 or string (`counted` keeps narrower integers), in no particular order;
    # distinct, except in the result of `joined`
    values: pa.Array
    counts: pa.Array  # how often each value was seen, int64
    nulls: int = 0  # number of missing values

    @classmethod
    def of_rows(cls, rows: pa.Table) -> Counts:
        """Return the counts in the columns `value` and `count` of a table; `nulls` is 0."""
        return cls(one_array(rows["value"]), one_array(rows["count"]))

    @property
    def rows(self) -> pa.Table:
        return pa.table({"value": self.values, "count": self.counts})

    @property
    def nbytes(self) -> int:
        return int(self.values.nbytes + self.counts.nbytes)


def joined(states: Sequence[Counts]) -> Counts:
    """Return all counts, one after another; counts of equal values are not added up."""
    # Concatenating copies to new, aligned memory; arrays from the network may be unaligned.
    return Counts(
        pa.concat_arrays(_wide_enough([s.values for s in states])),
        pa.concat_arrays([s.counts for s in states]),
        sum(s.nulls for s in states),
    )


def counted(values: pa.Array) -> Counts:
    """Return the counts of integers or texts; each distinct value once."""
    present = values.drop_null() if values.null_count else values
    if is_text(values.type):
        found = pc.value_counts(present)
        return Counts(found.field("values"), found.field("counts"), values.null_count)
    in_order = np.sort(present.to_numpy(zero_copy_only=False))
    begins = _begins(in_order)
    counts = np.diff(begins, append=len(in_order))
    return Counts(pa.array(in_order[begins]), pa.array(counts), values.null_count)


def added_up(counts: Counts) -> Counts:
    """Return the counts with each value once; integers are sorted, texts are in no order."""
    if not is_text(counts.values.type):
        return _added_up_integers(counts)
    groups = counts.rows.group_by("value", use_threads=False)
    merged = groups.aggregate([("count", "sum")]).combine_chunks()
    values, sums = merged["value"].combine_chunks(), merged["count_sum"].combine_chunks()
    return Counts(values, sums, counts.nulls)


def _added_up_integers(counts: Counts) -> Counts:
    # Sorting integers takes a tenth of the time of a hash table, which exceeds the CPU's caches.
    values, numbers = _sorted_by_value(
        counts.values.to_numpy(zero_copy_only=False), counts.counts.to_numpy(zero_copy_only=False)
    )
    begins = _begins(values)
    sums = np.add.reduceat(numbers, begins) if len(begins) else numbers
    return Counts(pa.array(values[begins]), pa.array(sums), counts.nulls)


def _sorted_by_value(values: _Int64Array, counts: _Int64Array) -> tuple[_Int64Array, _Int64Array]:
    if len(values) == 0:
        return values, counts
    lowest = int(values.min())
    if int(values.max()) - lowest < _HALF_WORD and int(counts.max()) < _HALF_WORD:
        # Value and count share a 64-bit word: words are sorted three times as fast as row indices.
        words = (values - lowest).view(np.uint64) << np.uint64(32)
        words |= counts.view(np.uint64)
        words.sort()
        in_order = (words >> np.uint64(32)).view(np.int64) + lowest
        return in_order, (words & np.uint64(_HALF_WORD - 1)).view(np.int64)
    order = np.argsort(values)
    return values[order], counts[order]


def _begins(in_order: np.ndarray[Any, Any]) -> _Int64Array:
    is_first = np.ones(len(in_order), bool)
    np.not_equal(in_order[1:], in_order[:-1], out=is_first[1:])
    return np.flatnonzero(is_first)


def in_buckets(rows: pa.Table) -> tuple[pa.Table, np.ndarray[Any, np.dtype[np.int64]]]:
    """Return rows sorted by the bucket of `value`, and the index at which each bucket begins.

    The indices, `[4097]`, end with the number of rows.
    """
    buckets = buckets_of(one_array(rows["value"]))
    begins = np.zeros(NUM_BUCKETS + 1, np.int64)
    np.cumsum(np.bincount(buckets, minlength=NUM_BUCKETS), out=begins[1:])
    return rows.take(pa.array(np.argsort(buckets, kind="stable"))), begins


def buckets_of(values: pa.Array) -> Buckets:
    """Return the hash bucket of each value, uint16 `[values]`, the same on every machine.

    Values are spread evenly over the buckets, 0 to 4095; nulls are in bucket 0.
    """
    if values.null_count:
        buckets = buckets_of(values.fill_null("" if is_text(values.type) else 0))
        buckets[values.is_null().to_numpy(zero_copy_only=False)] = 0
        return buckets
    hashes = text_hashes(values) if is_text(values.type) else _integers(values)
    mixed = (hashes ^ (hashes >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)
    return (mixed >> np.uint64(52)).astype(np.uint16)


def narrow_enough(values: pa.Array) -> pa.Array:
    """Return values of type `large_string` as `string` if they have less than 2 GiB."""
    if pa.types.is_large_string(values.type) and values.nbytes <= _STRING_BYTES:
        return values.cast(pa.string())
    return values


def _wide_enough(arrays: Sequence[pa.Array]) -> Sequence[pa.Array]:
    """Return the arrays in a common type, so that they can be concatenated.

    If any array has strings, the type is `string`, or `large_string` if an array has that type or
    all strings together exceed 2 GiB.
    """
    if any(is_text(array.type) for array in arrays):
        arrays = [array if len(array) else array.cast(pa.string()) for array in arrays]
    types = {array.type for array in arrays}
    if not is_text(arrays[0].type) or (
        len(types) == 1 and sum(array.nbytes for array in arrays) <= _STRING_BYTES
    ):
        return arrays
    return [array.cast(pa.large_string()) for array in arrays]


def _integers(values: pa.Array) -> Hashes:
    numbers: Hashes = values.to_numpy(zero_copy_only=False).astype(np.int64).view(np.uint64)
    return numbers * np.uint64(0xBF58476D1CE4E5B9)


def text_hashes(values: pa.Array) -> Hashes:
    """Return a hash of each string, `[values]`, uint64: the same on every machine.

    It is tabulation hashing: the sum of a random number for each byte at its position (modulo 64),
    plus the length.
    """
    values = values.cast(pa.large_string())
    pieces = [
        _hashed_piece(values.slice(first, _HASHED_AT_ONCE))
        for first in range(0, len(values), _HASHED_AT_ONCE)
    ]
    return np.concatenate(pieces) if pieces else np.zeros(0, np.uint64)


def _hashed_piece(values: pa.Array) -> Hashes:
    _, offsets_buffer, text_buffer = values.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64, len(values) + 1, 8 * values.offset)
    sums = np.zeros(offsets[-1] - offsets[0] + 1, np.uint64)
    if len(sums) > 1:
        text = np.frombuffer(text_buffer, np.uint8, len(sums) - 1, offsets[0])
        places = np.arange(offsets[0], offsets[-1]) - np.repeat(offsets[:-1], np.diff(offsets))
        np.cumsum(_TABLE[places % _TABLE_PLACES, text], out=sums[1:])
    ends = sums[offsets - offsets[0]]
    lengths = np.diff(offsets).astype(np.uint64)
    hashes: Hashes = ends[1:] - ends[:-1] + lengths  # modulo 2^64
    return hashes


def _drawn(count: int) -> Hashes:
    """Return the first `count` random numbers of splitmix64: the same with any version of NumPy."""
    x = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    drawn: Hashes = x ^ (x >> np.uint64(31))
    return drawn


_TABLE = _drawn(_TABLE_PLACES * 256).reshape(_TABLE_PLACES, 256)
