"""Counts rows per distinct score, for the AUC if the bins of `BinaryMetrics` are too wide.

Every float32 score has a key, an unsigned integer in the same order. The state holds, sorted, each
occurring key with its negatives and positives. Up to `max_entries` keys, nothing is lost: pairs of
rows with the same key are ties, and AUC is exact for scores rounded to float32. With more, the keys
lose their last bits until they are few enough. Then the entries are bins that follow the data, and
the bounds of `distrain.metrics.report` hold for them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from distrain.metrics.bins import Doubles, Floats, Weights
from distrain.metrics.report import area_under_roc, average_precision
from distrain.metrics.state import checked_weights

MAX_ENTRIES = 4_194_304

Keys = npt.NDArray[np.uint32]

_SIGN = np.uint32(1 << 31)


class Bounded(NamedTuple):
    """A metric that differs from its exact value by at most `bound`.

    With a bound of 0, it is exact up to rounding. Scores that are equal as float32 count as equal.
    """

    value: float
    bound: float


class DistinctScores:
    """Negatives and positives of each distinct score, in ascending order; bounded memory.

    Args:
        max_entries: Maximum number of distinct scores; more are merged with adjacent ones. An entry
            takes 20 bytes, and three times as much while rows are added.
        weighted: Whether rows have weights; then an entry has sums of weights instead of counts.

    Attributes:
        shift: Number of dropped low bits of the keys; 0: every distinct score has its entry.
        keys: The scores' keys, ascending, uint32 `[entries]`.
        negatives: Rows with label 0 per entry, int64 `[entries]`; or their weights, float64.
        positives: Rows with label 1 per entry, like `negatives`.

    >>> scores = DistinctScores()
    >>> scores.update(np.array([-2.0, 50.0, 51.0, 52.0]), np.array([0, 1, 0, 1]))
    >>> scores.auc()
    Bounded(value=0.75, bound=0.0)
    """

    def __init__(self, max_entries: int = MAX_ENTRIES, weighted: bool = False):
        self.shift = 0
        self.keys: Keys = np.zeros(0, np.uint32)
        none: Weights = np.zeros(0) if weighted else np.zeros(0, np.int64)
        self.negatives = self.positives = none
        self._max_entries = max_entries

    @property
    def weighted(self) -> bool:
        return self.negatives.dtype == np.float64

    def update(
        self, scores: Floats, labels: np.ndarray[Any, Any], weights: Floats | None = None
    ) -> None:
        """Count some rows.

        Args:
            scores: `[rows]`, finite; in any float dtype, ordered as float32.
            labels: `[rows]`, 0 or 1 in any dtype.
            weights: `[rows]`, 0 or more; `None`: 1 each. Ignored if the state is not `weighted`.

        Raises:
            ValueError: The shapes differ, a score is not finite, or a weight is below 0 or not
                finite; the state is unchanged.
        """
        if scores.ndim != 1 or scores.shape != labels.shape:
            raise ValueError(
                f"scores {list(scores.shape)} and labels {list(labels.shape)} must both be [rows]"
            )
        if not np.isfinite(scores).all():
            raise ValueError("a score is not a finite number")
        positives = (labels != 0).astype(self.negatives.dtype)
        negatives = 1 - positives
        if self.weighted:
            w = checked_weights(weights, len(labels))
            negatives, positives = negatives * w, positives * w
        self.add(key_of(scores) >> np.uint32(self.shift), negatives, positives)

    def add(self, keys: Keys, negatives: Weights, positives: Weights) -> None:
        """Add the negatives and positives of each of `keys`, all `[n]`.

        The keys lack their lowest `shift` bits; they may repeat, in any order.
        """
        self._hold(
            np.concatenate([self.keys, keys]),
            np.concatenate([self.negatives, negatives]),
            np.concatenate([self.positives, positives]),
        )
        while len(self.keys) > self._max_entries:
            self.coarsen(self.shift + 1)

    def add_all(self, other: DistinctScores) -> None:
        """Count the rows of another state; both states are coarsened to the larger `shift`.

        >>> ours, other = DistinctScores(), DistinctScores()
        >>> ours.update(np.array([-2.0, 50.0]), np.array([0, 1]))
        >>> other.update(np.array([51.0, 52.0]), np.array([0, 1]))
        >>> ours.add_all(other)
        >>> ours.auc()
        Bounded(value=0.75, bound=0.0)
        """
        shift = max(self.shift, other.shift)
        for state in (self, other):
            state.coarsen(shift)
        self.add(other.keys, other.negatives, other.positives)

    def coarsen(self, shift: int) -> None:
        """Drop low bits of the keys until `shift` are dropped, and merge keys that become equal.

        Raises:
            ValueError: More than `shift` bits are dropped already.
        """
        if shift < self.shift:
            raise ValueError(f"{self.shift} bits are dropped already, which is more than {shift}")
        keys = self.keys >> np.uint32(shift - self.shift)
        self.shift = shift
        self._hold(keys, self.negatives, self.positives)

    def auc(self) -> Bounded | None:
        """Return the area under the ROC curve, and how far it may be from the exact value.

        The bound is 0 unless scores were coarsened. `None` unless both classes occur.
        """
        if not self.negatives.any() or not self.positives.any():
            return None
        value, bound = area_under_roc(self.negatives, self.positives)
        return Bounded(value, bound if self.shift else 0.0)

    def average_precision(self) -> Bounded | None:
        """Return the average precision, and how far it may be from the exact value.

        It is the sum, over the scores, of precision times gain in recall. The bound is 0 unless
        scores were coarsened. `None` unless both classes occur.
        """
        if not self.negatives.any() or not self.positives.any():
            return None
        if self.shift:
            return Bounded(*average_precision(self.negatives, self.positives))
        return Bounded(_step_sum(self.negatives, self.positives), 0.0)

    def _hold(self, keys: Keys, negatives: Weights, positives: Weights) -> None:
        if not len(keys):
            return
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        firsts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
        self.keys = keys[firsts]
        self.negatives = np.add.reduceat(negatives[order], firsts)
        self.positives = np.add.reduceat(positives[order], firsts)


def key_of(scores: Floats) -> Keys:
    """Return a key for each finite score, uint32 `[rows]`; a larger score has a larger key.

    Scores that are equal as float32, such as -0.0 and 0.0, have the same key.

    Negative floats have the sign bit and are descending as integers, so all their bits are flipped.
    In other floats only the sign bit is flipped.

    >>> key_of(np.array([-1.0, -0.0, 0.0, 1e-30, 2.0])).argsort().tolist()
    [0, 1, 2, 3, 4]
    """
    bits = (scores.astype(np.float32) + np.float32(0.0)).view(np.uint32)
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def _step_sum(negatives: Weights, positives: Weights) -> float:
    """Return the exact average precision from the negatives and positives of each distinct score.

    The scores ascend. The result is a sum over them, the highest first, as in sklearn's
    `average_precision_score`. Rows with one score are ties: a threshold admits all or none.
    """
    p: Doubles = positives[::-1].astype(np.float64)
    admitted = np.cumsum(p)
    among = admitted + np.cumsum(negatives[::-1].astype(np.float64))
    among[p == 0] = 1.0  # with weights, all entries so far may weigh 0
    return float((p * admitted / among).sum() / admitted[-1])
