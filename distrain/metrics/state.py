"""What every state of a target's metrics can do, and states that are sums.

Of a regression's row with weight `w`, target `y` and prediction `s`, the error is `e = s - y`:

    mean error = sum(w e) / sum(w)
    MAE        = sum(w |e|) / sum(w)
    RMSE       = sqrt(sum(w e^2) / sum(w))
    R2         = 1 - sum(w e^2) / (sum(w y^2) - sum(w y)^2 / sum(w))

The quantile `p` of the absolute error is the least `a` so that rows with `|e| <= a` have the share
`p` of all weights. Errors are counted in bins that are the first 15 bits of a float32 behind its
sign: 8 of the exponent and 7 of the fraction. A bin is at most 1/128 of its lower end wide, and the
quantile is said to be in its middle: at most `QUANTILE_BOUND` of itself away from that of the same
rows, sorted. Errors below 1e-38 are off by at most 1e-40; those beyond float32 share the last bin.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np

from distrain.metrics.bins import Counts, Doubles, Floats, Weights, add_packed, pack_counts


class Report(Protocol):
    def figures(self) -> dict[str, float | None]:
        """The metrics by name; `None` where the rows do not define one."""


class Parts(NamedTuple):
    """A state's arrays, which add up over ranks."""

    bins: Weights
    sums: Doubles
    counts: Counts | None


class State(Protocol):
    """Rows of one target, counted in constant size.

    Merging is associative: exact for what is counted, up to float64 rounding for sums.
    """

    kind: ClassVar[str]

    @property
    def rows(self) -> int:
        """The number of rows, whatever their weights."""

    def update(
        self, scores: Floats, labels: np.ndarray[Any, Any], weights: Floats | None = None
    ) -> None:
        """Count some rows.

        Args:
            scores: As the kind of target has them, in any float dtype.
            labels: `[rows]`, in any dtype.
            weights: `[rows]`, 0 or more; `None`: 1 each.

        Raises:
            ValueError: The shapes differ, a score or label is none of the kind, or a weight is
                below 0 or not finite; the state is as it was.
        """

    def merge(self, other: Any) -> Self:
        """A new state with the rows of both."""

    def compute(self) -> Report: ...

    def parts(self) -> Parts: ...

    @classmethod
    def of_parts(cls, parts: Parts) -> Self: ...

    def to_json(self) -> dict[str, Any]:
        """The state as JSON values, exact to the last bit."""

    @classmethod
    def from_json(cls, *documents: Mapping[str, Any]) -> Self:
        """The state with the rows of all documents, added in their order."""


class SummedState:
    """A number of rows, sums over them, and the weights of rows by bin.

    Attributes:
        sums: Those of `SUMS`, float64, in this order.
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
        """The inverse of `to_json`; of several documents, the state with the rows of all.

        The sums are added in the documents' order. Raises `ValueError` for a document of another
        kind or version, or a damaged one.
        """
        total = cls()
        for document in documents:
            for key, ours in (("kind", cls.kind), ("version", cls._VERSION)):
                if document.get(key) != ours:
                    found = document.get(key)
                    raise ValueError(f"not a state of {cls.kind} metrics: {key} is {found!r}")
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
    """The weights of rows as float64, 1 each for `None`.

    Raises:
        ValueError: There are not as many, or one is below 0 or not finite.
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


ERROR_BINS = 255 * 128
ERROR_SHIFT = 16
"""Low bits of a float32 that its bin leaves out."""

QUANTILE_BOUND = 1 / 256


@dataclass(frozen=True)
class RegressionReport:
    """The metrics of some rows; `None` where the rows do not define one.

    Attributes:
        rmse: Root of the mean squared error, on the target's scale, as all but `r2`.
        mae: Mean absolute error.
        r2: Share of the target's variance that predictions explain; `None` where it has none.
        mean_error: Mean of prediction minus target: above 0, predictions are too high.
        abs_error_p50: Median of the absolute error, within 0.4 % of itself; `p90`, `p99` likewise.
    """

    rmse: float | None
    mae: float | None
    r2: float | None
    mean_error: float | None
    abs_error_p50: float | None
    abs_error_p90: float | None
    abs_error_p99: float | None

    def figures(self) -> dict[str, float | None]:
        return asdict(self)


class RegressionMetrics(SummedState):
    """Sums and binned errors of constant size (256 KiB).

    >>> metrics = RegressionMetrics()
    >>> metrics.update(np.array([1.0, 2.0, 6.0]), np.array([1.0, 2.0, 3.0]))
    >>> found = metrics.compute()
    >>> found.mae, found.mean_error, found.abs_error_p50
    (1.0, 1.0, 0.0)
    """

    kind: ClassVar[str] = "regression"
    SUMS = ("weight", "error", "abs_error", "sq_error", "target", "sq_target")
    NUM_BINS = ERROR_BINS

    __slots__ = ()

    def update(
        self, predictions: Floats, targets: np.ndarray[Any, Any], weights: Floats | None = None
    ) -> None:
        """Count some rows, each argument `[rows]`; see `State`. Predictions are no logits."""
        if predictions.ndim != 1 or predictions.shape != targets.shape:
            raise ValueError(
                f"predictions {list(predictions.shape)} and targets {list(targets.shape)} must "
                "both be [rows]"
            )
        for name, values in (("prediction", predictions), ("target", targets)):
            finite = np.isfinite(values)
            if not finite.all():
                index = int(np.argmin(finite))
                raise ValueError(f"the {name} at index {index} is {values[index]}")
        w = checked_weights(weights, len(targets))
        y = targets.astype(np.float64)
        e = predictions.astype(np.float64) - y
        size = np.abs(e)
        self.rows += len(y)
        self.sums += [float((w * part).sum()) for part in (1.0, e, size, e * e, y, y * y)]
        self.bins += np.bincount(error_bin_of(size), w, minlength=ERROR_BINS)

    def compute(self) -> RegressionReport:
        weight, error, abs_error, sq_error, target, sq_target = self.sums.tolist()
        if not weight:
            return RegressionReport(None, None, None, None, None, None, None)
        spread = sq_target - target * target / weight
        return RegressionReport(
            float(np.sqrt(sq_error / weight)),
            abs_error / weight,
            # What rounding leaves of targets that are all alike is no spread.
            1 - sq_error / spread if spread > 1e-12 * sq_target else None,
            error / weight,
            *(_quantile(self.bins, share) for share in (0.5, 0.9, 0.99)),
        )


def error_bin_of(sizes: Doubles) -> Counts:
    """The bin of each absolute error, int64 in `0 .. ERROR_BINS-1`.

    >>> error_bin_of(np.array([0.0, 1.0, 1.001, 1.01, 1e300])).tolist()
    [0, 16256, 16256, 16257, 32639]
    """
    with np.errstate(over="ignore"):
        bits = sizes.astype(np.float32).view(np.uint32)
    bins: Counts = np.minimum(bits >> ERROR_SHIFT, ERROR_BINS - 1).astype(np.int64)
    return bins


def _quantile(bins: Doubles, share: float) -> float:
    reached = np.cumsum(bins)
    place = int(np.searchsorted(reached, share * reached[-1] * (1 - 1e-12)))
    if place == 0:
        return 0.0
    ends = np.array([place, place + 1], np.uint32) << ERROR_SHIFT
    low, high = ends.view(np.float32).astype(np.float64)
    return float(low if not np.isfinite(high) else (low + high) / 2)


TOP_K = 5
_LOGITS_AT_ONCE = 2**20  # of which several float64 copies are in memory


def rows_at_once(num_classes: int) -> int:
    """Rows whose logits are counted at once."""
    return max(1, _LOGITS_AT_ONCE // num_classes)


@dataclass(frozen=True)
class MulticlassReport:
    """The metrics of some rows; `None` without any.

    Attributes:
        accuracy: Share of the rows whose own class has the highest logit; of equal logits the
            lower class counts as higher.
        top_5: Share of the rows whose own class is among the five highest.
        log_loss: Mean cross entropy in nats.
    """

    accuracy: float | None
    top_5: float | None
    log_loss: float | None

    def figures(self) -> dict[str, float | None]:
        return asdict(self)


class MulticlassMetrics(SummedState):
    """Sums over rows of how their own class was ranked, and of their losses.

    >>> metrics = MulticlassMetrics()
    >>> metrics.update(np.array([[2.0, 1.0, 0.0], [0.0, 1.0, 2.0]]), np.array([0, 1]))
    >>> metrics.compute().accuracy
    0.5
    """

    kind: ClassVar[str] = "multiclass"
    SUMS = ("weight", "right", "among_top", "log_loss")

    __slots__ = ()

    def update(
        self, logits: Floats, labels: np.ndarray[Any, Any], weights: Floats | None = None
    ) -> None:
        """Count some rows: logits `[rows, classes]`, labels `0 .. classes-1`; see `State`."""
        if logits.ndim != 2 or labels.shape != logits.shape[:1]:
            raise ValueError(
                f"logits {list(logits.shape)} must be [rows, classes], and labels "
                f"{list(labels.shape)} [rows]"
            )
        if not np.isfinite(logits).all():
            raise ValueError("a logit is not a finite number")
        num_classes = logits.shape[1]
        wrong = ~np.isin(labels, np.arange(num_classes))
        if wrong.any():
            index = int(np.argmax(wrong))
            raise ValueError(
                f"the label at index {index} is {labels[index]}, none of 0 to {num_classes - 1}"
            )
        w = checked_weights(weights, len(labels))
        most = rows_at_once(num_classes)
        for first in range(0, len(labels), most):
            some = slice(first, first + most)
            self._count(logits[some].astype(np.float64), labels[some].astype(np.int64), w[some])

    def _count(self, z: Doubles, labels: Counts, w: Doubles) -> None:
        own_class, classes = labels[:, None], np.arange(z.shape[1])
        own = np.take_along_axis(z, own_class, axis=1)
        place = ((z > own) | ((z == own) & (classes < own_class))).sum(axis=1)
        highest = z.max(axis=1, initial=-np.inf, keepdims=True)
        losses = np.log(np.exp(z - highest).sum(axis=1)) + (highest - own)[:, 0]
        self.rows += len(z)
        parts = (1.0, place == 0, place < TOP_K, losses)
        self.sums += [float((w * part).sum()) for part in parts]

    def compute(self) -> MulticlassReport:
        weight, right, among_top, log_loss = self.sums.tolist()
        if not weight:
            return MulticlassReport(None, None, None)
        return MulticlassReport(right / weight, among_top / weight, log_loss / weight)
