"""The tasks that bring events in order."""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from distrain.errors import DataError
from distrain.prep.counting.spilling import MappedTable
from distrain.prep.lists import Int64Array, holds_lists, offsets_of
from distrain.prep.lookups.index import Lookups, load_workflow
from distrain.prep.operators.history import Spans, in_order, keys_of, ranks_of, seconds_of
from distrain.prep.parts import Part, located, read_part, write_staged
from distrain.storage.outputs import whole_file

KEY, SECONDS, ROW, FIRST, LENGTH = "key", "seconds", "row", "first", "length"
_VALUE = "value-"
_BEGINS = b"parts begin"
_SAMPLED = 512
"""One of so many events of a part is a sample."""

Cut = tuple[int | bytes, float]
"""A key and a time, at which the order of all events is cut."""


@dataclass(frozen=True)
class Spill:
    """The events of a part, in a file sorted by key and time."""

    path: str
    num_events: int
    size_bytes: int
    key_type: str
    samples: tuple[Cut, ...]  # every 512th event


def spill_events(
    part: Part, workflow_dir: str, lookups: Lookups, names: tuple[str, str], path: str
) -> Spill:
    """Write a part's events; `names` are its columns of keys and of times."""
    workflow = load_workflow(workflow_dir, lookups)
    history = workflow.history
    assert history is not None
    by, order = names
    table = read_part(part, list(dict.fromkeys((by, order, *history.columns))))
    with located(part):
        keys, seconds = keys_of(by, table[by]), seconds_of(order, table[order])
        values = {name: workflow.values_of(table, name) for name in history.columns}
        for name, listed in values.items():
            if holds_lists(listed.type):
                raise DataError(
                    "history.of names a column of lists",
                    where={"column": name},
                    hint="A history lists single values; leave the column out of it.",
                )
    rows, _ = in_order(keys, seconds)
    places = pa.array(rows)
    events = pa.table(
        {
            KEY: keys.take(places),
            SECONDS: seconds[rows],
            ROW: rows.astype(np.int32),
            **{_VALUE + name: listed.take(places) for name, listed in values.items()},
        }
    ).combine_chunks()
    with write_staged(path, events.schema) as to:
        to.write_table(events)
    # From the middle: the first of each part would be its lowest key.
    first = min(_SAMPLED, events.num_rows) // 2
    sampled = events.take(pa.array(np.arange(first, events.num_rows, _SAMPLED)))
    samples = zip(sampled[KEY].to_pylist(), sampled[SECONDS].to_pylist(), strict=True)
    return Spill(path, events.num_rows, events.nbytes, str(keys.type), tuple(samples))


@dataclass(frozen=True)
class OrderedRange:
    """Some neighbours in the order of all events."""

    events: str  # the file with their values
    spans: str  # the file with the spans of the rows that ask, part by part


def order_range(
    spills: Sequence[str], silent: int, low: Cut | None, high: Cut | None, keep: int, stem: str
) -> OrderedRange:
    """Bring the events from `low` to `high` of all spills in order.

    The rows of the first `silent` spills are events, and ask for no history.
    """
    runs = [_open_run(path) for path in spills]
    begins = [0 if low is None else _place(run, low) for run in runs]
    ends = [run.rows.num_rows if high is None else _place(run, high) for run in runs]
    base = sum(begins)
    # The first event is at `low`, and its key may begin in an earlier range.
    key_begin = 0 if low is None else sum(_place(run, (low[0], -np.inf)) for run in runs)
    counts = np.subtract(ends, begins)
    taken = [
        run.rows.take(pa.array(np.arange(begin, begin + count)))  # in memory of their own
        for run, begin, count in zip(runs, begins, counts.tolist(), strict=True)
        if count
    ]
    for run in runs:
        run.file.forget()
    table = (pa.concat_tables(taken) if taken else runs[0].rows.slice(0, 0)).combine_chunks()
    ranks = ranks_of(_one(table, KEY))
    seconds = np.asarray(_one(table, SECONDS))
    order = np.lexsort((seconds, ranks))
    found = Spans.of_sorted(ranks[order], seconds[order], keep, base, key_begin)
    _write_spans(table, counts, silent, order, found, f"{stem}-spans.arrow")
    values = [name for name in table.column_names if name.startswith(_VALUE)]
    events = table.select([SECONDS, *values]).take(pa.array(order)).combine_chunks()
    with write_staged(f"{stem}-events.arrow", events.schema) as to:
        to.write_table(events)
    return OrderedRange(f"{stem}-events.arrow", f"{stem}-spans.arrow")


def _write_spans(
    table: pa.Table, counts: Int64Array, silent: int, order: Int64Array, found: Spans, path: str
) -> None:
    first, length = np.empty(len(order), np.int64), np.empty(len(order), np.int64)
    first[order], length[order] = found.first, found.length
    asking = slice(int(counts[:silent].sum()), None)
    spans = pa.table(
        {ROW: np.asarray(_one(table, ROW))[asking], FIRST: first[asking], LENGTH: length[asking]}
    )
    begins = offsets_of(counts[silent:])
    spans = spans.replace_schema_metadata({_BEGINS: begins.tobytes()})
    with write_staged(path, spans.schema) as to:
        to.write_table(spans)


def spans_of_part(paths: Sequence[str], number: int, num_rows: int) -> Spans:
    """The spans of the rows of the `number`-th part that asks; rows without one have none."""
    spans = Spans.none(num_rows)
    for path in paths:
        run = _open_run(path)
        begins = np.frombuffer(run.rows.schema.metadata[_BEGINS], np.int64)
        found = run.rows.slice(begins[number], begins[number + 1] - begins[number])
        spans[found[ROW].to_numpy()] = Spans(found[FIRST].to_numpy(), found[LENGTH].to_numpy())
    return spans


def join_column(ranges: Sequence[str], column: str | None, path: str) -> str:
    """Write one column of all events, the seconds if `None`, to a file; returns its dtype."""
    name = SECONDS if column is None else _VALUE + column
    dtype = "float64"
    with whole_file(path, make_folder=False, sync=False) as partial, open(partial, "wb") as to:
        for events in ranges:
            table = MappedTable.open(events)
            values = np.asarray(_one(table.rows, name))
            dtype = str(values.dtype)
            to.write(values.data)
            table.file.forget()
    return dtype


def _one(table: pa.Table, column: str) -> pa.Array:
    chunks = table[column].chunks
    return chunks[0] if chunks else pa.array([], table[column].type)


def _place(run: MappedTable, cut: Cut) -> int:
    """The first event of a run that is not before the cut."""
    keys, seconds = _one(run.rows, KEY), _one(run.rows, SECONDS)

    def at(row: int) -> Cut:
        return keys[row].as_py(), seconds[row].as_py()

    return bisect_left(range(len(keys)), cut, key=at)


@functools.lru_cache(maxsize=4096)
def _open_run(path: str) -> MappedTable:
    return MappedTable.open(path)  # again and again by one process, so a store gives it once


def forget_runs() -> None:
    _open_run.cache_clear()
