"""Vocabularies in files that learn a day's counts, on a cluster, piece by piece.

The values that have ids, and the counts of those that have none, are sorted into files by the
buckets of their hashes, as the day's counts are; a task then has all of some buckets. Which values
these are, and where their counts lie:

    unique.NAME.parquet, meta.NAME.parquet    the vocabulary (`distrain/vocabulary.py`)
    rare.NAME.parquet                         with `keep_counts`: counts of values without an id
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from distrain.errors import DataError
from distrain.etl.counting import Counted, MemoryPlan, pieces_of, read_counts, write_counts
from distrain.etl.days.learning import KEPT_BUCKETS, Learnt, Limits, learn, with_learnt
from distrain.etl.fit_unit import FitUnit
from distrain.etl.operators import Categorify, Counts, Vocabulary, joined
from distrain.etl.workers import TaskRunner
from distrain.storage import RETRY_S, open_folder, open_input, whole_file, with_retries
from distrain.vocabulary import read_table


@dataclass(frozen=True)
class VocabularyReport:
    """What became of one vocabulary.

    Attributes:
        name: What its files are called after: the column, or the domain.
        cardinality: How many ids it has.
        new_ids: How many of these a vocabulary that learnt did not have before.
        kept_counts: Of how many values without an id the counts are kept.
        kept_bytes: The size of the file with these.
    """

    name: str
    cardinality: int
    new_ids: int = 0
    kept_counts: int = 0
    kept_bytes: int = 0


@dataclass(frozen=True)
class _Before:
    """A vocabulary before the day, in the order of its buckets.

    Attributes:
        known: The file with its values, and the places of these; `None` if there is none yet.
        kept: The file with counts of rare values; `None` if none were kept.
        num_known: How many values have ids.
        size_bytes: What both take in memory.
    """

    known: str | None = None
    kept: str | None = None
    num_known: int = 0
    size_bytes: int = 0


def learn_vocabularies(
    counted: Sequence[tuple[FitUnit, str, Sequence[Counted]]],
    runner: TaskRunner,
    categories: str,
    old: str | None,
    staging: str,
    keep_counts: int,
    memory: MemoryPlan,
) -> list[VocabularyReport]:
    """Write the vocabularies that have learnt what was counted.

    Args:
        counted: A unit, the name of a column or domain of it, and what was counted of that.
        categories: The folder to write them to.
        old: Another folder, with the vocabularies before and the counts kept beside them; `None`
            to begin with empty ones. It stays as it is: a task whose worker dies runs again.
        staging: A folder for files that are of no use afterwards.
        keep_counts: Of how many values without an id the counts are kept, the most frequent.
    """
    spread = [
        (old, name, f"{staging}/before-{place}") for place, (_, name, _) in enumerate(counted)
    ]
    before: list[_Before] = runner.run("spread", _spread, spread)
    pieces, finishes = [], []
    for (unit, name, found), (folder, *_), was in zip(counted, spread, before, strict=True):
        operator = replace(cast(Categorify, unit.operator), vocabularies={})
        limits = Limits.of(operator, was.num_known, keep_counts)
        files = [path for one in found for path in one.files]
        size_bytes = sum(one.size_bytes for one in found) + was.size_bytes
        cut = pieces_of(size_bytes, memory.piece_bytes, KEPT_BUCKETS)
        pieces.append([(operator, files, was, limits, buckets) for buckets in cut])
        nulls = sum(one.nulls for one in found)
        finishes.append((operator, name, nulls, folder, categories, limits))
    added = iter(runner.run_on_workers("learn", _learn_piece, [one for of in pieces for one in of]))
    arguments = [
        (*finish, [next(added) for _ in of_name])
        for finish, of_name in zip(finishes, pieces, strict=True)
    ]
    return runner.run("finish", _finish, arguments)


def copy_kept_counts(old: str, new: str) -> None:
    """Take the counts of rare values along, from one folder of vocabularies to another."""
    source = open_folder(old)
    for name in with_retries(source.files, {"folder": old}, RETRY_S):
        if name.startswith("rare.") and name.endswith(".parquet"):
            with (
                open_input(f"{old}/{name}", retry_s=RETRY_S) as kept,
                whole_file(f"{new}/{name}", make_folder=False, sync=False) as here,
                here.open("wb") as copy,
            ):
                shutil.copyfileobj(kept, copy)


def _spread(old: str | None, name: str, stem: str) -> _Before:
    """Sort a vocabulary, and the counts kept beside it, into files by buckets."""
    if old is None:
        return _Before()
    values = Vocabulary.load(old, name).values
    known = Counts(values, pa.array(np.arange(len(values))))
    found = _Before(f"{stem}-known.arrow", num_known=len(values), size_bytes=known.nbytes)
    write_counts(known, f"{stem}-known.arrow")
    kept = _load_kept(old, name)
    if kept is not None:
        write_counts(kept, f"{stem}-kept.arrow")
        size_bytes = found.size_bytes + kept.nbytes
        found = replace(found, kept=f"{stem}-kept.arrow", size_bytes=size_bytes)
    return found


def _learn_piece(
    operator: Categorify, files: Sequence[str], before: _Before, limits: Limits, buckets: range
) -> Learnt:
    day = joined([read_counts(path, buckets) for path in files])
    known = read_counts(before.known, buckets) if before.known else None
    kept = read_counts(before.kept, buckets) if before.kept else None
    return learn(operator, day, known, kept, limits)


def _finish(
    operator: Categorify,
    name: str,
    nulls: int,
    old_folder: str | None,
    categories: str,
    limits: Limits,
    pieces: list[Learnt],
) -> VocabularyReport:
    old = None if old_folder is None else Vocabulary.load(old_folder, name)
    try:
        vocabulary, rare = with_learnt(operator, old, pieces, limits)
    except DataError as error:
        where = {"column": name, **error.where}
        raise DataError(error.message, where=where, hint=error.hint) from None
    vocabulary = replace(vocabulary, nulls_observed=vocabulary.nulls_observed + nulls)
    vocabulary.save(categories, name)
    size = _save_kept(rare, categories, name) if limits.rare else 0
    new = len(vocabulary.values) - (len(old.values) if old else 0)
    return VocabularyReport(name, vocabulary.cardinality, new, len(rare.values), size)


def _kept_file(name: str) -> str:
    return f"rare.{name}.parquet"


def _save_kept(rare: Counts, folder: str, name: str) -> int:
    file = f"{folder}/{_kept_file(name)}"
    table = pa.table({name: rare.values, f"{name}_size": rare.counts})
    with whole_file(file, make_folder=False, sync=False) as here:
        pq.write_table(table, here, compression="zstd")
        return here.stat().st_size


def _load_kept(folder: str, name: str) -> Counts | None:
    file = f"{folder}/{_kept_file(name)}"
    files = with_retries(open_folder(folder).files, {"folder": folder}, RETRY_S)
    if _kept_file(name) not in files:
        return None
    try:
        table = read_table(file).combine_chunks()
        return Counts(table[name].combine_chunks(), table[f"{name}_size"].combine_chunks())
    except (OSError, KeyError, pa.ArrowInvalid) as error:
        raise DataError(
            "the kept counts cannot be read",
            where={"file": file, "cause": str(error).splitlines()[0]},
            hint="Without the file the counts of rare values begin anew: remove it.",
        ) from None
