"""Writes and reads files of counts, whose rows are sorted by buckets of a hash of the value.

A task can read the counts of some buckets from each file without reading the rest.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from distrain.prep.fit_task import FitUnit
from distrain.prep.mapped_files import MappedFile
from distrain.prep.operators.counts import NUM_BUCKETS, Counts, in_buckets, joined
from distrain.prep.operators.operator import FittedByColumn
from distrain.prep.parts import Part, write_staged

_BEGINS = b"buckets begin"


def pieces_of(size_bytes: int, piece_bytes: int) -> list[range]:
    """Divide the hash buckets of a column into pieces; return each piece's range of buckets.

    `size_bytes` is the memory of the column's counts. The number of pieces is the least power of 2
    that gives pieces of at most `piece_bytes` on average, but at most `NUM_BUCKETS`.

    >>> pieces_of(1000, 2000)
    [range(0, 4096)]
    >>> pieces_of(3000, 1000)[:2]
    [range(0, 1024), range(1024, 2048)]
    """
    num_pieces = 1
    while num_pieces * piece_bytes < size_bytes and num_pieces < NUM_BUCKETS:
        num_pieces *= 2
    step = NUM_BUCKETS // num_pieces
    return [range(first, first + step) for first in range(0, NUM_BUCKETS, step)]


@dataclass(frozen=True)
class Spilled:
    """The files of counts of a column or domain that one task wrote, and their sizes."""

    # Arrow files, whose rows are in the order of their buckets; at least one
    files: tuple[str, ...]
    size_bytes: int  # memory of the rows of all files
    nulls: int  # number of missing values


def spill_counts(
    unit: FitUnit, parts: Sequence[Part], stem: str, held_bytes: int
) -> dict[str, Spilled]:
    """Count the values of some parts into files `STEM-*`; return the files by column or domain.

    When the counts of a column reach `held_bytes` in memory, the counts of equal values are merged.
    If they still take more than half of `held_bytes`, they are written to a file. The remaining
    counts are written at the end. `unit` has the columns and the operator.
    """
    sinks: dict[str, _Sink] = {}
    for states in unit.states(parts):
        for place, (name, state) in enumerate(states.items()):
            if name not in sinks:
                sinks[name] = _Sink(unit.operator, f"{stem}-{place}", held_bytes)
            sinks[name].add(state)
    return {name: sink.close() for name, sink in sinks.items()}


class _Sink:
    """Collects the counts of one column or domain, and writes them to files; see `spill_counts`."""

    def __init__(self, operator: FittedByColumn, stem: str, most_bytes: int):
        self._operator = operator
        self._stem = stem
        self._most_bytes = most_bytes
        self._held: list[Any] = []
        self._held_bytes = 0
        self._files: list[str] = []
        self._size_bytes = self._nulls = 0

    def add(self, state: Any) -> None:
        self._held.append(state)
        self._held_bytes += state.nbytes
        if self._held_bytes < self._most_bytes:
            return
        total = self._operator.merge(*self._held)
        self._held, self._held_bytes = [total], total.nbytes
        # Counts stay in memory only if they take at most half of the limit. So at the next merge,
        # at least half of the counts are new: on average, a count is merged at most twice, for any
        # number of parts.
        if self._held_bytes > self._most_bytes // 2:
            self._write(total)

    def close(self) -> Spilled:
        if self._held or not self._files:
            self._write(self._operator.merge(*self._held))
        return Spilled(tuple(self._files), self._size_bytes, self._nulls)

    def _write(self, state: Any) -> None:
        path = f"{self._stem}-{uuid.uuid4().hex[:8]}.arrow"
        write_buckets(state.rows, path)
        self._files.append(path)
        self._size_bytes += state.nbytes
        self._nulls += state.nulls
        self._held, self._held_bytes = [], 0


def write_buckets(rows: pa.Table, path: str) -> None:
    """Write rows sorted by the bucket of their `value`; rows of a bucket keep their order."""
    in_order, begins = in_buckets(rows)
    write_rows(in_order.replace_schema_metadata({_BEGINS: begins.tobytes()}), path)


def write_rows(rows: pa.Table, path: str) -> None:
    """Write a table to an Arrow file (see `write_staged`)."""
    with write_staged(path, rows.schema) as to:
        to.write_table(rows.combine_chunks())


def read_buckets(path: str, buckets: range) -> pa.Table:
    """Return the rows of some buckets of a file, in the file's order, as a copy.

    A slice of the mapped file would keep more of it in memory than the rows: the kernel may load 2
    MiB for a single byte.
    """
    table = MappedFile.staged(path).rows
    begins = np.frombuffer(table.schema.metadata[_BEGINS], np.int64)
    first, end = int(begins[buckets.start]), int(begins[buckets.stop])
    rows = table.slice(first, end - first).replace_schema_metadata(None)
    return pa.table([column.combine_chunks() for column in rows.columns], schema=rows.schema)


def read_counts(paths: Sequence[str], buckets: range) -> Counts:
    """Return the counts of some buckets from all files, one file after another.

    A value that is in several files occurs several times in the result.
    """
    return joined([Counts.of_rows(read_buckets(path, buckets)) for path in paths])
