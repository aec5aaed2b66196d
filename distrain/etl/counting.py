"""Values counted out of core, in time that grows as the rows do.

A task counts the values of some parts. What it holds of a column goes to a file when it is much,
sorted by buckets of a hash of the values. When all parts are counted, the buckets of a column are
cut into pieces of bounded size; a piece has all that was counted of its values, so each is added up
by itself, and only what passes the thresholds goes on to the task that writes the vocabulary.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import pyarrow as pa

from distrain.errors import DataError
from distrain.etl.fit_unit import FitUnit
from distrain.etl.operators import NUM_BUCKETS, Categorify, Counts, added_up, in_buckets, joined
from distrain.etl.parts import Part, open_mapped
from distrain.etl.workers import TaskRunner
from distrain.storage import whole_file

_HELD_BYTES = 32 << 20
"""Counts of a column that a task holds before it adds them up and, if they stay many, writes them;
adding up takes some six times as much."""

_PIECE_ENTRIES = 4 << 20
"""Counts that one task adds up; some 100 bytes each."""

_BEGINS = b"buckets begin"


@dataclass(frozen=True)
class Counted:
    """The counts of a column, or of a domain, in files.

    Attributes:
        files: Arrow files, whose rows are in the order of their buckets; at least one.
        entries: The rows in all files: distinct values, those of several files several times.
        nulls: How many values were missing.
    """

    files: tuple[str, ...]
    entries: int
    nulls: int


def count_values(unit: FitUnit, parts: Sequence[Part], stem: str) -> dict[str, Counted]:
    """Count the values of some parts into the files `STEM-*`, by column or domain."""
    sinks: dict[str, _Sink] = {}
    for states in unit.states(parts):
        for place, (name, state) in enumerate(states.items()):
            if name not in sinks:
                sinks[name] = _Sink(cast(Categorify, unit.operator), f"{stem}-{place}")
            sinks[name].add(state)
    return {name: sink.close() for name, sink in sinks.items()}


class _Sink:
    """The counts of one column: some in memory, those before in files."""

    def __init__(self, operator: Categorify, stem: str):
        self._operator = operator
        self._stem = stem
        self._held: list[Counts] = []
        self._held_bytes = 0
        self._files: list[str] = []
        self._entries = self._nulls = 0

    def add(self, state: Counts) -> None:
        self._held.append(state)
        self._held_bytes += state.nbytes
        if self._held_bytes < _HELD_BYTES:
            return
        total = self._operator.merge(*self._held)
        self._held, self._held_bytes = [total], total.nbytes
        # What stays is half of what is added up next at most, so each count is added up twice on
        # average, however many parts there are.
        if self._held_bytes > _HELD_BYTES // 2:
            self._write(total)

    def close(self) -> Counted:
        if self._held or not self._files:
            self._write(self._operator.merge(*self._held))
        return Counted(tuple(self._files), self._entries, self._nulls)

    def _write(self, counts: Counts) -> None:
        path = f"{self._stem}-{uuid.uuid4().hex[:8]}.arrow"
        write_counts(counts, path)
        self._files.append(path)
        self._entries += len(counts.values)
        self._nulls += counts.nulls
        self._held, self._held_bytes = [], 0


def write_counts(counts: Counts, path: str) -> None:
    """Write counts in the order of their buckets."""
    in_order, begins = in_buckets(counts)
    table = pa.table({"value": in_order.values, "count": in_order.counts})
    schema = table.schema.with_metadata({_BEGINS: begins.tobytes()})
    with (
        whole_file(path, make_folder=False, sync=False) as partial,
        pa.OSFile(str(partial), "wb") as file,
        pa.ipc.new_file(file, schema) as to,
    ):
        to.write_table(table.replace_schema_metadata(schema.metadata))


def read_counts(path: str, buckets: range) -> Counts:
    """The counts of some buckets of a file, as they lie there."""
    try:
        with open_mapped(path) as file:
            table = pa.ipc.open_file(file).read_all()
    except (OSError, pa.ArrowInvalid) as error:
        raise DataError(
            f"counts of the fit cannot be read: {error}",
            where={"file": path},
            hint="All workers must see the output's folder; prepare the files again.",
        ) from None
    begins = np.frombuffer(table.schema.metadata[_BEGINS], np.int64)
    first, end = int(begins[buckets.start]), int(begins[buckets.stop])
    rows = table.slice(first, end - first).combine_chunks()
    return Counts(_one_array(rows["value"]), _one_array(rows["count"]))


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)


def add_up(operator: Categorify, files: Sequence[str], buckets: range) -> Counts:
    """All counts of the values of some buckets, without those that no vocabulary takes."""
    found = joined([read_counts(path, buckets) for path in files])
    return operator.prune(found if len(files) == 1 else added_up(found))


def pieces_of(entries: int) -> list[range]:
    """The buckets of each piece of a column.

    >>> pieces_of(1000)
    [range(0, 256)]
    >>> pieces_of(3 * 2**22)[:2]
    [range(0, 64), range(64, 128)]
    """
    num_pieces = 1
    while num_pieces * _PIECE_ENTRIES < entries and num_pieces < NUM_BUCKETS:
        num_pieces *= 2
    step = NUM_BUCKETS // num_pieces
    return [range(first, first + step) for first in range(0, NUM_BUCKETS, step)]


def write_vocabularies(
    counted: Sequence[tuple[FitUnit, str, Sequence[Counted]]], runner: TaskRunner, categories: str
) -> list[int]:
    """Add up what each task has counted and write the vocabularies.

    Args:
        counted: A unit, the name of a column or domain of it, and what was counted of that.

    Returns:
        The vocabularies' cardinalities.
    """
    pieces = []
    for unit, _, found in counted:
        files = [path for one in found for path in one.files]
        cut = pieces_of(sum(one.entries for one in found))
        pieces.append([(unit.operator, files, buckets) for buckets in cut])
    added = iter(runner.run_on_workers("add-up", add_up, [one for of in pieces for one in of]))
    finishes = [
        (
            unit.operator,
            name,
            sum(one.nulls for one in found),
            [next(added) for _ in of_name],
            categories,
        )
        for (unit, name, found), of_name in zip(counted, pieces, strict=True)
    ]
    return runner.run("finish", _finish, finishes)


def _finish(
    operator: Categorify, name: str, nulls: int, pieces: list[Counts], categories: str
) -> int:
    try:
        vocabulary = operator.finish(replace(joined(pieces), nulls=nulls))
    except DataError as error:
        where = {"column": name, **error.where}
        raise DataError(error.message, where=where, hint=error.hint) from None
    vocabulary.save(categories, name)
    return vocabulary.cardinality
