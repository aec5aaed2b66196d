"""Vocabularies that have learnt a day, written out of core from what each piece has learnt.

A piece leaves three files, of columns `value` and `count`. They are read side by side with the
vocabulary as it was, of which a batch is held at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distrain.prep.counting.spilling import Run, RunsInOrder, read_counts_table, write_run
from distrain.prep.operators.categorify import Categorify
from distrain.prep.operators.counts import Counts
from distrain.prep.steps import FIRST_OOV_ID
from distrain.prep.updates.vocabulary_update import Learnt, Limits
from distrain.prep.vocabulary import (
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
