"""Histories: earlier events with the same key as a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distrain.errors import DataError, InputError
from distrain.prep.lists import Int64Array, offsets_of
from distrain.prep.operators.operator import concrete
from distrain.prep.operators.spelling import texts_of
from distrain.schema.column import ColumnSchema, Tags

MOST_KEPT = 1 << 20
TIME_DIFFERENCE = "time_difference"
"""The tag of the list with the seconds from each event to the row."""

EVENT = "history"
"""The property `event` of a history's columns in the schema, and the prefix of their names."""

Floats = np.ndarray[Any, np.dtype[np.float64]]
_MICROSECONDS = 1e6
_NUMBERS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_null)


@dataclass(frozen=True)
class History:
    """For each row the latest `keep` earlier events of its key, oldest first, as aligned lists.

    Each row is an event for later rows with the same key. Events at the row's own time are not in
    its history. Events at the same time keep the order of the rows. A row without a key or a time
    has an empty history, and is not an event.

    Attributes:
        by: The column of keys, such as users.
        order: The column of times, or of numbers of seconds.
        keep: Maximum number of events in a history.
        of: The columns to list, with their values after all operators. If `order` is among them,
            its list holds the seconds from each event to the row.
    """

    by: str
    order: str
    keep: int
    of: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "of", tuple(self.of))
        if not 1 <= self.keep <= MOST_KEPT:
            raise InputError(f"a history keeps 1 to {MOST_KEPT:,} events, not {self.keep}")
        if not self.of or len({*self.of}) < len(self.of):
            raise InputError(
                "history.of names columns, each once", where={"of": ", ".join(self.of)}
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns in `of` that the workflow makes: all except `order`."""
        return tuple(name for name in self.of if name != self.order)

    @property
    def names(self) -> dict[str, str]:
        """The names of the lists, by listed column.

        >>> History("user", "time", 200, ("item", "time")).names
        {'item': 'history_item', 'time': 'history_time'}
        """
        return {name: f"{EVENT}_{name}" for name in self.of}

    def mistake_among(self, columns: Sequence[str]) -> str | None:
        """Return why a workflow of these columns cannot have the history; `None` if it can."""
        missing = [name for name in self.columns if name not in columns]
        if missing:
            return (
                f"history.of names {', '.join(missing)}, which is neither a feature nor the order"
            )
        taken = [name for name in self.names.values() if name in columns]
        return f"a feature has the history's name {taken[0]!r}; rename it" if taken else None

    def schema_of(self, columns: Mapping[str, ColumnSchema]) -> list[ColumnSchema]:
        """Return the schema of the lists; `columns` has the listed columns."""
        schemas = []
        for listed, name in self.names.items():
            if listed == self.order:
                kind: tuple[str, ...] = (Tags.CONTINUOUS, Tags.SEQUENCE, TIME_DIFFERENCE)
                column = ColumnSchema(name, "float32", kind)
            else:
                of = columns[listed]
                kind = (Tags.CATEGORICAL if of.has_tag(Tags.CATEGORICAL) else Tags.CONTINUOUS,)
                column = replace(of, name=name, tags=(*kind, Tags.SEQUENCE))
            properties = {"event": EVENT}
            if column.has_tag(Tags.CATEGORICAL):
                properties["domain"] = columns[listed].domain
            schemas.append(
                replace(
                    column,
                    is_list=True,
                    is_ragged=True,
                    value_count=(0, self.keep),
                    properties=properties,
                )
            )
        return schemas

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> History:
        return cls(**document)


def keys_of(column: str, values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return keys that can be sorted: int64 for integers, else texts as `binary`; nulls stay.

    Unsigned 64-bit integers become texts. Raises a `DataError` for types without texts, e.g. lists.
    """
    values = concrete(values)
    dtype = values.type
    whole = pa.types.is_integer(dtype) and not pa.types.is_uint64(dtype)
    if whole or pa.types.is_null(dtype):
        return values.cast(pa.int64())
    try:
        return texts_of(values).cast(pa.binary())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise DataError(
            f"{dtype} cannot be a key",
            where={"column": column},
            hint="Keys of a history are integers, texts or other single values.",
        ) from None


def seconds_of(column: str, values: pa.Array | pa.ChunkedArray) -> Floats:
    """Return times as seconds since 1970, and numbers unchanged, as float64; nulls become NaN.

    Raises a `DataError` for other types, texts among them.
    """
    values = concrete(values)
    if pa.types.is_timestamp(values.type) or pa.types.is_date(values.type):
        zone = values.type.tz if pa.types.is_timestamp(values.type) else None
        counted = values.cast(pa.timestamp("us", zone), safe=False).view(pa.int64())
        values = pc.divide(counted.cast(pa.float64(), safe=False), _MICROSECONDS)
    elif not any(is_kind(values.type) for is_kind in _NUMBERS):
        raise DataError(
            f"{values.type} is neither times nor numbers",
            where={"column": column},
            hint="Times of text need a features document; see docs/any-table.md.",
        )
    seconds: Floats = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return seconds


def ranks_of(keys: pa.Array) -> Int64Array:
    """Return integers that sort as the keys do, int64 `[rows]`.

    `keys` are from `keys_of`, without nulls.
    """
    if pa.types.is_integer(keys.type):
        return np.asarray(keys)
    encoded = keys.dictionary_encode()
    order = pc.sort_indices(encoded.dictionary).to_numpy()
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    rank_of_row: Int64Array = ranks[encoded.indices.to_numpy()]
    return rank_of_row


@dataclass(frozen=True, eq=False)
class Spans:
    """For each row, its history: `length` of the sorted events, from the index `first` on.

    `first` and `length` are int64 `[rows]`.
    """

    first: Int64Array
    length: Int64Array

    @classmethod
    def none(cls, rows: int) -> Spans:
        """Return empty histories of `rows` rows."""
        return cls(np.zeros(rows, np.int64), np.zeros(rows, np.int64))

    @classmethod
    def of_sorted(
        cls, keys: Int64Array, seconds: Floats, keep: int, base: int = 0, key_begin: int = 0
    ) -> Spans:
        """Return the span of each event's history; events are sorted by key and time.

        Args:
            keep: Maximum length of a span.
            base: The index of the first of these events among all events.
            key_begin: The index, among all events, at which the first event's key begins.
        """
        places = np.arange(len(keys))
        new_key = np.ones(len(keys), bool)
        np.not_equal(keys[1:], keys[:-1], out=new_key[1:])
        new_time = new_key.copy()
        new_time[1:] |= seconds[1:] != seconds[:-1]
        begin = base + np.maximum.accumulate(np.where(new_key, places, 0))
        begin[: _run_length(new_key)] = key_begin
        end = base + np.maximum.accumulate(np.where(new_time, places, 0))
        first = np.maximum(begin, end - keep)
        return cls(first, end - first)

    def __getitem__(self, rows: Any) -> Spans:
        return Spans(self.first[rows], self.length[rows])

    def __setitem__(self, rows: Any, spans: Spans) -> None:
        self.first[rows], self.length[rows] = spans.first, spans.length

    def items(self) -> Int64Array:
        """Return the indices of all events in the rows' histories, row by row."""
        offsets = offsets_of(self.length)
        items: Int64Array = np.repeat(self.first - offsets[:-1], self.length)
        items += np.arange(offsets[-1])
        return items


def _run_length(begins: np.ndarray[Any, np.dtype[np.bool_]]) -> int:
    later = np.flatnonzero(begins[1:])
    return int(later[0]) + 1 if len(later) else len(begins)


def in_order(keys: pa.Array, seconds: Floats) -> Int64Array:
    """Return the indices of rows with a key and a finite time, sorted by key and then by time."""
    known = np.flatnonzero(np.asarray(keys.is_valid()) & np.isfinite(seconds))
    return known[np.lexsort((seconds[known], ranks_of(keys.take(pa.array(known)))))]


def as_lists(lengths: Int64Array, items: np.ndarray[Any, Any]) -> pa.Array:
    """Return lists of items without nulls; `lengths` has the number of each list's items."""
    values = pa.array(items)
    offsets = pa.array(offsets_of(lengths).astype(np.int32))
    field = pa.field("item", values.type, nullable=False)
    return pa.ListArray.from_arrays(offsets, values, type=pa.list_(field))


def seconds_before(spans: Spans, rows: Floats, events: Floats) -> np.ndarray[Any, Any]:
    """Return the seconds from each event of the rows' histories to its row, float32.

    `rows` are the times of the rows, and `events` those of all events.
    """
    return (np.repeat(rows, spans.length) - events).astype(np.float32)
