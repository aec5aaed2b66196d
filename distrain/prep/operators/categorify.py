"""Maps values to small ids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from distrain.errors import DataError, InputError
from distrain.prep.operators.counts import Counts, added_up, counted, joined, narrow_enough
from distrain.prep.operators.operator import FittedByColumn, Takes
from distrain.prep.operators.spelling import texts_of
from distrain.prep.vocabulary import Vocabulary, check_cardinality

_SPELLING = 3
"""The version of the spelling of values as texts; versions 1 and 2 differ for some values."""


@dataclass(frozen=True)
class Categorify(FittedByColumn):
    """Replaces values by ids, ordered by descending frequency; see `vocabulary` for their layout.

    Ties are ordered by value (integers by size, strings by their UTF-8).

    Attributes:
        freq_threshold: Keep only values seen at least this often; 0 keeps all.
        max_size: Keep at most this many values, the most frequent; 0 keeps all.
        num_buckets: Number of ids over which other values are spread; 0 means one id.
        domain: The name of one vocabulary that all columns share, counted over all of them. It is
            written to the schema, so that a model can share an embedding table. `None`: each column
            has its own vocabulary.
        vocabularies: The fitted vocabularies, by column.
    """

    kind: ClassVar[str] = "Categorify"
    FITTED_FIELD: ClassVar[str] = "vocabularies"
    takes: ClassVar[Takes] = "categories"
    freq_threshold: int = 0
    max_size: int = 0
    num_buckets: int = 0
    domain: str | None = None
    vocabularies: Mapping[str, Vocabulary] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        for name in ("freq_threshold", "max_size", "num_buckets"):
            if getattr(self, name) < 0:
                raise InputError(f"Categorify's {name} is {getattr(self, name)}, below 0")

    def fit(self, values: pa.Array) -> Counts:
        if not pa.types.is_integer(values.type):
            values = as_categories(values)
        counts = counted(values)
        # Narrow integers are counted in their type, and only the distinct values are widened.
        return replace(counts, values=as_categories(counts.values))

    def merge(self, *states: Counts) -> Counts:
        if len(states) == 1:
            return states[0]
        types = sorted({category_type(s.values.type) for s in states if len(s.values)})
        if len(types) > 1:
            raise DataError(
                f"columns of the domain {self.domain!r} hold {' and '.join(types)}",
                hint="Values of one vocabulary must be of one kind.",
            )
        return added_up(joined(states))

    def passing(self, state: Counts) -> Counts:
        """Return the counts of the values that reach the threshold."""
        return filtered(state, pc.greater_equal(state.counts, self.freq_threshold))

    def finish(self, state: Counts) -> Vocabulary:
        """Return the vocabulary: the `max_size` most frequent values that reach the threshold.

        Raises a `DataError` if there are more ids than int32 holds.
        """
        kept = most_frequent(self.passing(state), self.max_size or None)
        vocabulary = Vocabulary(
            narrow_enough(kept.values),
            kept.counts,
            max(1, self.num_buckets),
            state.nulls,
            total(state.counts) - total(kept.counts),
        )
        check_cardinality(vocabulary.cardinality)
        return vocabulary

    def transform(self, column: str, values: pa.Array) -> pa.Array:
        """Return the ids, int32, non-null.

        Raises a `DataError` if the column has another type than in the fit.
        """
        vocabulary = self.vocabularies[column]
        if values.null_count == len(values):
            values = pa.nulls(len(values), vocabulary.values.type)
        type_here, known = category_type(values.type), category_type(vocabulary.values.type)
        if len(vocabulary.values) and type_here != known:
            raise DataError(
                f"the column has type {type_here}, but its saved categories have type {known}",
                where={"column": column},
                hint="Use the workflow that was fitted on files of this kind.",
            )
        if not pa.types.is_integer(values.type):
            values = as_categories(values)
        encoded = values.dictionary_encode()
        distinct = as_categories(encoded.dictionary)
        return pa.array(
            vocabulary.encode(pa.DictionaryArray.from_arrays(encoded.indices, distinct))
        )

    def served(self, column: str) -> dict[str, Any]:
        return {"vocabulary": self.domain or column}

    def to_json(self) -> dict[str, Any]:
        shared = {} if self.domain is None else {"domain": self.domain}
        return {
            "freq_threshold": self.freq_threshold,
            "max_size": self.max_size,
            "num_buckets": self.num_buckets,
            **shared,
            "spelling": _SPELLING,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Categorify:
        settings = dict(document)
        if settings.pop("spelling", None) != _SPELLING:
            raise DataError(
                "the workflow was saved by an earlier version, which wrote some categories "
                "differently",
                hint="Prepare the data again with `distrain prep --features`, and train on it. "
                "Models of the earlier version still score rows that it prepared.",
            )
        return cls(**settings)


def as_categories(values: pa.Array) -> pa.Array:
    """Return integers and values of null type as int64, other values as `string`.

    Raises a `DataError` for integers beyond int64, and for values without a text, such as bytes
    that are not UTF-8.
    """
    whole = pa.types.is_integer(values.type) or pa.types.is_null(values.type)
    target = pa.int64() if whole else pa.string()
    try:
        return (values if whole else texts_of(values)).cast(target)
    except pa.ArrowInvalid as error:
        raise DataError(
            f"a category does not fit into {target}: {error}",
            hint="Write such values as strings: ids are names, of any length.",
        ) from None


def category_type(dtype: pa.DataType) -> str:
    """Return the category type of values of a dtype: `int64` or `string`."""
    if pa.types.is_dictionary(dtype):
        dtype = dtype.value_type
    return "int64" if pa.types.is_integer(dtype) or pa.types.is_null(dtype) else "string"


BY_FREQUENCY = (("count", "descending"), ("value", "ascending"))
"""The sort order of ids, as pairs of column and direction."""


def most_frequent(counts: Counts, limit: int | None) -> Counts:
    """Return the counts of the `limit` most frequent values, by falling count and then by value.

    With `None`, return all counts in this order.
    """
    order = pc.sort_indices(counts.rows, sort_keys=list(BY_FREQUENCY))
    order = order if limit is None else order.slice(0, limit)
    return Counts(counts.values.take(order), counts.counts.take(order))


def filtered(counts: Counts, wanted: pa.Array) -> Counts:
    """Return the counts of the values for which `wanted`, a boolean array, is true."""
    return Counts(counts.values.filter(wanted), counts.counts.filter(wanted))


def total(counts: pa.Array) -> int:
    """Return the sum of counts, 0 if there are none."""
    return int(pc.sum(counts).as_py() or 0)
