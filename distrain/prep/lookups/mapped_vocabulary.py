"""A vocabulary whose values and index stay in files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from distrain.errors import DataError
from distrain.prep.mapped_files import MappedFile
from distrain.prep.operators.key_index import KeyIndex, Keys
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

PathOf = Callable[[str], Path]

OFFSETS, TEXT, VALUES = "offsets", "text", "values"
KEYS, PLACES = "keys", "places"
"""The files in the folder of one lookup, raw arrays:

    values           the values in the order of their ids, int64; for strings instead:
    offsets, text    the offset of each string, int64, and the UTF-8 of all strings
    keys, places     the values, or hashes of strings, ascending; and their indices among the
                     values, int32
"""


@dataclass(frozen=True, eq=False, kw_only=True)
class MappedVocabulary(Vocabulary):
    """A vocabulary in files that are mapped into memory; `counts` is empty."""

    index: KeyIndex

    @classmethod
    def open(cls, categories: str, name: str, path_of: PathOf) -> MappedVocabulary:
        """Map the lookup files of a vocabulary in `categories`, at the paths from `path_of`.

        Raises `DataError` if they, or the vocabulary's own files, cannot be read; `Unavailable` if
        the storage does not answer.
        """
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
            pa.array([], pa.int64()),
            meta["oov"]["num_indices"],
            meta["null"]["num_observed"],
            meta["oov"]["num_observed"],
            index=KeyIndex(values, keys, places, tuple(files)),
        )

    def places_of(self, distinct: pa.Array) -> tuple[BoolArray, Int32Array]:
        return self.index.places_of(distinct)


def _text(offsets: Keys, text: Keys) -> pa.Array:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    return pa.Array.from_buffers(pa.large_string(), len(offsets) - 1, buffers)
