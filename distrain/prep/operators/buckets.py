"""Operators that map values to a few buckets: numbers by bounds, categories by a hash."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from distrain.errors import DataError, InputError
from distrain.prep.operators.categorify import as_categories
from distrain.prep.operators.counts import Counts, added_up, counted, joined
from distrain.prep.operators.operator import (
    FittedByColumn,
    OnNumbers,
    Operator,
    Takes,
    as_doubles,
)
from distrain.prep.vocabulary import stable_buckets

_ROUNDED_BITS = 40
"""The number of low bits of a float64 that are dropped. 13 significant bits remain: integers up to
8,192 are exact, and other numbers have a relative error below 1/4096."""

Floats = np.ndarray[Any, np.dtype[np.float64]]
_Int64Array = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Bucketize(OnNumbers):
    """Replaces each value by the number of its bucket, int64; nulls and NaN become null.

    Attributes:
        edges: The lower bounds of the buckets, ascending. A value's bucket is the number of edges
            that are not above it.
        log_square: The buckets of the winner of Criteo's challenge of 2014 (Y. Juan, W.-S. Chin,
            Y. Zhuang, "3 Idiots' Approach"): floor(log(x)^2) above 2, floor(x) up to 2. Here 2 is
            added to the former, so that buckets ascend with x, and values below -2 get the negative
            buckets of -x.

    >>> Bucketize((0, 10)).transform("I1", pa.array([-1, 0, 9.5, 10, None])).to_pylist()
    [0, 1, 1, 2, None]
    >>> Bucketize(log_square=True).transform("I1", pa.array([-3, 0, 2, 3, 100])).to_pylist()
    [-3, 0, 2, 3, 23]
    """

    kind: ClassVar[str] = "Bucketize"
    takes: ClassVar[Takes] = "numbers"
    edges: tuple[float, ...] = ()
    log_square: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "edges", tuple(self.edges))
        if bool(self.edges) == self.log_square:
            raise InputError("Bucketize needs either edges or log_square")
        if any(low >= high for low, high in zip(self.edges, self.edges[1:], strict=False)):
            raise InputError(f"Bucketize's edges {list(self.edges)} are not ascending")


@dataclass(frozen=True)
class QuantileBuckets(OnNumbers, FittedByColumn):
    """Replaces each value by its bucket's number, int64.

    About equally many values are in each of `number` buckets. Equal values share a bucket, so there
    may be fewer buckets. Values are rounded to 13 significant bits before they are counted; a
    bucket begins at the first rounded value after a quantile.

    Attributes:
        edges: The fitted lower bounds of the buckets, by column.
    """

    kind: ClassVar[str] = "QuantileBuckets"
    FITTED_FIELD: ClassVar[str] = "edges"
    takes: ClassVar[Takes] = "numbers"
    number: int
    edges: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.number < 2:
            raise InputError(f"QuantileBuckets needs at least 2 buckets, not {self.number}")

    def fit(self, values: pa.Array) -> Counts:
        numbers: Floats = as_doubles(values).to_numpy(zero_copy_only=False)  # nulls become NaN
        return counted(pa.array(_rounded(numbers[~np.isnan(numbers)])))

    def merge(self, *states: Counts) -> Counts:
        return added_up(joined(states))

    def finish(self, state: Counts) -> tuple[float, ...]:
        state = added_up(state)  # also sorts numbers by value
        up_to = np.cumsum(state.counts.to_numpy())
        wanted = np.arange(1, self.number) * (up_to[-1:].sum() / self.number)
        after = np.unique(np.searchsorted(up_to, wanted)) + 1
        values = state.values.to_numpy()
        return tuple(map(float, _lowest(values[after[after < len(values)]])))

    def served(self, column: str) -> dict[str, Any]:
        return {"edges": list(self.edges[column]), "log_square": False}


class StagedBuckets(pa.ExtensionType):  # type: ignore[misc]
    """Arrow type of hash buckets of texts, computed when rows were staged.

    Operators use these buckets unchanged, so that no later pass hashes the texts again.
    """

    def __init__(self, num_buckets: int):
        self.num_buckets = num_buckets
        super().__init__(pa.int64(), "distrain.staged_buckets")

    def __arrow_ext_serialize__(self) -> bytes:
        return str(self.num_buckets).encode()

    @classmethod
    def __arrow_ext_deserialize__(cls, _storage: pa.DataType, serialized: bytes) -> StagedBuckets:
        return cls(int(serialized))


pa.register_extension_type(StagedBuckets(1))


@dataclass(frozen=True)
class HashBucket(Operator):
    """Replaces each value by its hash bucket, `0 .. num_buckets-1`, int64; nulls stay null.

    >>> HashBucket(10).transform("C1", pa.array([1, 2, None, 1])).to_pylist()
    [5, 0, None, 5]
    """

    kind: ClassVar[str] = "HashBucket"
    takes: ClassVar[Takes] = "categories"
    num_buckets: int

    def __post_init__(self) -> None:
        if self.num_buckets < 1:
            raise InputError(f"HashBucket's num_buckets is {self.num_buckets}, below 1")

    def staged(self, texts: pa.Array) -> pa.Array:
        """Return the buckets of texts in a type that `transform` returns without hashing again."""
        return pa.ExtensionArray.from_storage(
            StagedBuckets(self.num_buckets), self.transform("", texts)
        )

    def transform(self, column: str, values: pa.Array) -> pa.Array:
        if isinstance(values.type, StagedBuckets):
            if values.type.num_buckets != self.num_buckets:
                raise DataError(
                    f"the features document has {values.type.num_buckets} hash buckets, and the "
                    f"workflow {self.num_buckets}",
                    where={"column": column},
                    hint="Use the features document that the workflow was fitted with.",
                )
            return values.storage
        encoded = as_categories(values).dictionary_encode()
        buckets = stable_buckets(encoded.dictionary, self.num_buckets).astype(np.int64)
        return pa.array(buckets).take(encoded.indices)


def _rounded(numbers: Floats) -> _Int64Array:
    """Return an integer of each number's high bits, `[numbers]`; integers sort as numbers do."""
    bits = (numbers + 0.0).view(np.int64)  # -0.0 becomes 0.0
    return (bits ^ ((bits >> 63) & np.int64(2**63 - 1))) >> _ROUNDED_BITS


def _lowest(rounded: _Int64Array) -> Floats:
    """Return for each of `rounded` the least number that `_rounded` maps to it."""
    bits = rounded << _ROUNDED_BITS
    return (bits ^ ((bits >> 63) & np.int64(2**63 - 1))).view(np.float64)
