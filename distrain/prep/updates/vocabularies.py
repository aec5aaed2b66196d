"""Updates fitted vocabularies with later rows: values keep their ids, new values get the next ids.

The values with ids are written to files sorted by the buckets of their hashes, like the counts of
the rows. So one task can read everything about the values of a piece, a range of buckets. A
vocabulary is written from the results for all pieces and from the old vocabulary, one batch at a
time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distrain.prep.counting.count_tasks import CountedColumn, Work, add_up
from distrain.prep.counting.spilled import read_counts, write_buckets
from distrain.prep.counting.vocabularies import (
    Chosen,
    VocabularyReport,
    choose,
    most_new,
)
from distrain.prep.counting.vocabulary_runs import Run, RunsInOrder, write_run
from distrain.prep.mapped_files import MappedFile
from distrain.prep.memory import MemoryPlan
from distrain.prep.operators.categorify import Categorify, filtered, total
from distrain.prep.operators.counts import Counts, added_up
from distrain.prep.operators.operator import in_column
from distrain.prep.steps import FIRST_OOV_ID
from distrain.prep.vocabulary import (
    ROW_GROUP_VALUES,
    VocabularyWriter,
    check_cardinality,
    is_text,
    read_batches,
    read_meta,
)
from distrain.prep.workers import TaskRunner

_BYTES_BY_VALUE = 64
"""Memory per value: for the value, its count and index, and a copy of each while sorting."""


@dataclass(frozen=True)
class _Old:
    """A vocabulary before the update, in files sorted by hash bucket."""

    num_values: int = 0  # number of values with ids
    text_bytes: int = 0  # the values' size as UTF-8, if they are strings
    observed: int = 0  # how often values with ids were seen
    known: tuple[str, ...] = ()  # files with the values and their indices in id order
    size_bytes: int = 0  # memory of the content of these files


@dataclass(frozen=True)
class _Updated:
    """The result of updating one piece (a range of hash buckets) of a vocabulary."""

    # indices of old values that occur in the rows, ascending, and their counts; `None` for no value
    again: Run | None
    chosen: Chosen


def update_vocabularies(
    counted: Sequence[CountedColumn],
    runner: TaskRunner,
    categories: str,
    staging: str,
    memory: MemoryPlan,
    old: str,
) -> list[VocabularyReport]:
    """Write vocabularies, updated with the counts, to the folder `categories`.

    Returns a report on each, in the order of `counted`. `staging` is a folder for temporary files,
    and `memory` bounds the memory of each task.

    Args:
        old: Another folder, with the old vocabularies. It is not changed, so a task whose worker
            dies can run again.
    """
    range_bytes = memory.piece_bytes
    spread = [
        (old, column.name, f"{staging}/before-{place:04d}", range_bytes)
        for place, column in enumerate(counted)
    ]
    work = []
    for column, was in zip(counted, runner.run("spread", _to_buckets, spread), strict=True):
        operator = cast(Categorify, column.operator)
        most = most_new(operator, was.num_values)
        whole = (column.name, column.nulls, old, was, most, categories, range_bytes)
        piece = (operator, column.files, was, most)
        work.append(Work(column.size_bytes + was.size_bytes, piece, whole))
    return add_up(runner, _update_piece, _write_updated, work, f"{staging}/updated", range_bytes)


def _to_buckets(old: str, name: str, stem: str, range_bytes: int) -> _Old:
    """Copy the vocabulary `name` of the folder `old` to files `STEM-*`.

    The files are sorted by hash bucket. Returns their paths and sizes. About `range_bytes` are
    sorted at a time.
    """
    most = _rows_at_once(range_bytes)
    spread = _Old()
    for number, (values, counts) in enumerate(read_batches(old, name, most)):
        places = np.arange(spread.num_values, spread.num_values + len(values))
        known = Counts(values, pa.array(places))
        write_buckets(known.rows, path := f"{stem}-known-{number:04d}.arrow")
        text_bytes = total(pc.binary_length(values)) if is_text(values.type) else 0
        spread = replace(
            spread,
            num_values=spread.num_values + len(values),
            text_bytes=spread.text_bytes + text_bytes,
            observed=spread.observed + total(counts),
            known=(*spread.known, path),
            size_bytes=spread.size_bytes + known.nbytes,
        )
    return spread


def _rows_at_once(range_bytes: int) -> int:
    return max(1, min(ROW_GROUP_VALUES, range_bytes // _BYTES_BY_VALUE))


def _update_piece(
    operator: Categorify,
    files: Sequence[str],
    was: _Old,
    most: int | None,
    buckets: range,
    stem: str,
) -> _Updated:
    rows, known = read_counts(files, buckets), read_counts(was.known, buckets)
    observed = total(rows.counts)
    counts = added_up(rows) if len(files) > 1 else rows
    if not len(known.values):  # an empty array, of any type
        known = replace(known, values=counts.values[:0])
    elif not len(counts.values):
        counts = replace(counts, values=known.values[:0])
    at = _index_in(counts.values, known.values)
    is_old = at.is_valid()
    places = known.counts.take(at.drop_null())
    again = Counts(places, counts.counts.filter(is_old))
    order = pc.sort_indices(again.values)
    again = Counts(again.values.take(order), again.counts.take(order))
    new = filtered(counts, pc.invert(is_old))
    return _Updated(
        write_run(again, f"{stem}-again.arrow") if len(order) else None,
        choose(operator, new, most, observed, stem),
    )


def _index_in(values: pa.Array, known: pa.Array) -> pa.Array:
    if is_text(values.type) and values.type != known.type:
        values, known = values.cast(pa.large_string()), known.cast(pa.large_string())
    return pc.index_in(values, value_set=known)


def _write_updated(
    name: str,
    nulls: int,
    old: str,
    was: _Old,
    most: int | None,
    categories: str,
    range_bytes: int,
    pieces: Sequence[_Updated],
) -> VocabularyReport:
    chosen = [piece.chosen for piece in pieces]
    new = RunsInOrder([one.new for one in chosen], most, range_bytes)
    meta = read_meta(old, name)
    num_oov = meta["oov"]["num_indices"]
    cardinality = FIRST_OOV_ID + num_oov + was.num_values + new.num_values
    with in_column(name):
        check_cardinality(cardinality)
    value_type = new.value_type(was.text_bytes, was.num_values)
    with VocabularyWriter.open(categories, name, value_type) as writer:
        for values, counts in _old_values(old, name, pieces, range_bytes):
            writer.write(values.cast(value_type), counts)
        new.write(writer)
        observed = sum(one.observed for one in chosen)
        unknown = meta["oov"]["num_observed"] + observed - (writer.num_observed - was.observed)
        writer.write_meta(num_oov, meta["null"]["num_observed"] + nulls, unknown)
    return VocabularyReport(name, cardinality, new.num_values)


def _old_values(
    old: str, name: str, pieces: Sequence[_Updated], range_bytes: int
) -> Iterator[tuple[pa.Array, pa.Array]]:
    """Yield the values of the old vocabulary and their counts, in id order, in batches.

    The counts are the sum of old and new counts; `pieces` has the new ones. A batch has about
    `range_bytes`.
    """
    tables = [MappedFile.staged(piece.again.path).rows for piece in pieces if piece.again]
    again = [(_numbers(table, "value"), _numbers(table, "count")) for table in tables]
    first = 0
    for values, counts in read_batches(old, name, _rows_at_once(range_bytes)):
        sums = counts.to_numpy(zero_copy_only=False).copy()
        for places, numbers in again:
            begin, end = np.searchsorted(places, [first, first + len(sums)])
            sums[places[begin:end] - first] += numbers[begin:end]
        yield values, pa.array(sums)
        first += len(sums)


def _numbers(table: pa.Table, column: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    numbers: np.ndarray[Any, np.dtype[np.int64]] = table[column].chunk(0).to_numpy()
    return numbers
