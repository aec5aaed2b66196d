"""A vocabulary written in the order of its ids, however large it is.

What was kept of each piece lies in a file of its own, a run, in that order. The runs are cut at
the same places of the order, so that what lies between two cuts, of all runs together, fits into
memory.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from distrain.etl.counting.spilling import MappedTable, counts_table, write_counts_table
from distrain.etl.operators import Counts, by_frequency
from distrain.vocabulary import VocabularyWriter, is_text

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
