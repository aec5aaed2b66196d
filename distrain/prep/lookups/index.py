"""Writes and opens lookups: files with the values and the sorted index of each vocabulary.

A vocabulary may be larger than memory. So batches of it are sorted by key, and written one after
another to one file. Then all batches are cut at the same keys, and the entries between two cuts are
sorted.
"""

from __future__ import annotations

import functools
import shutil
import threading
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa

from distrain.prep.lookups.mapped_vocabulary import (
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
from distrain.prep.operators.key_index import keys_of
from distrain.prep.operators.value_table import SavedTable, forget_tables
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
from distrain.storage.unfinished import rename_unless_there
from distrain.storage.uploads import nameless_file
from distrain.storage.urls import is_remote

_BYTES_BY_KEY = 64
"""Memory per sorted key: for the key, its value's index, its order, and copies of key and index."""

_RUNS = "runs"


@dataclass(frozen=True)
class Lookups:
    """The vocabularies of a workflow, as files in which ids are looked up."""

    folder: str | None  # a folder that workers see; `None`: each process makes its own lookups
    names: tuple[str, ...]  # the names of the vocabularies; the n-th has the subfolder n
    range_bytes: int  # memory of a sorted range, if a process makes its own lookups
    table_bytes: int = 0  # memory of a process for tables of counts and target means

    def folder_of(self, name: str) -> str:
        return f"{self.folder}/{self.names.index(name):04d}"

    def vocabulary(self, categories: str, name: str) -> MappedVocabulary:
        """Return the vocabulary `name` of the folder `categories`, opened for looking up ids."""
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
    """Write files for looking up ids in the vocabularies of the folder `categories`.

    They are written by workers to `staging`. `num_values` has the vocabularies' names and sizes;
    `memory` bounds the memory of each task. If `staging` is a URL, nothing is written, and each
    process makes its own files: a vocabulary is less data to fetch from the store than its lookup.
    """
    if is_remote(staging):
        return Lookups(None, tuple(num_values), memory.piece_bytes, memory.table_bytes)
    folder = f"{staging}/lookups"
    lookups = Lookups(folder, tuple(num_values), memory.piece_bytes, memory.table_bytes)
    open_folder(folder).make()
    tasks = [
        (categories, name, lookups.folder_of(name), memory.piece_bytes) for name in lookups.names
    ]
    sizes_bytes = [number * _BYTES_BY_KEY for number in num_values.values()]
    runner.run("index", write_index, tasks, sizes_bytes=sizes_bytes)
    return lookups


def write_index(categories: str, name: str, folder: str, range_bytes: int) -> int:
    """Write the lookup of a vocabulary (its values and their sorted index) to a new folder.

    The vocabulary is `name` in the folder `categories`. Returns the number of its values. Sorts
    about `range_bytes` at a time. If another process has made the folder meanwhile, its files are
    kept.
    """
    partial = Path(f"{folder}.{uuid.uuid4().hex[:8]}.partial")
    with translated_errors(folder):
        partial.mkdir()
        try:
            num_values = _write_files(lambda file: partial / file, categories, name, range_bytes)
            (partial / _RUNS).unlink()
            # A worker that was lost in the meantime may have made the folder already.
            rename_unless_there(partial, Path(folder))
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return num_values


def open_own_index(categories: str, name: str, range_bytes: int) -> MappedVocabulary:
    """Return the lookup of a vocabulary of the folder `categories`, in local files of this process.

    The files are unlinked, so their space is freed with the lookup. Sorts about `range_bytes` at a
    time.
    """
    with ExitStack() as files:

        @cache
        def path_of(_: str) -> Path:
            return files.enter_context(nameless_file(categories))

        _write_files(path_of, categories, name, range_bytes)
        return MappedVocabulary.open(categories, name, path_of)


def _write_files(path_of: PathOf, categories: str, name: str, range_bytes: int) -> int:
    most = max(1, min(ROW_GROUP_VALUES, range_bytes // _BYTES_BY_KEY))
    schema, num_values = read_footer(categories, name)
    _write_runs(path_of, categories, name, most, is_text(schema.field(name).type))
    file = MappedFile.open(path_of(_RUNS))
    runs = [
        SortedRun(pa.table(batch), ((KEYS, "ascending"),), (file,))
        for batch in file.batches
        if batch.num_rows
    ]
    with path_of(KEYS).open("wb") as keys_to, path_of(PLACES).open("wb") as places_to:
        for of_range in in_ranges(runs, most):
            keys_to.write(_bytes(of_range[KEYS].chunk(0).to_numpy()))
            places_to.write(_bytes(of_range[PLACES].chunk(0).to_numpy()))
    return num_values


def _write_runs(path_of: PathOf, categories: str, name: str, most: int, holds_text: bool) -> None:
    """Write a lookup's files of values in id order, and a file of runs, which are then merged.

    A run has the keys of a batch of at most `most` values, sorted, and the index of each key's
    value in id order. `path_of` returns the path of a file by its name; `holds_text` says that the
    values are strings.
    """
    schema = pa.schema([(KEYS, pa.uint64() if holds_text else pa.int64()), (PLACES, pa.int32())])
    with ExitStack() as opened:

        def of(file: str) -> IO[bytes]:
            return opened.enter_context(path_of(file).open("wb", buffering=1 << 20))

        runs_to = opened.enter_context(pa.ipc.new_file(of(_RUNS), schema))
        text_to = _TextFiles(of(OFFSETS), of(TEXT)) if holds_text else None
        values_to = None if holds_text else of(VALUES)
        first = 0
        for values, _ in read_batches(categories, name, most):
            keys = keys_of(values)
            if text_to is not None:
                text_to.write(values)
            if values_to is not None:
                values_to.write(_bytes(keys))
            order = np.argsort(keys, kind="stable")
            places = (order + first).astype(np.int32)
            runs_to.write_batch(pa.record_batch([keys[order], places], schema=schema))
            first += len(keys)


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


def _bytes(array: np.ndarray[Any, Any]) -> memoryview:
    """Return the bytes of an array; copies it if it is not contiguous."""
    return np.ascontiguousarray(array).view(np.uint8).data


_LOAD_LOCK = threading.Lock()


def load_workflow(folder: str, lookups: Lookups) -> Workflow:
    """Return the saved workflow in `folder`, whose vocabularies are looked up in `lookups`.

    The process caches the last workflow that it has loaded.
    """
    with _LOAD_LOCK:  # otherwise each thread of a worker would read the vocabularies
        return _load_workflow_once(folder, lookups)


@functools.lru_cache(maxsize=1)
def _load_workflow_once(folder: str, lookups: Lookups) -> Workflow:
    # Safe to cache: every preparation has its own folder.
    categories = f"{folder}/{CATEGORIES}"
    table = functools.partial(SavedTable.at, categories, most_bytes=lookups.table_bytes)
    return Workflow.load(folder, functools.partial(lookups.vocabulary, categories), table)


def forget_run() -> None:
    """Empty this process's caches of the workflow and files of a preparation.

    Call it at the end of a preparation, because worker processes outlive it.
    """
    with _LOAD_LOCK:
        _load_workflow_once.cache_clear()
    forget_tables()
    forget_files()
