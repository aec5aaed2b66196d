"""Vocabularies in files that learn a day's counts, on a cluster, piece by piece.

The values that have ids, and the counts of those that have none, are sorted into files by the
buckets of their hashes, as the day's counts are; a task then has all of some buckets. Which values
these are, and where their counts lie:

    unique.NAME.parquet, meta.NAME.parquet    the vocabulary (`distrain/vocabulary.py`)
    rare.NAME.parquet                         with `keep_counts`: counts of values without an id

Vocabularies that have learnt a day, written out of core from what each piece has learnt.

A piece leaves three files, of columns `value` and `count`. They are read side by side with the
vocabulary as it was, of which a batch is held at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distrain.errors import DataError
from distrain.etl.counting import (
    Counted,
    MemoryPlan,
    Run,
    RunsInOrder,
    pieces_of,
    read_counts,
    read_counts_table,
    write_counts,
    write_run,
)
from distrain.etl.days.learning import KEPT_BUCKETS, Learnt, Limits, learn
from distrain.etl.fit_unit import FitUnit
from distrain.etl.operators import NUM_BUCKETS, Categorify, Counts, in_column, joined
from distrain.etl.workers import TaskRunner
from distrain.storage import RETRY_S, open_folder, with_retries
from distrain.vocabulary import (
    FIRST_OOV_ID,
    ROW_GROUP_VALUES,
    CountsWriter,
    MetaCounts,
    VocabularyWriter,
    check_cardinality,
    is_text,
    read_batches,
    read_meta,
)

KEPT = "rare"
"""How the names of files with counts of values without an id begin."""

_BYTES_BY_VALUE = 64
"""Values, counts and places, and all of them once more while they are brought in order."""


@dataclass(frozen=True)
class LearntFiles:
    added: Run  # places of old values that the day has, rising, and how often it has each
    new: Run  # values that get an id, in the order of the ids
    rare: Run  # values that get none, those whose counts are kept, in the order of the buckets
    observed: int  # how many values of the day were not missing


def write_learnt_files(learnt: Learnt, stem: str, keep_rare: bool) -> LearntFiles:
    """Write what a piece has learnt to files `STEM-*`; what nobody reads is not written."""
    order = np.argsort(learnt.places)
    added = Counts(pa.array(learnt.places[order]), pa.array(learnt.added[order]))
    return LearntFiles(
        write_run(added, f"{stem}-added.arrow") if len(order) else _NOTHING,
        write_run(learnt.new, f"{stem}-new.arrow"),
        write_run(learnt.rare, f"{stem}-rare.arrow") if keep_rare else _NOTHING,
        learnt.observed,
    )


_NOTHING = Run("", 0, 0)


@dataclass(frozen=True)
class VocabularyBefore:
    folder: str | None = None  # where its files are; `None` for one that is made anew
    num_values: int = 0  # how many values have ids
    text_bytes: int = 0  # what these take as UTF-8, if they are strings
    observed: int = 0  # how often they were seen

    def with_more(self, values: pa.Array, counts: pa.Array) -> VocabularyBefore:
        is_string = is_text(values.type)
        text_bytes = int(pc.sum(pc.binary_length(values)).as_py() or 0) if is_string else 0
        return replace(
            self,
            num_values=self.num_values + len(values),
            text_bytes=self.text_bytes + text_bytes,
            observed=self.observed + int(pc.sum(counts).as_py() or 0),
        )


def write_vocabulary(
    operator: Categorify,
    name: str,
    nulls: int,
    before: VocabularyBefore,
    pieces: Sequence[LearntFiles],
    limits: Limits,
    categories: str,
    range_bytes: int,
) -> tuple[int, int]:
    """Write a vocabulary that has learnt; returns its cardinality and how many ids are new.

    `nulls` values of the day were missing; `range_bytes` are brought in order at once.
    """
    new = RunsInOrder([piece.new for piece in pieces], limits.new, range_bytes)
    was = _meta_before(operator, name, before.folder)
    cardinality = FIRST_OOV_ID + was.num_oov + before.num_values + new.num_values
    check_cardinality(cardinality)
    value_type = new.value_type(before.text_bytes, before.num_values)
    with VocabularyWriter.in_folder(categories, name, value_type) as writer:
        for values, counts in _old_values(before, name, pieces, range_bytes):
            writer.write(values.cast(value_type), counts)
        new.write(writer)
        observed = sum(piece.observed for piece in pieces)
        unknown = was.oov_observed + observed - (writer.num_observed - before.observed)
        writer.write_meta(MetaCounts(was.num_oov, was.nulls_observed + nulls, unknown))
    return cardinality, new.num_values


def _meta_before(operator: Categorify, name: str, folder: str | None) -> MetaCounts:
    if folder is None:
        return MetaCounts(max(1, operator.num_buckets), 0, 0)
    meta = read_meta(folder, name)
    oov, null = meta["oov"], meta["null"]
    return MetaCounts(oov["num_indices"], null["num_observed"], oov["num_observed"])


def rows_at_once(range_bytes: int) -> int:
    return max(1, min(ROW_GROUP_VALUES, range_bytes // _BYTES_BY_VALUE))


def _old_values(
    before: VocabularyBefore, name: str, pieces: Sequence[LearntFiles], range_bytes: int
) -> Iterator[tuple[pa.Array, pa.Array]]:
    if before.folder is None:
        return
    tables = [read_counts_table(piece.added.path) for piece in pieces if piece.added.entries]
    added = [(_numbers(table, "value"), _numbers(table, "count")) for table in tables]
    first = 0
    for values, counts in read_batches(before.folder, name, rows_at_once(range_bytes)):
        total = counts.to_numpy(zero_copy_only=False).copy()
        for places, numbers in added:
            begin, end = np.searchsorted(places, [first, first + len(total)])
            total[places[begin:end] - first] += numbers[begin:end]
        yield values, pa.array(total)
        first += len(total)


def _numbers(table: pa.Table, column: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    found: np.ndarray[Any, np.dtype[np.int64]] = table[column].chunk(0).to_numpy()
    return found


def write_kept(pieces: Sequence[LearntFiles], categories: str, name: str) -> tuple[int, int]:
    runs = [piece.rare for piece in pieces]
    value_type = RunsInOrder(runs, None, ROW_GROUP_VALUES).value_type()
    file = f"{categories}/{kept_file(name)}"
    with CountsWriter.open(file, name, value_type) as writer:
        for run in runs:
            table = read_counts_table(run.path)
            writer.write(table["value"].cast(value_type), table["count"])
    return writer.num_values, writer.size_bytes


def kept_file(name: str) -> str:
    return f"{KEPT}.{name}.parquet"


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
