"""A vocabulary whose values and index stay in files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distrain.errors import DataError
from distrain.etl.operators import Vocabulary, text_hashes
from distrain.vocabulary import BoolArray, Int32Array, is_text, read_meta

Keys = np.ndarray[Any, np.dtype[Any]]

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

    Attributes:
        keys: Integers, or hashes of strings, in rising order, `[values]`.
        places: Their places among the values, `[values]`.
    """

    keys: Keys
    places: Int32Array

    @classmethod
    def open(cls, categories: str, name: str, folder: str) -> MappedVocabulary:
        """Map the files that `write_index` made of a vocabulary in `categories`.

        Raises:
            DataError: Files are missing or do not belong together.
        """
        meta, place = read_meta(categories, name), Path(folder)
        try:
            holds_text = (place / TEXT).exists()
            values = _text(place) if holds_text else pa.array(mapped(place / VALUES, np.int64))
            counts = pa.array(mapped(place / COUNTS, np.int64))
            keys = mapped(place / KEYS, np.uint64 if holds_text else np.int64)
            places = mapped(place / PLACES, np.int32)
        except (OSError, ValueError) as error:
            raise DataError(
                "the index of a vocabulary cannot be read",
                where={"folder": folder, "cause": str(error).splitlines()[0]},
                hint="All workers must see the staging folder; prepare the files again.",
            ) from None
        return cls(
            values,
            counts,
            meta["oov"]["num_indices"],
            meta["null"]["num_observed"],
            meta["oov"]["num_observed"],
            keys=keys,
            places=places,
        )

    def places_of(self, distinct: pa.Array) -> tuple[BoolArray, Int32Array]:
        """Which values have ids of their own, and where they stand in `values`; `[distinct]`."""
        places = np.zeros(len(distinct), np.int32)
        known = np.zeros(len(distinct), bool)
        if len(self.keys) == 0:
            return known, places
        if not is_text(distinct.type):
            wanted = distinct.to_numpy(zero_copy_only=False)
            at = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
            return self.keys[at] == wanted, self.places[at]
        distinct = distinct.cast(pa.large_string())
        wanted = text_hashes(distinct)
        at = np.searchsorted(self.keys, wanted)
        still = np.arange(len(wanted))
        while len(still):  # again only where strings have equal hashes
            at_key = np.minimum(at[still], len(self.keys) - 1)
            found = (at[still] < len(self.keys)) & (self.keys[at_key] == wanted[still])
            still, candidates = still[found], self.places[at_key[found]]
            equal = pc.equal(self.values.take(pa.array(candidates)), distinct.take(pa.array(still)))
            same = equal.to_numpy(zero_copy_only=False)
            known[still[same]], places[still[same]] = True, candidates[same]
            still = still[~same]
            at[still] += 1
        return known, places


def _text(folder: Path) -> pa.Array:
    offsets, text = mapped(folder / OFFSETS, np.int64), mapped(folder / TEXT, np.uint8)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    return pa.Array.from_buffers(pa.large_string(), len(offsets) - 1, buffers)


def mapped(path: Path, dtype: Any) -> np.ndarray[Any, Any]:
    """A file of numbers as an array, mapped into memory."""
    if path.stat().st_size == 0:  # an empty file cannot be mapped
        return np.zeros(0, dtype)
    return np.memmap(path, dtype, "r")
