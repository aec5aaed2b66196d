"""Fits vocabularies for the first time, out of core.

For each column or domain NAME, it writes these files:

unique.NAME.parquet, meta.NAME.parquet    the vocabulary (`distrain/prep/vocabulary.py`)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from distrain.prep.counting.count_tasks import CountedColumn, Work, add_up
from distrain.prep.counting.spilled import read_counts
from distrain.prep.counting.vocabulary_runs import Run, RunsInOrder, write_run
from distrain.prep.memory import MemoryPlan
from distrain.prep.operators.categorify import Categorify, most_frequent, total
from distrain.prep.operators.counts import Counts, added_up
from distrain.prep.operators.operator import in_column
from distrain.prep.steps import FIRST_OOV_ID
from distrain.prep.vocabulary import VocabularyWriter, check_cardinality
from distrain.prep.workers import TaskRunner


@dataclass(frozen=True)
class VocabularyReport:
    """The size of a vocabulary that was fitted or updated."""

    name: str  # the name in the vocabulary's files: the column, or the domain
    # number of ids, including those for padding, missing and out-of-vocabulary values
    cardinality: int
    new_ids: int = 0  # number of ids added by an update


@dataclass(frozen=True)
class Chosen:
    """The result of `choose` for one piece (a range of hash buckets) of a column's counts."""

    new: Run  # values that get an id, in the order of the ids
    observed: int  # how often the piece's values occur in the rows


def most_new(operator: Categorify, num_old: int = 0) -> int | None:
    """Return the number of values that may get an id if `num_old` have ids already.

    `None` means no limit.
    """
    return max(0, operator.max_size - num_old) if operator.max_size else None


def choose(
    operator: Categorify, counts: Counts, most: int | None, observed: int, stem: str
) -> Chosen:
    """Choose the values that get an id, write them to a file `STEM-*`, and return what it wrote.

    These are the values that reach the operator's `freq_threshold`, at most the `most` most
    frequent of them.

    Args:
        counts: The counts of a piece (a range of hash buckets), with each value once, without
            values that have an id already.
        observed: How often the piece's values occur in the rows, for the result.
    """
    new = most_frequent(operator.passing(counts), most)
    return Chosen(write_run(new, f"{stem}-new.arrow"), observed)


def fit_vocabularies(
    counted: Sequence[CountedColumn],
    runner: TaskRunner,
    categories: str,
    staging: str,
    memory: MemoryPlan,
) -> list[VocabularyReport]:
    """Write the vocabularies of counted columns to the folder `categories`.

    Returns a report on each, in the order of `counted`. `staging` is a folder for temporary files,
    and `memory` bounds the memory of each task. Raises a `DataError` if a column has more ids than
    int32 holds.
    """
    work = []
    for column in counted:
        operator = cast(Categorify, column.operator)
        most = most_new(operator)
        whole = (operator, column.name, column.nulls, most, categories, memory.piece_bytes)
        work.append(Work(column.size_bytes, (operator, column.files, most), whole))
    stem = f"{staging}/fitted"
    return add_up(runner, _fit_piece, _write_fitted, work, stem, memory.piece_bytes)


def _fit_piece(
    operator: Categorify, files: Sequence[str], most: int | None, buckets: range, stem: str
) -> Chosen:
    counts = read_counts(files, buckets)
    if len(files) > 1:
        counts = added_up(counts)
    return choose(operator, counts, most, total(counts.counts), stem)


def _write_fitted(
    operator: Categorify,
    name: str,
    nulls: int,
    most: int | None,
    categories: str,
    range_bytes: int,
    pieces: Sequence[Chosen],
) -> VocabularyReport:
    new = RunsInOrder([piece.new for piece in pieces], most, range_bytes)
    num_oov = max(1, operator.num_buckets)
    cardinality = FIRST_OOV_ID + num_oov + new.num_values
    with in_column(name):
        check_cardinality(cardinality)
    with VocabularyWriter.open(categories, name, new.value_type()) as writer:
        new.write(writer)
        unknown = sum(piece.observed for piece in pieces) - writer.num_observed
        writer.write_meta(num_oov, nulls, unknown)
    return VocabularyReport(name, cardinality)
