"""Counts of some parts, in files sorted by buckets of a hash, and memory for such work.

Of these a vocabulary is written in the order of its ids, however large it is. What was kept of each
piece lies in a file of its own, a run, in that order. The runs are cut at the same places of the
order, so that what lies between two cuts, of all runs together, fits into memory.
"""

from __future__ import annotations

import ctypes
import mmap
import uuid
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distrain.errors import DataError, InputError
from distrain.prep.fit_task import FitUnit
from distrain.prep.operators.categorify import Categorify, by_frequency
from distrain.prep.operators.counts import NUM_BUCKETS, Counts, in_buckets, joined
from distrain.prep.parts import Part, write_staged
from distrain.prep.vocabulary import VocabularyWriter, is_text
from distrain.storage.inputs import fetched
from distrain.storage.os_errors import reading_hint
from distrain.storage.urls import is_remote

_MIB = 1 << 20
_LIBRARIES_BYTES = 320 * _MIB
"""What a process takes before it does anything, and what its allocators keep."""

_LEAST_THREAD_BYTES = 64 * _MIB
_USUAL_THREAD_BYTES = 320 * _MIB
_SHARE_OF_LIMIT = 0.6
"""Of a Dask worker's limit; from 0.6 on Dask itself begins to move data to disk."""

_BLOCKS_HELD = 2
"""Memory of a task that writes rows, in blocks of text: values, ids and encoded pages."""

# Estimates: what is held at once, by each byte of it that is counted, added up, or brought in
# order. Sorting integers takes less, tables of strings may take more.
_TIMES_TO_ADD_UP = 8
_COLUMNS_HELD = 4


@dataclass(frozen=True)
class MemoryPlan:
    thread_bytes: int = _USUAL_THREAD_BYTES

    @property
    def held_bytes(self) -> int:
        """Counts of a column that are held before they are added up and, if many, written."""
        return self.thread_bytes // (_COLUMNS_HELD + _TIMES_TO_ADD_UP)

    @property
    def piece_bytes(self) -> int:
        return self.thread_bytes // _TIMES_TO_ADD_UP


def plan_memory(client: Any, process_bytes: int | None, block_bytes: int) -> MemoryPlan:
    """Share the memory of a worker process out among its threads, those of the client's workers.

    `process_bytes` is what a process may take; `None` takes 320 MiB a thread, but no more than 0.6
    of a worker's limit. Rows of `block_bytes` of text take twice as much while they are written.

    Raises:
        InputError: `process_bytes` is too little for these threads and blocks.
    """
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    threads = max((worker["nthreads"] for worker in workers), default=1)
    if process_bytes is None:
        limits = [worker["memory_limit"] for worker in workers if worker["memory_limit"]]
        allowed = min(limits, default=0) * _SHARE_OF_LIMIT - _LIBRARIES_BYTES
        usual = min(_USUAL_THREAD_BYTES, int(allowed / threads)) if limits else _USUAL_THREAD_BYTES
        return MemoryPlan(max(usual, _LEAST_THREAD_BYTES))
    of_thread = (process_bytes - _LIBRARIES_BYTES) // threads
    needed = max(_LEAST_THREAD_BYTES, _BLOCKS_HELD * block_bytes)
    if of_thread < needed:
        least = _LIBRARIES_BYTES + threads * needed
        raise InputError(
            f"{process_bytes // _MIB:,} MiB are too little for {threads} threads",
            where={"memory, MiB": process_bytes // _MIB, "at least": -(-least // _MIB)},
            hint="Allow more with --memory-mib, or take fewer --workers or a smaller --block-mib.",
        )
    return MemoryPlan(of_thread)


def pieces_of(size_bytes: int, piece_bytes: int, most: int = NUM_BUCKETS) -> list[range]:
    """The buckets of each piece of a column, of `most` pieces.

    >>> pieces_of(1000, 2000)
    [range(0, 4096)]
    >>> pieces_of(3000, 1000)[:2]
    [range(0, 1024), range(1024, 2048)]
    """
    num_pieces = 1
    while num_pieces * piece_bytes < size_bytes and num_pieces < most:
        num_pieces *= 2
    step = NUM_BUCKETS // num_pieces
    return [range(first, first + step) for first in range(0, NUM_BUCKETS, step)]


_BEGINS = b"buckets begin"
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Counted:
    # Arrow files, whose rows are in the order of their buckets; at least one
    files: tuple[str, ...]
    size_bytes: int  # what the rows of all files take in memory
    nulls: int  # how many values were missing


def count_values(
    unit: FitUnit, parts: Sequence[Part], stem: str, held_bytes: int
) -> dict[str, Counted]:
    """Count the values of some parts into the files `STEM-*`, by column or domain.

    Counts of `held_bytes` of a column are added up and, if they stay many, written.
    """
    sinks: dict[str, _Sink] = {}
    for states in unit.states(parts):
        for place, (name, state) in enumerate(states.items()):
            if name not in sinks:
                sinks[name] = _Sink(cast(Categorify, unit.operator), f"{stem}-{place}", held_bytes)
            sinks[name].add(state)
    return {name: sink.close() for name, sink in sinks.items()}


class _Sink:
    def __init__(self, operator: Categorify, stem: str, most_bytes: int):
        self._operator = operator
        self._stem = stem
        self._most_bytes = most_bytes
        self._held: list[Counts] = []
        self._held_bytes = 0
        self._files: list[str] = []
        self._size_bytes = self._nulls = 0

    def add(self, state: Counts) -> None:
        self._held.append(state)
        self._held_bytes += state.nbytes
        if self._held_bytes < self._most_bytes:
            return
        total = self._operator.merge(*self._held)
        self._held, self._held_bytes = [total], total.nbytes
        # What stays is half of what is added up next at most, so each count is added up twice on
        # average, however many parts there are.
        if self._held_bytes > self._most_bytes // 2:
            self._write(total)

    def close(self) -> Counted:
        if self._held or not self._files:
            self._write(self._operator.merge(*self._held))
        return Counted(tuple(self._files), self._size_bytes, self._nulls)

    def _write(self, counts: Counts) -> None:
        path = f"{self._stem}-{uuid.uuid4().hex[:8]}.arrow"
        write_counts(counts, path)
        self._files.append(path)
        self._size_bytes += counts.nbytes
        self._nulls += counts.nulls
        self._held, self._held_bytes = [], 0


def counts_table(counts: Counts) -> pa.Table:
    return pa.table({"value": counts.values, "count": counts.counts})


def write_counts(counts: Counts, path: str) -> None:
    in_order, begins = in_buckets(counts)
    table = counts_table(in_order)
    write_counts_table(table.replace_schema_metadata({_BEGINS: begins.tobytes()}), path)


def write_counts_table(table: pa.Table, path: str) -> None:
    with write_staged(path, table.schema) as to:
        to.write_table(table.combine_chunks())


def read_counts(path: str, buckets: range) -> Counts:
    """The counts of some buckets of a file, as they lie there.

    They are in memory of their own and the file is mapped no more. A kernel may map 2 MiB for a
    byte that is looked at: slices of many files would take many times their size.
    """
    table = read_counts_table(path)
    begins = np.frombuffer(table.schema.metadata[_BEGINS], np.int64)
    first, end = int(begins[buckets.start]), int(begins[buckets.stop])
    rows = table.slice(first, end - first).combine_chunks()
    return joined([Counts(_one_array(rows["value"]), _one_array(rows["count"]))])


def read_counts_table(path: str) -> pa.Table:
    """All that a file holds; it is mapped into memory, not read."""
    return MappedTable.open(path).rows


@dataclass(frozen=True)
class MappedFile:
    """A file that is mapped into memory as long as something holds its bytes; it is not open."""

    content: Any

    @classmethod
    def open(cls, path: str | Path) -> MappedFile:
        if not Path(path).stat().st_size:  # an empty file cannot be mapped
            return cls(pa.py_buffer(b""))
        # Python's own maps keep a descriptor each.
        with pa.memory_map(str(path)) as file:
            return cls(file.read_buffer())

    def forget(self) -> None:
        """Count what was looked at no longer as this process's memory; it is there when needed."""
        if self.content.size:
            place, size = ctypes.c_void_p(self.content.address), ctypes.c_size_t(self.content.size)
            _LIBC.madvise(place, size, mmap.MADV_DONTNEED)


@dataclass(frozen=True)
class MappedTable:
    rows: pa.Table  # all that it holds
    file: MappedFile

    @classmethod
    def open(cls, path: str) -> MappedTable:
        """Map a file, one in a store from a temporary copy; a `DataError` if it cannot be read."""
        try:
            with ExitStack() as opened:
                here = opened.enter_context(fetched(path)) if is_remote(path) else path
                file = MappedFile.open(here)
            return cls(pa.ipc.open_file(file.content).read_all(), file)
        except (OSError, ValueError) as error:  # the second are those of Arrow
            raise DataError(
                f"what a worker counted or sorted cannot be read: {error}",
                where={"file": path},
                hint=reading_hint(
                    error, "All workers must see the output's folder; prepare the files again."
                ),
            ) from None


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)


_STRING_BYTES = 2**31 - 1


@dataclass(frozen=True)
class Run:
    """What a vocabulary takes of some buckets, in the order of the ids."""

    path: str
    entries: int  # how many values it has
    size_bytes: int  # what they take in memory


def write_run(kept: Counts, path: str) -> Run:
    table = counts_table(kept)
    write_counts_table(table, path)
    return Run(path, table.num_rows, kept.nbytes)


class RunsInOrder:
    """The first `most` values of some runs in the order of the ids, `range_bytes` at a time."""

    def __init__(self, runs: Sequence[Run], most: int | None, range_bytes: int):
        entries = sum(run.entries for run in runs)
        self._size_bytes = sum(run.size_bytes for run in runs)
        self._tables = [MappedTable.open(run.path) for run in runs]
        self._at_once = max(1, range_bytes * entries // max(self._size_bytes, 1))
        self.num_values = entries if most is None else min(entries, most)

    def value_type(self, text_before: int = 0, values_before: int = 0) -> pa.DataType:
        """The type of a vocabulary with these values behind others; of strings, wide enough."""
        found = self._tables[0].rows.schema.field("value").type
        if not is_text(found):
            return found
        before = text_before + 8 * (values_before + 1)
        # What the runs take bounds the text from above, however many there are.
        if before + self._size_bytes <= _STRING_BYTES:
            return pa.string()
        text = sum(int(pc.sum(pc.binary_length(rows["value"])).as_py()) for rows in self)
        wide = before + text + 8 * self.num_values > _STRING_BYTES
        return pa.large_string() if wide else pa.string()

    def __iter__(self) -> Iterator[pa.Table]:
        left = self.num_values
        runs = [table.rows for table in self._tables]
        for table in in_ranges(runs, self._at_once, lambda run: self._tables[run].file.forget()):
            taken = table.slice(0, left)
            yield taken
            left -= taken.num_rows
            if not left:
                return

    def write(self, writer: VocabularyWriter) -> None:
        for rows in self:
            taken = rows.cast(pa.schema([("value", writer.value_type), ("count", pa.int64())]))
            writer.write(taken["value"], taken["count"])


def in_ranges(
    runs: Sequence[pa.Table], most: int, forget: Callable[[int], None] = lambda _: None
) -> Iterator[pa.Table]:
    """The rows of all runs in one order, in tables of about `most` rows, in memory of their own.

    Each run is in the order of falling counts, and of rising values where these are equal. All are
    walked through side by side; `forget` hears of a run that is not looked at for now, whose mapped
    pages would stay otherwise.
    """
    places = {number: _places(run) for number, run in enumerate(runs) if run.num_rows}
    if not places:
        return
    step = max(1, most // (2 * len(places)))
    samples = []
    for number, at in places.items():
        samples += [at(row) for row in range(0, runs[number].num_rows, step)]
        forget(number)
    samples.sort()
    cuts = samples[len(places) :: len(places)] if len(samples) * step > most else []
    begins = dict.fromkeys(places, 0)
    for cut in [*cuts, None]:
        spans = []
        for number, at in places.items():
            begin, rows = begins[number], range(runs[number].num_rows)
            end = len(rows) if cut is None else bisect_left(rows, cut, begin, key=at)
            if end > begin:
                spans.append(_copied(runs[number].slice(begin, end - begin)))
            begins[number] = end
            forget(number)
        if spans:
            # Only runs of more than 2 GiB of text have wide offsets.
            found = pa.concat_tables(spans, promote_options="permissive")
            yield found if len(spans) == 1 else found.take(by_frequency(found))


def _copied(rows: pa.Table) -> pa.Table:
    columns = [pa.concat_arrays([column.chunk(0)]) for column in rows.columns]
    return pa.table(columns, schema=rows.schema)


def _places(run: pa.Table) -> Callable[[int], tuple[int, Any]]:
    """Gives where a row of a run stands in the order."""
    values, counts = run["value"].chunk(0), run["count"].chunk(0)
    holds_text = is_text(values.type)

    def of(row: int) -> tuple[int, Any]:
        value = values[row]
        key = value.as_buffer().to_pybytes() if holds_text else value.as_py()
        return -counts[row].as_py(), key

    return of
