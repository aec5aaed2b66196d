"""The protocol of the states of a target's metrics, and states that are sums."""

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np

from distrain.metrics.bins import Counts, Doubles, Floats, Weights, add_packed, pack_counts


class Report(Protocol):
    def figures(self) -> dict[str, float | None]:
        """Return the metrics by name; `None` where undefined."""


class Parts(NamedTuple):
    """The arrays of a `State`, which are added element by element over the ranks.

    `counts` has the number of rows, and for a binary target the number of positive rows; `None` if
    both follow from `bins`.
    """

    bins: Weights
    sums: Doubles
    counts: Counts | None


class State(Protocol):
    """The metrics state of one target: counts and sums over the rows so far, of constant size.

    Merging is associative: exact for counts, up to float64 rounding for sums.
    """

    kind: ClassVar[str]

    @property
    def rows(self) -> int:
        """The number of rows, regardless of weights."""

    def merge(self, other: Any) -> Self:
        """Return a new state with the rows of both."""

    def compute(self) -> Report: ...

    def parts(self) -> Parts: ...

    @classmethod
    def of_parts(cls, parts: Parts) -> Self: ...

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON values, exact to the last bit."""

    @classmethod
    def from_json(cls, *documents: Mapping[str, Any]) -> Self:
        """Return the state with the rows of all documents, added in their order."""


class SummedState:
    """The common part of states that are sums over rows, and sums of weights by bin.

    A subclass names its sums in `SUMS`, and has `NUM_BINS` bins, possibly none.

    Attributes:
        rows: The number of rows so far, regardless of weights.
        sums: The sums named in `SUMS`, float64, in this order.
        bins: The sum of the rows' weights by bin, float64 `[NUM_BINS]`.
    """

    kind: ClassVar[str]
    SUMS: ClassVar[tuple[str, ...]]
    NUM_BINS: ClassVar[int] = 0
    _VERSION: ClassVar[int] = 1

    __slots__ = ("bins", "rows", "sums")

    def __init__(self, rows: int = 0, sums: Doubles | None = None, bins: Doubles | None = None):
        self.rows = rows
        self.sums = np.zeros(len(self.SUMS)) if sums is None else sums
        self.bins = np.zeros(self.NUM_BINS) if bins is None else bins

    def merge(self, other: Self) -> Self:
        return type(self)(self.rows + other.rows, self.sums + other.sums, self.bins + other.bins)

    def parts(self) -> Parts:
        return Parts(self.bins, self.sums, np.array([self.rows]))

    @classmethod
    def of_parts(cls, parts: Parts) -> Self:
        return cls(0 if parts.counts is None else int(parts.counts[0]), parts.sums, parts.bins)

    def to_json(self) -> dict[str, Any]:
        bins = {"bins": pack_counts(self.bins)} if self.NUM_BINS else {}
        sums = dict(zip(self.SUMS, self.sums.tolist(), strict=True))
        return {"kind": self.kind, "version": self._VERSION, "rows": self.rows, **bins, **sums}

    @classmethod
    def from_json(cls, *documents: Mapping[str, Any]) -> Self:
        """Return the state of documents from `to_json`, with the rows of all of them.

        The sums are added in the documents' order.

        Raises:
            ValueError: A document is damaged, or has another kind or version.
        """
        total = cls()
        for document in documents:
            for key, ours in (("kind", cls.kind), ("version", cls._VERSION)):
                if document.get(key) != ours:
                    value = document.get(key)
                    raise ValueError(f"not a state of {cls.kind} metrics: {key} is {value!r}")
        try:
            if cls.NUM_BINS:
                add_packed(total.bins, [document["bins"] for document in documents])
            for document in documents:
                total.rows += int(document["rows"])
                total.sums += [float(document[name]) for name in cls.SUMS]
        except (KeyError, TypeError) as error:
            raise ValueError(f"damaged state of {cls.kind} metrics: {error!r}") from None
        return total


def checked_weights(weights: Floats | None, rows: int) -> Doubles:
    """Return the weights of rows as float64, 1 each for `None`.

    Raises:
        ValueError: The shape of `weights` is not `[rows]`, or a weight is below 0 or not finite.
    """
    if weights is None:
        return np.ones(rows)
    if weights.shape != (rows,):
        raise ValueError(f"weights {list(weights.shape)} of {rows} rows must be [{rows}]")
    right = (weights >= 0) & np.isfinite(weights)
    if not right.all():
        index = int(np.argmin(right))
        raise ValueError(f"the weight at index {index} is {weights[index]}, not 0 or more")
    return weights.astype(np.float64)
