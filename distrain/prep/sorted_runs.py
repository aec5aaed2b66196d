"""External sorting: merges sorted runs, one range of the sort order at a time.

A run is a table that is sorted by some of its columns, usually one per file. All runs are cut at
the same sort keys, so that the rows of all runs between two cuts fit into memory.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from distrain.prep.mapped_files import MappedFile
from distrain.prep.vocabulary import is_text

SortKeys = tuple[tuple[str, str], ...]
"""Pairs of a column and its order, as Arrow's `sort_keys`; only integers can be `descending`."""

Cut = tuple[Any, ...]
"""A position in the sort order: a row's values in the sort columns, negated if `descending`."""


@dataclass(frozen=True)
class SortedRun:
    """A table of rows, sorted by some of its columns."""

    rows: pa.Table  # each column has one chunk, or none
    keys: SortKeys
    files: tuple[MappedFile, ...] = ()  # the files of the rows

    def cut_at(self, row: int) -> Cut:
        """Return the sort position of a row: all rows that sort before the row are below it."""
        return tuple(
            _key(self.rows[name].chunk(0)[row], order == "descending") for name, order in self.keys
        )

    def place_of(self, cut: Cut, begin: int = 0) -> int:
        """Return the index of the first row that does not sort before `cut`.

        Rows before the index `begin` are ignored.
        """
        return bisect_left(range(self.rows.num_rows), cut, begin, key=self.cut_at)

    def copied(self, begin: int, end: int) -> pa.Table:
        """Return a copy of the rows from `begin` to `end`.

        A slice would keep pages of mapped files in memory: for a single byte, the kernel may load
        2 MiB of a file.
        """
        some = self.rows.slice(begin, end - begin)
        columns = [pa.concat_arrays([column.chunk(0)]) for column in some.columns]
        return pa.table(columns, schema=some.schema)

    def forget(self) -> None:
        """Release the mapped pages of the run's files; they are read again when needed."""
        for file in self.files:
            file.forget()


def _key(value: pa.Scalar, is_descending: bool) -> Any:
    if is_descending:
        return -value.as_py()
    return value.as_buffer().to_pybytes() if is_text(value.type) else value.as_py()


def in_ranges(runs: Sequence[SortedRun], most: int) -> Iterator[pa.Table]:
    """Yield the rows of all runs in sort order, in tables of about `most` rows.

    All runs are cut at the same keys, which are chosen from samples of each run. A table is larger
    if many rows have equal keys.
    """
    runs = [run for run in runs if run.rows.num_rows]
    if not runs:
        return
    step = max(1, most // (2 * len(runs)))
    samples: list[Cut] = []
    for run in runs:
        samples += [run.cut_at(row) for row in range(0, run.rows.num_rows, step)]
        run.forget()
    samples.sort()
    cuts = samples[len(runs) :: len(runs)] if len(samples) * step > most else []
    begins = [0] * len(runs)
    for cut in [*cuts, None]:
        spans = []
        for number, run in enumerate(runs):
            end = run.rows.num_rows if cut is None else run.place_of(cut, begins[number])
            if end > begins[number]:
                spans.append(run.copied(begins[number], end))
            begins[number] = end
            run.forget()
        if spans:
            # Runs with more than 2 GiB of text have 64-bit offsets, others have 32-bit offsets.
            merged = pa.concat_tables(spans, promote_options="permissive")
            if len(spans) > 1:
                merged = merged.take(pc.sort_indices(merged, sort_keys=list(runs[0].keys)))
            yield merged.combine_chunks()
