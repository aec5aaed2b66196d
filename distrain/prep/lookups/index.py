"""The lookups of a run: the index of each vocabulary, written out of core, and opened.

Batches of the vocabulary are each brought in the order of their keys, and lie beside each other in
one file. Then they are cut at the same keys, and what lies between two cuts is brought in order.
"""

from __future__ import annotations

import functools
import shutil
import threading
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa

from distrain.prep.lookups.mapped import (
    COUNTS,
    KEYS,
    OFFSETS,
    PLACES,
    TEXT,
    VALUES,
    MappedVocabulary,
    PathOf,
)
from distrain.prep.mapped_files import MappedFile, forget_files
from distrain.prep.memory import MemoryPlan
from distrain.prep.operators.key_index import Keys, keys_of
from distrain.prep.operators.value_table import forget_tables
from distrain.prep.sorted_runs import SortedRun, in_ranges
from distrain.prep.vocabulary import (
    CATEGORIES,
    ROW_GROUP_VALUES,
    is_text,
    read_batches,
    read_footer,
)
from distrain.prep.workers import TaskRunner
from distrain.prep.workflow import Workflow
from distrain.storage.folder import open_folder
from distrain.storage.outputs import translated_errors
from distrain.storage.uploads import nameless_file
from distrain.storage.urls import is_remote

_BYTES_BY_KEY = 64
"""Keys and places, their order, and both once more, by each key that is brought in order."""

_RUNS = "runs-"


@dataclass(frozen=True)
class Lookups:
    folder: str | None  # A folder that workers see. `None` has each process make its own lookups
    names: tuple[str, ...]  # the vocabularies; the folder of the n-th is called after n
    range_bytes: int  # what is brought in order at once where a process makes its own

    def folder_of(self, name: str) -> str:
        return f"{self.folder}/{self.names.index(name):04d}"

    def vocabulary(self, categories: str, name: str) -> MappedVocabulary:
        if self.folder is None:
            return open_own_index(categories, name, self.range_bytes)
        place = Path(self.folder_of(name))
        return MappedVocabulary.open(categories, name, lambda file: place / file)


def make_lookups(
    categories: str,
    num_values: Mapping[str, int],
    runner: TaskRunner,
    staging: str,
    memory: MemoryPlan,
) -> Lookups:
    """Make the lookups of vocabularies, of which `num_values` has the names, in `staging`.

    Where that is a URL, processes make their own: the vocabularies that they fetch for that are
    smaller than lookups in the store.
    """
    if is_remote(staging):
        return Lookups(None, tuple(num_values), memory.piece_bytes)
    folder = f"{staging}/lookups"
    lookups = Lookups(folder, tuple(num_values), memory.piece_bytes)
    open_folder(folder).make()
    tasks = [
        (categories, name, lookups.folder_of(name), memory.piece_bytes) for name in lookups.names
    ]
    sizes_bytes = [number * _BYTES_BY_KEY for number in num_values.values()]
    runner.run("index", write_index, tasks, sizes_bytes=sizes_bytes)
    return lookups


def write_index(categories: str, name: str, folder: str, range_bytes: int) -> int:
    """Write the lookup of a vocabulary to a new folder, `range_bytes` at once."""
    partial = Path(f"{folder}.{uuid.uuid4().hex[:8]}.partial")
    with translated_errors(folder):
        partial.mkdir()
        try:
            num_values = _write_files(lambda file: partial / file, categories, name, range_bytes)
            for left in partial.glob(f"{_RUNS}*"):
                left.unlink()
            # Another worker may have made it, and was lost before that was known.
            with suppress(OSError):
                partial.rename(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return num_values


def open_own_index(categories: str, name: str, range_bytes: int) -> MappedVocabulary:
    """The lookup of a vocabulary in nameless files, whose space is free when it is."""
    with ExitStack() as files:

        @cache
        def path_of(_: str) -> Path:
            return files.enter_context(nameless_file(categories))

        _write_files(path_of, categories, name, range_bytes)
        return MappedVocabulary.open(categories, name, path_of)


def _write_files(path_of: PathOf, categories: str, name: str, range_bytes: int) -> int:
    most = max(1, min(ROW_GROUP_VALUES, range_bytes // _BYTES_BY_KEY))
    schema, num_values = read_footer(categories, name)
    holds_text = is_text(schema.field(name).type)
    keys, places = path_of(KEYS), path_of(PLACES)
    if num_values <= most:
        _write_runs(path_of, (keys, places), categories, name, most, holds_text)
    else:
        runs = path_of(_RUNS + KEYS), path_of(_RUNS + PLACES)
        sizes = _write_runs(path_of, runs, categories, name, most, holds_text)
        _merge_runs(runs, (keys, places), sizes, most, holds_text)
    return num_values


def _write_runs(
    path_of: PathOf,
    runs: tuple[Path, Path],
    categories: str,
    name: str,
    most: int,
    holds_text: bool,
) -> list[int]:
    """Write the values as they are, and each batch's keys in order; returns the batches' sizes."""
    sizes: list[int] = []
    keys: Keys
    with ExitStack() as opened:

        def of(path: Path) -> IO[bytes]:
            return opened.enter_context(path.open("wb", buffering=1 << 20))

        keys_to, places_to = map(of, runs)
        counts_to = of(path_of(COUNTS))
        values_to: _TextFiles | IO[bytes]
        if holds_text:
            values_to = _TextFiles(of(path_of(OFFSETS)), of(path_of(TEXT)))
        else:
            values_to = of(path_of(VALUES))
        for values, counts in read_batches(categories, name, most):
            counts_to.write(_bytes(counts.to_numpy(zero_copy_only=False)))
            keys = keys_of(values)
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


def _merge_runs(
    runs: tuple[Path, Path],
    to: tuple[Path, Path],
    sizes: Sequence[int],
    most: int,
    holds_text: bool,
) -> None:
    files = MappedFile.open(runs[0]), MappedFile.open(runs[1])
    keys = pa.array(np.frombuffer(files[0].content, np.uint64 if holds_text else np.int64))
    places = pa.array(np.frombuffer(files[1].content, np.int32))
    rows = pa.table({KEYS: keys, PLACES: places})
    of_batches = [
        SortedRun(rows.slice(end - size, size), ((KEYS, "ascending"),), files)
        for end, size in zip(np.cumsum(sizes).tolist(), sizes, strict=True)
    ]
    with to[0].open("wb") as keys_to, to[1].open("wb") as places_to:
        for of_range in in_ranges(of_batches, most):
            keys_to.write(_bytes(of_range[KEYS].chunk(0).to_numpy()))
            places_to.write(_bytes(of_range[PLACES].chunk(0).to_numpy()))


def _bytes(array: np.ndarray[Any, Any]) -> memoryview:
    """An array as it lies in memory; what is not in one piece is copied."""
    return np.ascontiguousarray(array).view(np.uint8).data


_LOAD_LOCK = threading.Lock()


def load_workflow(folder: str, lookups: Lookups) -> Workflow:
    with _LOAD_LOCK:  # or each thread of a worker would read the vocabularies
        return _load_workflow_once(folder, lookups)


@functools.lru_cache(maxsize=1)
def _load_workflow_once(folder: str, lookups: Lookups) -> Workflow:
    # Safe to keep: every run has its own folder.
    return Workflow.load(folder, functools.partial(lookups.vocabulary, f"{folder}/{CATEGORIES}"))


def forget_run() -> None:
    """Forget the workflow and the files of a run; workers live longer than it."""
    with _LOAD_LOCK:
        _load_workflow_once.cache_clear()
    forget_tables()
    forget_files()
