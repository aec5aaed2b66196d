"""Vocabularies that learn another day: old ids stay where they are, new ones follow.

A fit that keeps counts is the same for a vocabulary that is empty. No Dask and no files here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distrain.prep.operators.categorify import Categorify, by_frequency
from distrain.prep.operators.counts import NUM_BUCKETS, Counts, added_up, buckets_of, joined
from distrain.prep.vocabulary import is_text

KEPT_BUCKETS = 256
"""Counts of rare values are kept for so many buckets; fixed, for it decides which are kept."""

_BUCKETS_IN_ONE = NUM_BUCKETS // KEPT_BUCKETS

Int64Array = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, eq=False)
class Learnt:
    """What a day adds to a vocabulary, or to a piece of one."""

    places: Int64Array  # of old values that the day has: their places among the vocabulary's values
    added: Int64Array  # how often the day has each
    new: Counts  # values that get an id, with all that is known of their counts
    rare: Counts  # values that get none, those whose counts are kept
    observed: int  # how many values of the day were not missing


@dataclass(frozen=True)
class Limits:
    new: int | None  # values that may get an id; `None` for any number
    # values without an id whose counts are kept, rounded up to an equal number for each of the 256
    # buckets of hashes. So pieces keep what the whole would, in bounded memory
    rare: int

    @classmethod
    def of(cls, operator: Categorify, num_old: int, keep_counts: int) -> Limits:
        """Counts of rare values are of no use where no value can get an id any more."""
        room = max(0, operator.max_size - num_old) if operator.max_size else None
        return cls(room, 0 if room == 0 else keep_counts)


def learn(
    operator: Categorify,
    day: Counts,
    known: Counts | None,
    kept: Counts | None,
    limits: Limits,
    *,
    is_added_up: bool = False,
) -> Learnt:
    """What a day adds to a vocabulary, or to a piece of one: the same buckets of all arguments.

    A value may stand several times in `day` unless it `is_added_up`. `known` are the vocabulary's
    values, with their places in place of counts; `kept` counts rare values of the days before.
    """
    observed = _total(day)
    found = day if kept is None else joined([day, kept])
    found = found if is_added_up and kept is None else added_up(found)
    if known is not None and not len(found.values):
        found = replace(found, values=known.values[:0])
    if known is None:
        places, is_old = pa.array([], pa.int64()), pa.array(np.zeros(len(found.values), bool))
    else:
        at = _index_in(found.values, known.values)
        is_old = at.is_valid()
        places = known.counts.take(at.drop_null())
    added = found.counts.filter(is_old)
    rest = found if known is None else _filtered(found, pc.invert(is_old))
    passes = pc.greater_equal(rest.counts, operator.freq_threshold)
    return Learnt(
        places.to_numpy(),
        added.to_numpy(zero_copy_only=False),
        most_frequent(_filtered(rest, passes), limits.new),
        _of_each_bucket(_filtered(rest, pc.invert(passes)), -(-limits.rare // KEPT_BUCKETS))
        if limits.rare
        else Counts(rest.values[:0], rest.counts[:0]),
        observed,
    )


def most_frequent(counts: Counts, limit: int | None) -> Counts:
    """The counts from the most frequent on, equals by value; at most `limit`, `None` for all."""
    order = by_frequency(pa.table({"value": counts.values, "count": counts.counts}))
    order = order if limit is None else order.slice(0, limit)
    return Counts(counts.values.take(order), counts.counts.take(order))


def _of_each_bucket(counts: Counts, limit: int) -> Counts:
    columns = {"value": counts.values, "count": counts.counts}
    table = pa.table({"bucket": buckets_of(counts.values) // _BUCKETS_IN_ONE, **columns})
    keys = [("bucket", "ascending"), ("count", "descending"), ("value", "ascending")]
    order = pc.sort_indices(table, sort_keys=keys)
    buckets = table["bucket"].take(order).to_numpy()
    rank = np.arange(len(buckets)) - np.searchsorted(buckets, buckets)
    order = order.filter(pa.array(rank < limit))
    return Counts(counts.values.take(order), counts.counts.take(order))


def _filtered(counts: Counts, wanted: pa.Array) -> Counts:
    return Counts(counts.values.filter(wanted), counts.counts.filter(wanted))


def _index_in(values: pa.Array, known: pa.Array) -> pa.Array:
    if is_text(values.type) and values.type != known.type:
        values, known = values.cast(pa.large_string()), known.cast(pa.large_string())
    return pc.index_in(values, value_set=known)


def _total(counts: Counts) -> int:
    return int(pc.sum(counts.counts).as_py() or 0)
