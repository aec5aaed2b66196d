"""Fits vocabularies for the first time, out of core.

For each column or domain NAME, it writes these files:

unique.NAME.parquet, meta.NAME.parquet    the vocabulary (`distrain/prep/vocabulary.py`)
rare.NAME.parquet                         with `keep_counts`: counts of values without an id
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distrain.prep.counting.count_tasks import CountedColumn, Work, add_up
from distrain.prep.counting.spilled import read_counts
from distrain.prep.counting.vocabulary_runs import Run, RunsInOrder, write_run
from distrain.prep.mapped_files import MappedFile
from distrain.prep.memory import MemoryPlan
from distrain.prep.operators.categorify import Categorify, by_frequency
from distrain.prep.operators.counts import NUM_BUCKETS, Counts, added_up, buckets_of
from distrain.prep.operators.operator import in_column
from distrain.prep.steps import FIRST_OOV_ID
from distrain.prep.vocabulary import (
    ROW_GROUP_VALUES,
    CountsWriter,
    MetaCounts,
    VocabularyWriter,
    check_cardinality,
)
from distrain.prep.workers import TaskRunner

KEPT = "rare"
"""The prefix of files with kept counts: counts of frequent values without an id."""

KEPT_BUCKETS = 256
"""The number of hash buckets into which values without an id are divided. Each bucket keeps at most
an equal number of counts, for later updates. It is fixed, since it affects which counts are kept.
"""

_BUCKETS_IN_ONE = NUM_BUCKETS // KEPT_BUCKETS


@dataclass(frozen=True)
class VocabularyReport:
    """The size of a vocabulary that was fitted or updated."""

    name: str  # the name in the vocabulary's files: the column, or the domain
    # number of ids, including those for padding, missing and out-of-vocabulary values
    cardinality: int
    new_ids: int = 0  # number of ids added by an update
    kept_counts: int = 0  # number of values without an id whose counts are kept
    kept_bytes: int = 0  # the size of the file with these counts


@dataclass(frozen=True)
class Limits:
    """The largest number of values that get an id, and of other values whose counts are kept.

    Kept counts are stored with the vocabulary for later updates.
    """

    new: int | None  # the number of values that may get an id; `None` for no limit
    # the number of values without an id whose counts are kept, rounded up to a multiple of 256: an
    # equal number for each hash bucket, so the kept values do not depend on the number of pieces
    rare: int

    @classmethod
    def of(cls, operator: Categorify, keep_counts: int, num_old: int = 0) -> Limits:
        """Return the limits of an operator's vocabulary in which `num_old` values have ids already.

        `keep_counts` is the requested maximum of kept counts. No counts are kept if the
        vocabulary has reached its `max_size`.
        """
        left = max(0, operator.max_size - num_old) if operator.max_size else None
        return cls(left, 0 if left == 0 else keep_counts)

    @property
    def most_pieces(self) -> int:
        return KEPT_BUCKETS if self.rare else NUM_BUCKETS


@dataclass(frozen=True)
class Chosen:
    """The result of `choose` for one piece (a range of hash buckets) of a column's counts."""

    new: Run  # values that get an id, in the order of the ids
    rare: Run | None  # values without an id whose counts are kept, in the order of buckets
    observed: int  # how often the piece's values occur in the rows


def choose(
    operator: Categorify, counts: Counts, limits: Limits, observed: int, stem: str
) -> Chosen:
    """Choose the values that get an id, and those whose counts are kept without an id.

    Writes both to files `STEM-*`, and returns what it wrote. Values that reach the operator's
    `freq_threshold` get an id, at most the `limits.new` most frequent of them. For the values that
    do not reach it, the counts of the most frequent in each of the `KEPT_BUCKETS` are kept for
    later updates.

    Args:
        counts: The counts of a piece (a range of hash buckets), with each value once, without
            values that have an id already.
        observed: How often the piece's values occur in the rows, for the result.
    """
    passes = pc.greater_equal(counts.counts, operator.freq_threshold)
    new = most_frequent(filtered(counts, passes), limits.new)
    rare = None
    if limits.rare:
        few = _of_each_bucket(filtered(counts, pc.invert(passes)), -(-limits.rare // KEPT_BUCKETS))
        rare = write_run(few, f"{stem}-rare.arrow")
    return Chosen(write_run(new, f"{stem}-new.arrow"), rare, observed)


def fit_vocabularies(
    counted: Sequence[CountedColumn],
    runner: TaskRunner,
    categories: str,
    staging: str,
    memory: MemoryPlan,
    keep_counts: int = 0,
) -> list[VocabularyReport]:
    """Write the vocabularies of counted columns to the folder `categories`.

    Returns a report on each, in the order of `counted`. `staging` is a folder for temporary files,
    and `memory` bounds the memory of each task. `keep_counts` is the maximum number of values
    without an id whose counts are kept with a vocabulary, rounded up to a multiple of
    `KEPT_BUCKETS`. Raises a `DataError` if a column has more ids than int32 holds.
    """
    work = []
    for column in counted:
        operator = cast(Categorify, column.operator)
        limits = Limits.of(operator, keep_counts)
        whole = (operator, column.name, column.nulls, limits, categories, memory.piece_bytes)
        piece = (operator, column.files, limits)
        work.append(Work(column.size_bytes, piece, whole, limits.most_pieces))
    stem = f"{staging}/fitted"
    return add_up(runner, _fit_piece, _write_fitted, work, stem, memory.piece_bytes)


def _fit_piece(
    operator: Categorify, files: Sequence[str], limits: Limits, buckets: range, stem: str
) -> Chosen:
    counts = read_counts(files, buckets)
    if len(files) > 1:
        counts = added_up(counts)
    return choose(operator, counts, limits, total(counts.counts), stem)


def _write_fitted(
    operator: Categorify,
    name: str,
    nulls: int,
    limits: Limits,
    categories: str,
    range_bytes: int,
    pieces: Sequence[Chosen],
) -> VocabularyReport:
    new = RunsInOrder([piece.new for piece in pieces], limits.new, range_bytes)
    num_oov = max(1, operator.num_buckets)
    cardinality = FIRST_OOV_ID + num_oov + new.num_values
    with in_column(name):
        check_cardinality(cardinality)
    with VocabularyWriter.in_folder(categories, name, new.value_type()) as writer:
        new.write(writer)
        unknown = sum(piece.observed for piece in pieces) - writer.num_observed
        writer.write_meta(MetaCounts(num_oov, nulls, unknown))
    return VocabularyReport(name, cardinality, 0, *write_kept(pieces, categories, name))


def write_kept(pieces: Sequence[Chosen], categories: str, name: str) -> tuple[int, int]:
    """Write the kept counts of the vocabulary `name` to the folder `categories`.

    Kept counts are those of frequent values without an id. `pieces` has them for all hash buckets.
    Returns their number and the file's size in bytes; writes nothing and returns zeros without any.
    """
    runs = [piece.rare for piece in pieces if piece.rare is not None]
    if not runs:
        return 0, 0
    value_type = RunsInOrder(runs, None, ROW_GROUP_VALUES).value_type()
    with CountsWriter.open(f"{categories}/{kept_file(name)}", name, value_type) as writer:
        for run in runs:
            table = MappedFile.staged(run.path).rows
            writer.write(table["value"].cast(value_type), table["count"])
    return writer.num_values, writer.size_bytes


def kept_file(name: str) -> str:
    """Return the name of the file with the kept counts of the vocabulary `name`."""
    return f"{KEPT}.{name}.parquet"


def most_frequent(counts: Counts, limit: int | None) -> Counts:
    """Return the counts of the `limit` most frequent values, by falling count and then by value.

    With `None`, return all counts in this order.
    """
    order = by_frequency(counts.rows)
    order = order if limit is None else order.slice(0, limit)
    return Counts(counts.values.take(order), counts.counts.take(order))


def _of_each_bucket(counts: Counts, limit: int) -> Counts:
    """Return the counts of the `limit` most frequent values of each of the `KEPT_BUCKETS`.

    They are in the order of the buckets; in a bucket, by falling count and then by value. Fewer if
    a bucket has fewer values.
    """
    table = counts.rows.append_column(
        "bucket", pa.array(buckets_of(counts.values) // _BUCKETS_IN_ONE)
    )
    keys = [("bucket", "ascending"), ("count", "descending"), ("value", "ascending")]
    order = pc.sort_indices(table, sort_keys=keys)
    buckets = table["bucket"].take(order).to_numpy()
    rank = np.arange(len(buckets)) - np.searchsorted(buckets, buckets)
    order = order.filter(pa.array(rank < limit))
    return Counts(counts.values.take(order), counts.counts.take(order))


def filtered(counts: Counts, wanted: pa.Array) -> Counts:
    """Return the counts of the values for which `wanted`, a boolean array, is true."""
    return Counts(counts.values.filter(wanted), counts.counts.filter(wanted))


def total(counts: pa.Array) -> int:
    """Return the sum of counts, 0 if there are none."""
    return int(pc.sum(counts).as_py() or 0)
