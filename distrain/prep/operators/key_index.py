"""An index of known values, built once for many lookups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distrain.prep.mapped_files import MappedFile
from distrain.prep.operators.counts import text_hashes
from distrain.prep.vocabulary import BoolArray, Int32Array, is_text

Keys = np.ndarray[Any, np.dtype[Any]]

_RANGE_KEYS = 1 << 21
_KEPT_KEYS = 1 << 16


@dataclass(frozen=True, eq=False)
class KeyIndex:
    """An index of values, in memory or in memory-mapped files.

    A lookup goes through the keys range by range, and releases the files' pages after each range.
    So a thread needs memory for a small part of a large index only.
    """

    values: pa.Array  # distinct non-null values, int64 or (large) string
    keys: Keys  # the integers, or the strings' hashes, ascending, `[values]`
    places: Int32Array  # for each key, the index of its value in `values`, `[values]`
    files: tuple[MappedFile, ...] = ()

    @classmethod
    def of(cls, values: pa.Array) -> KeyIndex:
        keys = keys_of(values)
        order = np.argsort(keys, kind="stable")
        return cls(values, keys[order], order.astype(np.int32))

    def places_of(self, distinct: pa.Array) -> tuple[BoolArray, Int32Array]:
        """Return which values are known (a mask), and their indices in the index's `values`.

        Both are `[distinct]`. The indices of unknown values have no meaning.
        """
        places = np.zeros(len(distinct), np.int32)
        known = np.zeros(len(distinct), bool)
        if is_text(distinct.type):
            distinct = distinct.cast(pa.large_string())
        wanted = keys_of(distinct)
        for first, rows in self._by_ranges(wanted):
            positions = self.keys[first : first + _RANGE_KEYS].searchsorted(wanted[rows])
            at = positions + first
            if is_text(distinct.type):
                known[rows], places[rows] = self._same_texts(distinct.take(rows), wanted[rows], at)
            else:
                at = np.minimum(at, len(self.keys) - 1)
                known[rows], places[rows] = self.keys[at] == wanted[rows], self.places[at]
            self._forget()
        return known, places

    def _by_ranges(self, wanted: Keys) -> Iterator[tuple[int, Keys]]:
        order = np.argsort(wanted)
        # Keys that equal the first key of a range may begin in the previous range.
        cuts = wanted[order].searchsorted(self.keys[_RANGE_KEYS::_RANGE_KEYS], side="right")
        for number, rows in enumerate(np.split(order, cuts)):
            if len(rows) and len(self.keys):
                yield number * _RANGE_KEYS, rows

    def _same_texts(
        self, distinct: pa.Array, wanted: Keys, at: Keys
    ) -> tuple[BoolArray, Int32Array]:
        places = np.zeros(len(distinct), np.int32)
        known = np.zeros(len(distinct), bool)
        still = np.arange(len(wanted))
        while len(still):  # more than once only if strings have equal hashes
            at_key = np.minimum(at[still], len(self.keys) - 1)
            is_candidate = (at[still] < len(self.keys)) & (self.keys[at_key] == wanted[still])
            still, candidates = still[is_candidate], self.places[at_key[is_candidate]]
            same = self._are_equal(candidates, distinct.take(pa.array(still)))
            known[still[same]], places[still[same]] = True, candidates[same]
            still = still[~same]
            at[still] += 1
        return known, places

    def _are_equal(self, places: Int32Array, texts: pa.Array) -> BoolArray:
        equal = np.zeros(len(places), bool)
        order = np.argsort(places)
        firsts = np.arange(_RANGE_KEYS, len(self.values), _RANGE_KEYS)
        for rows in np.split(order, places[order].searchsorted(firsts)):
            values = self.values.take(pa.array(places[rows]))
            equal[rows] = pc.equal(values, texts.take(pa.array(rows))).to_numpy(
                zero_copy_only=False
            )
            self._forget()
        return equal

    def _forget(self) -> None:
        # Small indexes stay resident: they are used again for each part.
        if len(self.keys) > _KEPT_KEYS:
            for file in self.files:
                file.forget()


def keys_of(values: pa.Array) -> Keys:
    """Return the number by which each value is indexed, `[values]`.

    It is an integer itself, as int64, or a string's hash, as uint64.
    """
    if is_text(values.type):
        return text_hashes(values)
    keys: Keys = values.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return keys
