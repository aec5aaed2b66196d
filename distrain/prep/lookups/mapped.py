"""A vocabulary whose values and index stay in files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distrain.errors import DataError
from distrain.prep.counting.spilling import MappedFile
from distrain.prep.operators.counts import text_hashes
from distrain.prep.vocabulary import (
    BoolArray,
    Int32Array,
    Vocabulary,
    is_text,
    read_footer,
    read_meta,
)
from distrain.storage.os_errors import reading_hint
from distrain.storage.retrying import first_line

Keys = np.ndarray[Any, np.dtype[Any]]
PathOf = Callable[[str], Path]

_RANGE_KEYS = 1 << 21
_KEPT_KEYS = 1 << 16

OFFSETS, TEXT, VALUES = "offsets", "text", "values"
COUNTS, KEYS, PLACES = "counts", "keys", "places"
"""The files in the folder of one lookup, arrays as they lie in memory:

    values           the values in the order of their ids, int64; of strings instead
    offsets, text    where each begins, int64, and their UTF-8
    counts           how often each was seen, int64
    keys, places     the values, or hashes of strings, in rising order; and the places they have
                     among the values, int32
"""


@dataclass(frozen=True, eq=False, kw_only=True)
class MappedVocabulary(Vocabulary):
    """A vocabulary in files that are mapped into memory.

    A lookup walks through the keys in ranges, and then gives their pages back: however large the
    vocabulary is, a thread holds little of it.
    """

    keys: Keys  # integers, or hashes of strings, in rising order, `[values]`
    places: Int32Array  # their places among the values, `[values]`
    files: tuple[MappedFile, ...]

    @classmethod
    def open(cls, categories: str, name: str, path_of: PathOf) -> MappedVocabulary:
        """Map the files that were made of a vocabulary in `categories`, where `path_of` says."""
        meta, (schema, _) = read_meta(categories, name), read_footer(categories, name)
        files: list[MappedFile] = []

        def of(file: str, dtype: Any) -> Keys:
            files.append(MappedFile.open(path_of(file)))
            return np.frombuffer(files[-1].content, dtype)

        holds_text = is_text(schema.field(name).type)
        try:
            if holds_text:
                values = _text(of(OFFSETS, np.int64), of(TEXT, np.uint8))
            else:
                values = pa.array(of(VALUES, np.int64))
            counts = pa.array(of(COUNTS, np.int64))
            keys = of(KEYS, np.uint64 if holds_text else np.int64)
            places = of(PLACES, np.int32)
        except (OSError, ValueError) as error:
            raise DataError(
                "the index of a vocabulary cannot be read",
                where={"file": str(path_of(KEYS)), "cause": first_line(error)},
                hint=reading_hint(
                    error, "All workers must see the staging folder; prepare the files again."
                ),
            ) from None
        return cls(
            values,
            counts,
            meta["oov"]["num_indices"],
            meta["null"]["num_observed"],
            meta["oov"]["num_observed"],
            keys=keys,
            places=places,
            files=tuple(files),
        )

    def places_of(self, distinct: pa.Array) -> tuple[BoolArray, Int32Array]:
        places = np.zeros(len(distinct), np.int32)
        known = np.zeros(len(distinct), bool)
        if is_text(distinct.type):
            distinct = distinct.cast(pa.large_string())
            wanted = text_hashes(distinct)
        else:
            wanted = distinct.to_numpy(zero_copy_only=False)
        for first, rows in self._by_ranges(wanted):
            found = self.keys[first : first + _RANGE_KEYS].searchsorted(wanted[rows])
            at = found + first
            if is_text(distinct.type):
                known[rows], places[rows] = self._same_texts(distinct.take(rows), wanted[rows], at)
            else:
                at = np.minimum(at, len(self.keys) - 1)
                known[rows], places[rows] = self.keys[at] == wanted[rows], self.places[at]
            self._forget()
        return known, places

    def _by_ranges(self, wanted: Keys) -> Iterator[tuple[int, Keys]]:
        order = np.argsort(wanted)
        # A key that equals the first of a range may begin in the range before.
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
        while len(still):  # again only where strings have equal hashes
            at_key = np.minimum(at[still], len(self.keys) - 1)
            found = (at[still] < len(self.keys)) & (self.keys[at_key] == wanted[still])
            still, candidates = still[found], self.places[at_key[found]]
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
        # Small ones stay: they are looked at again for each part.
        if len(self.keys) > _KEPT_KEYS:
            for file in self.files:
                file.forget()


def _text(offsets: Keys, text: Keys) -> pa.Array:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    return pa.Array.from_buffers(pa.large_string(), len(offsets) - 1, buffers)
