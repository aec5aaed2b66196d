"""The tasks that sort events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from distrain.errors import DataError
from distrain.prep.lists import holds_lists
from distrain.prep.lookups.index import Lookups, load_workflow
from distrain.prep.mapped_files import MappedFile, kept_mapped
from distrain.prep.operators.history import Spans, in_order, keys_of, ranks_of, seconds_of
from distrain.prep.parts import Part, located, read_part, write_staged
from distrain.prep.sorted_runs import Cut, SortedRun
from distrain.prep.vocabulary import one_array
from distrain.storage.outputs import atomic_file

KEY, SECONDS, ROW, FIRST, LENGTH, PART = "key", "seconds", "row", "first", "length", "part"
_VALUE = "value-"
_ORDER = ((KEY, "ascending"), (SECONDS, "ascending"))
_SPANS = pa.schema(
    [(PART, pa.int32()), (ROW, pa.int32()), (FIRST, pa.int64()), (LENGTH, pa.int64())]
)
_SAMPLED = 512
"""Every n-th event of a part's sorted events is sampled, to divide all events into ranges."""


@dataclass(frozen=True)
class Spill:
    """A part's events, in a file sorted by key and time."""

    path: str
    num_events: int
    size_bytes: int
    key_type: str
    samples: tuple[Cut, ...]  # every 512th event


def spill_events(
    part: Part, workflow_dir: str, lookups: Lookups, names: tuple[str, str], path: str
) -> Spill:
    """Write a part's events, sorted by key and time, to `path`; return a `Spill` about the file.

    Rows without a key or a time are left out. `names` are the part's columns of keys and of times.
    Raises `DataError` if keys or times are unusable, or a column of `history.of` holds lists, and
    `OutputError` if the file cannot be written. `workflow_dir` and `lookups` are those of the
    fitted workflow, which makes the events' values.
    """
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
                    "history.of names a list column",
                    where={"column": name},
                    hint="A history lists single values; leave the column out of it.",
                )
    rows = in_order(keys, seconds)
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
    # Sampling begins in the middle of a step: samples of first events would all have low keys.
    first = min(_SAMPLED, events.num_rows) // 2
    sampled = events.take(pa.array(np.arange(first, events.num_rows, _SAMPLED)))
    samples = zip(sampled[KEY].to_pylist(), sampled[SECONDS].to_pylist(), strict=True)
    return Spill(path, events.num_rows, events.nbytes, str(keys.type), tuple(samples))


@dataclass(frozen=True)
class OrderedRanges:
    """The files that `order_ranges` wrote: events, and spans of rows.

    They cover some consecutive ranges of all events, in sort order. Each record batch of a file is
    one range.
    """

    events: str  # the file with the events' values
    spans: str  # the file with spans of rows that need histories; each batch is sorted by part


def order_ranges(
    spills: Sequence[str], silent: int, bounds: Sequence[Cut | None], keep: int, stem: str
) -> OrderedRanges:
    """Sort the events of all spills from the first bound to the last, and write them to `STEM-*`.

    Args:
        silent: The first `silent` spills have events, but no rows that need histories.
        bounds: The cuts between the ranges. As the first bound, `None` is before all events; as the
            last, after all events.
        keep: Maximum number of events in a history.
    """
    files = [kept_mapped(path) for path in spills]
    runs = [SortedRun(file.rows, _ORDER, (file,)) for file in files]
    schema = runs[0].rows.schema
    columns = [field for field in schema if field.name == SECONDS or field.name.startswith(_VALUE)]
    ranges = OrderedRanges(f"{stem}-events.arrow", f"{stem}-spans.arrow")
    with (
        write_staged(ranges.events, pa.schema(columns)) as events_to,
        write_staged(ranges.spans, _SPANS) as spans_to,
    ):
        for low, high in pairwise(bounds):
            events, spans = _ordered(runs, silent, low, high, keep)
            events_to.write_table(events.select([field.name for field in columns]))
            spans_to.write_table(spans)
    return ranges


def _ordered(
    runs: Sequence[SortedRun], silent: int, low: Cut | None, high: Cut | None, keep: int
) -> tuple[pa.Table, pa.Table]:
    """Return the events from `low` to `high` in sort order, and a table of spans (`_SPANS`).

    The second table has a row for each of these events whose row needs a history, with the events
    that form the history. Rows of the first `silent` runs need none. `keep` is the maximum number
    of events in a history.
    """
    begins = [0 if low is None else run.place_of(low) for run in runs]
    ends = [run.rows.num_rows if high is None else run.place_of(high) for run in runs]
    base = sum(begins)
    # The first event is at `low`, and its key may begin in an earlier range.
    key_begin = 0 if low is None else sum(run.place_of((low[0], -np.inf)) for run in runs)
    counts = np.subtract(ends, begins)
    bounds = zip(runs, begins, ends, strict=True)
    taken = [run.copied(begin, end) for run, begin, end in bounds if end > begin]
    for run in runs:
        run.forget()
    table = (pa.concat_tables(taken) if taken else runs[0].rows.slice(0, 0)).combine_chunks()
    ranks, seconds = ranks_of(one_array(table[KEY])), np.asarray(one_array(table[SECONDS]))
    order = np.lexsort((seconds, ranks))
    found = Spans.of_sorted(ranks[order], seconds[order], keep, base, key_begin)
    first, length = np.empty(len(order), np.int64), np.empty(len(order), np.int64)
    first[order], length[order] = found.first, found.length
    readers = slice(int(counts[:silent].sum()), None)
    parts = np.repeat(np.arange(len(runs) - silent), counts[silent:])
    rows = np.asarray(one_array(table[ROW]))[readers]
    spans = pa.table([parts, rows, first[readers], length[readers]], schema=_SPANS)
    return table.take(pa.array(order)), spans


def spans_of_part(paths: Sequence[str], number: int, num_rows: int) -> Spans:
    """Return the span of each row of a part; an empty span for a row without a history.

    `paths` are the span files of all `OrderedRanges`. `number` is the part's index among the parts
    that need histories, and `num_rows` its number of rows.
    """
    spans = Spans.none(num_rows)
    for path in paths:
        file = kept_mapped(path)
        for batch in file.batches:
            begin, end = np.searchsorted(batch[PART].to_numpy(), [number, number + 1])
            rows, first, length = (
                batch[name].to_numpy()[begin:end] for name in (ROW, FIRST, LENGTH)
            )
            spans[rows] = Spans(first, length)
        file.forget()
    return spans


def join_column(ranges: Sequence[str], column: str | None, path: str) -> str:
    """Write one column of all events to a raw array at `path`; return the array's dtype.

    `ranges` are the event files of all `OrderedRanges`, in order. `column` is `None` for the
    events' times in seconds.
    """
    name = SECONDS if column is None else _VALUE + column
    dtype = ""
    with atomic_file(path, make_folder=False, sync=False) as partial, open(partial, "wb") as to:
        for events in ranges:
            file = MappedFile.staged(events)
            # From the schema, since there may be no events.
            dtype = str(np.dtype(file.rows.schema.field(name).type.to_pandas_dtype()))
            for batch in file.batches:
                to.write(np.asarray(batch[name]).data)
            file.forget()
    return dtype
