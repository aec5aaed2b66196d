"""The tasks that bring events in order, and read a part's histories while rows are written."""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from distrain.errors import DataError
from distrain.etl.counting import MappedFile, MappedTable
from distrain.etl.lists import Int64Array, holds_lists, offsets_of
from distrain.etl.lookups import Lookups, load_workflow
from distrain.etl.operators import (
    Floats,
    Spans,
    as_lists,
    in_order,
    keys_of,
    ranks_of,
    seconds_before,
    seconds_of,
)
from distrain.etl.parts import Part, located, read_part, write_staged
from distrain.storage import fetched, is_remote, reading_hint, whole_file


@dataclass(frozen=True)
class Values:
    """One column of all events in order, in a file."""

    name: str  # of the lists
    path: str
    dtype: str
    is_time: bool  # the seconds of the events, of which lists hold the difference to their row


@dataclass(frozen=True)
class EventLog:
    values: tuple[Values, ...]
    spans: tuple[str, ...]  # the files with the spans of rows

    @property
    def bytes_of_event(self) -> int:
        """What an event takes while lists of it are made: places, seconds, and the lists."""
        return 16 + 4 * len(self.values)


@dataclass(frozen=True)
class PartHistory:
    """Where the histories of a part's rows are."""

    log: EventLog
    number: int  # of the part among those that ask
    order: str  # the part's column of times
    most_bytes: int  # what the lists of one row group may take

    def opened(self, part: Part) -> OpenHistory:
        seconds = seconds_of(self.order, read_part(part, [self.order])[self.order])
        spans = spans_of_part(self.log.spans, self.number, part.num_rows)
        return OpenHistory(self.log, spans, seconds, self.most_bytes)


@dataclass(frozen=True)
class OpenHistory:
    log: EventLog
    spans: Spans
    seconds: Floats
    most_bytes: int

    def pieces(self, places: Int64Array, most_rows: int) -> Iterator[Int64Array]:
        """Rows at these places, cut so that neither rows nor their lists are too many."""
        ends = np.cumsum(self.spans.length[places]) * self.log.bytes_of_event
        begin, before = 0, 0
        while begin < len(places):
            fitting = int(np.searchsorted(ends, before + self.most_bytes, side="right"))
            end = max(begin + 1, min(begin + most_rows, fitting))
            yield places[begin:end]
            begin, before = end, int(ends[end - 1])

    def append_to(self, table: pa.Table, places: Int64Array) -> pa.Table:
        """The rows at these places with their lists."""
        table = table.take(pa.array(places))
        spans = self.spans[places]
        items = spans.items()
        for values in self.log.values:
            events, file = _open_values(values)
            listed = events[items]
            file.forget()
            if values.is_time:
                listed = seconds_before(spans, self.seconds[places], listed)
            lists = as_lists(spans.length, listed)
            table = table.append_column(pa.field(values.name, lists.type, nullable=False), lists)
        return table


@functools.lru_cache(maxsize=256)
def _open_values(values: Values) -> tuple[np.ndarray[Any, Any], MappedFile]:
    try:
        with ExitStack() as opened:
            here = (
                opened.enter_context(fetched(values.path))
                if is_remote(values.path)
                else values.path
            )
            file = MappedFile.open(here)
    except OSError as error:
        raise DataError(
            f"the events of histories cannot be read: {error}",
            where={"file": values.path},
            hint=reading_hint(
                error, "All workers must see the staging folder; prepare the files again."
            ),
        ) from None
    return np.frombuffer(file.content, values.dtype), file


def forget_events() -> None:
    """Forget the files of a run; workers live longer than it."""
    forget_runs()
    _open_values.cache_clear()


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
