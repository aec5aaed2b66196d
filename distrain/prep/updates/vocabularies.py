"""Vocabularies in files that learn a day's counts, on a cluster, piece by piece.

The values that have ids, and the counts of those that have none, are sorted into files by the
buckets of their hashes, as the day's counts are; a task then has all of some buckets. Which values
these are, and where their counts lie:

    unique.NAME.parquet, meta.NAME.parquet    the vocabulary (`distrain/prep/vocabulary.py`)
    rare.NAME.parquet                         with `keep_counts`: counts of values without an id
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np
import pyarrow as pa

from distrain.errors import DataError
from distrain.prep.counting.spilling import (
    Counted,
    MemoryPlan,
    pieces_of,
    read_counts,
    write_counts,
)
from distrain.prep.fit_task import FitUnit
from distrain.prep.operators.categorify import Categorify
from distrain.prep.operators.counts import NUM_BUCKETS, Counts, joined
from distrain.prep.operators.operator import in_column
from distrain.prep.updates.grown_vocabularies import (
    KEPT,
    LearntFiles,
    VocabularyBefore,
    kept_file,
    rows_at_once,
    write_kept,
    write_learnt_files,
    write_vocabulary,
)
from distrain.prep.updates.vocabulary_update import KEPT_BUCKETS, Limits, learn
from distrain.prep.vocabulary import read_batches
from distrain.prep.workers import TaskRunner
from distrain.storage.folder import open_folder
from distrain.storage.retrying import RETRY_S, with_retries


@dataclass(frozen=True)
class VocabularyReport:
    name: str  # what its files are called after: the column, or the domain
    cardinality: int  # how many ids it has
    new_ids: int = 0  # how many of these a vocabulary that learnt did not have before
    kept_counts: int = 0  # of how many values without an id the counts are kept
    kept_bytes: int = 0  # the size of the file with these


@dataclass(frozen=True)
class _Spread:
    """A vocabulary before the day, in the order of its buckets."""

    before: VocabularyBefore = field(default_factory=VocabularyBefore)
    known: tuple[str, ...] = ()  # files with its values, and the places of these
    kept: tuple[str, ...] = ()  # files with counts of rare values
    size_bytes: int = 0  # what all of these take in memory


def learn_vocabularies(
    counted: Sequence[tuple[FitUnit, str, Sequence[Counted]]],
    runner: TaskRunner,
    categories: str,
    old: str | None,
    staging: str,
    keep_counts: int,
    memory: MemoryPlan,
) -> list[VocabularyReport]:
    """Write the vocabularies that have learnt what was counted, to the folder `categories`.

    Args:
        counted: A unit, the name of a column or domain of it, and its counts.
        old: Another folder, with the vocabularies before and their kept counts; `None` begins with
            empty ones. It stays as it is: a task whose worker dies runs again.
    """
    before = [_Spread()] * len(counted)
    if old is not None:
        spread = [
            (old, name, f"{staging}/before-{place:04d}", memory.piece_bytes)
            for place, (_, name, _) in enumerate(counted)
        ]
        before = runner.run("spread", _spread, spread)
    pieces, finishes, sizes = [], [], []
    for place, ((unit, name, found), was) in enumerate(zip(counted, before, strict=True)):
        operator = replace(cast(Categorify, unit.operator), vocabularies={})
        limits = Limits.of(operator, was.before.num_values, keep_counts)
        files = [path for one in found for path in one.files]
        size_bytes = sum(one.size_bytes for one in found) + was.size_bytes
        pieces.append(
            [
                (
                    operator,
                    files,
                    was,
                    limits,
                    buckets,
                    f"{staging}/learnt-{place:04d}-{number:03d}",
                )
                for number, buckets in enumerate(
                    pieces_of(
                        size_bytes, memory.piece_bytes, KEPT_BUCKETS if limits.rare else NUM_BUCKETS
                    )
                )
            ]
        )
        nulls = sum(one.nulls for one in found)
        sizes.append(size_bytes)
        finishes.append((operator, name, nulls, was.before, limits, categories, memory.piece_bytes))
    learnt = runner.run(
        "learn",
        _learn_piece,
        [one for of in pieces for one in of],
        sizes_bytes=[size // len(of) for size, of in zip(sizes, pieces, strict=True) for _ in of],
    )
    added = iter(learnt)
    arguments = [
        (*finish, tuple(next(added) for _ in of_name))
        for finish, of_name in zip(finishes, pieces, strict=True)
    ]
    return runner.run("finish", _finish, arguments, sizes_bytes=sizes)


def _spread(old: str, name: str, stem: str, range_bytes: int) -> _Spread:
    most = rows_at_once(range_bytes)
    known: list[str] = []
    kept: list[str] = []
    size_bytes = 0
    before = VocabularyBefore(old)
    for values, counts in read_batches(old, name, most):
        places = np.arange(before.num_values, before.num_values + len(values))
        known.append(f"{stem}-known-{len(known):04d}.arrow")
        size_bytes += _write(Counts(values, pa.array(places)), known[-1])
        before = before.with_more(values, counts)
    files = with_retries(open_folder(old).files, {"folder": old}, RETRY_S)
    if kept_file(name) in files:
        for values, counts in _kept_batches(old, name, most):
            kept.append(f"{stem}-kept-{len(kept):04d}.arrow")
            size_bytes += _write(Counts(values, counts), kept[-1])
    return _Spread(before, tuple(known) if before.num_values else (), tuple(kept), size_bytes)


def _write(counts: Counts, path: str) -> int:
    write_counts(counts, path)
    return counts.nbytes


def _kept_batches(old: str, name: str, most: int) -> Iterator[tuple[pa.Array, pa.Array]]:
    try:
        yield from read_batches(old, name, most, KEPT)
    except DataError as error:
        raise DataError(
            "the kept counts cannot be read",
            where=error.where,
            hint="Without the file the counts of rare values begin anew: remove it.",
        ) from None


def _learn_piece(
    operator: Categorify,
    files: Sequence[str],
    spread: _Spread,
    limits: Limits,
    buckets: range,
    stem: str,
) -> LearntFiles:
    day, known, kept = (
        joined([read_counts(path, buckets) for path in paths]) if paths else None
        for paths in (files, spread.known, spread.kept)
    )
    assert day is not None  # a count has a file
    learnt = learn(operator, day, known, kept, limits, is_added_up=len(files) == 1)
    return write_learnt_files(learnt, stem, keep_rare=limits.rare > 0)


def _finish(
    operator: Categorify,
    name: str,
    nulls: int,
    before: VocabularyBefore,
    limits: Limits,
    categories: str,
    range_bytes: int,
    pieces: tuple[LearntFiles, ...],
) -> VocabularyReport:
    with in_column(name):
        cardinality, new = write_vocabulary(
            operator, name, nulls, before, pieces, limits, categories, range_bytes
        )
    kept, size = write_kept(pieces, categories, name) if limits.rare else (0, 0)
    return VocabularyReport(name, cardinality, new, kept, size)
