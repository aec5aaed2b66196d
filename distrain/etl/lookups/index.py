"""The index of a vocabulary, written out of core.

Batches of the vocabulary are each brought in the order of their keys, and lie beside each other in
one file. Then they are cut at the same keys, and what lies between two cuts is brought in order.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa

from distrain.etl.lookups.mapped import (
    COUNTS,
    KEYS,
    OFFSETS,
    PLACES,
    TEXT,
    VALUES,
    Keys,
    mapped,
)
from distrain.etl.operators import text_hashes
from distrain.storage import translated_errors
from distrain.vocabulary import ROW_GROUP_VALUES, Int32Array, is_text, read_batches

_BYTES_BY_KEY = 64
"""Keys and places, their order, and both once more, by each key that is brought in order."""

_RUNS = "runs-"
_Run = tuple[Keys, Int32Array]


def write_index(categories: str, name: str, folder: str, range_bytes: int) -> int:
    """Write the lookup of a vocabulary in `categories` to a new folder; returns its values.

    Args:
        range_bytes: What is brought in order at once.

    Raises:
        DataError: The vocabulary cannot be read.
        OutputError: The lookup cannot be written.
    """
    most = max(1, min(ROW_GROUP_VALUES, range_bytes // _BYTES_BY_KEY))
    partial = Path(f"{folder}.{uuid.uuid4().hex[:8]}.partial")
    with translated_errors(folder):
        partial.mkdir()
        try:
            sizes = _write_runs(partial, categories, name, most)
            _merge_runs(partial, sizes, most)
            # Another worker may have made it, and was lost before that was known.
            with suppress(OSError):
                partial.rename(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return sum(sizes)


def _write_runs(folder: Path, categories: str, name: str, most: int) -> list[int]:
    """Write the values as they are, and each batch's keys in order; returns the batches' sizes."""
    sizes: list[int] = []
    with ExitStack() as opened:

        def of(file: str) -> IO[bytes]:
            return opened.enter_context((folder / file).open("wb", buffering=1 << 20))

        counts_to, keys_to, places_to = of(COUNTS), of(_RUNS + KEYS), of(_RUNS + PLACES)
        values_to: _TextFiles | IO[bytes] | None = None
        keys: Keys
        for values, counts in read_batches(categories, name, most):
            counts_to.write(_bytes(_numbers(counts)))
            if is_text(values.type):
                values_to = values_to or _TextFiles(of(OFFSETS), of(TEXT))
                keys = text_hashes(values)
            else:
                values_to = values_to or of(VALUES)
                keys = _numbers(values)
            if isinstance(values_to, _TextFiles):
                values_to.write(values)
            else:
                values_to.write(_bytes(keys))
            order = np.argsort(keys, kind="stable")
            keys_to.write(_bytes(keys[order]))
            places_to.write(_bytes((order + sum(sizes)).astype(np.int32)))
            sizes.append(len(keys))
    return sizes


class _TextFiles:
    """Strings as Arrow lays them out: offsets and bytes."""

    def __init__(self, offsets: IO[bytes], text: IO[bytes]):
        self._offsets, self._text = offsets, text
        self._size_bytes = 0
        self._offsets.write(_bytes(np.zeros(1, np.int64)))

    def write(self, values: pa.Array) -> None:
        values = values.cast(pa.large_string())
        _, offsets_buffer, text_buffer = values.buffers()
        offsets = np.frombuffer(offsets_buffer, np.int64, len(values) + 1, 8 * values.offset)
        size_bytes = int(offsets[-1] - offsets[0])
        self._offsets.write(_bytes(offsets[1:] - offsets[0] + self._size_bytes))
        if size_bytes:
            self._text.write(memoryview(text_buffer)[offsets[0] : offsets[0] + size_bytes])
        self._size_bytes += size_bytes


def _merge_runs(folder: Path, sizes: Sequence[int], most: int) -> None:
    """Bring all batches' keys in one order."""
    if len(sizes) == 1:
        for file in (KEYS, PLACES):
            (folder / (_RUNS + file)).rename(folder / file)
        return
    key_type = np.uint64 if (folder / TEXT).exists() else np.int64
    keys = mapped(folder / (_RUNS + KEYS), key_type)
    places = mapped(folder / (_RUNS + PLACES), np.int32)
    ends = np.cumsum(sizes)
    runs = [(keys[e - n : e], places[e - n : e]) for e, n in zip(ends, sizes, strict=True)]
    with (folder / KEYS).open("wb") as keys_to, (folder / PLACES).open("wb") as places_to:
        for keys_of_range, places_of_range in in_ranges(runs, most):
            keys_to.write(_bytes(keys_of_range))
            places_to.write(_bytes(places_of_range))
    for file in (KEYS, PLACES):
        (folder / (_RUNS + file)).unlink()


def in_ranges(runs: Sequence[_Run], most: int) -> Iterator[_Run]:
    """The keys of all runs, each of which is in rising order, in ranges of about `most`."""
    step = max(1, most // (2 * len(runs)))
    samples = np.sort(np.concatenate([keys[::step] for keys, _ in runs]))
    cuts = np.unique(samples[len(runs) :: len(runs)])
    spans = [
        np.concatenate([[0], np.searchsorted(keys, cuts), [len(keys)]]).astype(np.int64)
        for keys, _ in runs
    ]
    for n in range(len(cuts) + 1):
        slices = [slice(int(at[n]), int(at[n + 1])) for at in spans]
        keys = np.concatenate([of[0][s] for of, s in zip(runs, slices, strict=True)])
        places = np.concatenate([of[1][s] for of, s in zip(runs, slices, strict=True)])
        order = np.argsort(keys, kind="stable")
        yield keys[order], places[order]


def _bytes(array: np.ndarray[Any, Any]) -> memoryview:
    """An array as it lies in memory; what is not in one piece is copied."""
    return np.ascontiguousarray(array).view(np.uint8).data


def _numbers(values: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    numbers: np.ndarray[Any, np.dtype[np.int64]] = values.cast(pa.int64()).to_numpy()
    return numbers
