"""The metrics of a binary classifier, computed from binned counts.

Bins are ordered by logit. Let `p[b]`, `n[b]` be the positives and negatives of bin `b`, `P` and
`N` their totals.

**AUC** is the share of (positive, negative) pairs that the logits order correctly, ties counting
one half. A pair in two different bins is ordered like its bins, which the counts determine exactly.
A pair inside one bin counts 0, 1/2 or 1; the estimate uses 1/2 and is wrong by at most 1/2. There
are `p[b] * n[b]` such pairs in bin `b`, so

    auc       = sum_b p[b] * (n[0] + ... + n[b-1] + n[b] / 2) / (P * N)
    |error|  <= sum_b p[b] * n[b] / (2 * P * N) = auc_bound

**Average precision** is the mean, over the positives, of the precision at the threshold that just
admits the positive (and its ties). Let `a` positives and `f` negatives be in higher bins.
The i-th positive of a bin, from the top, is admitted with `i` to `p` positives and 0 to `n`
negatives of its own bin, so its precision is between `(a+i) / (a+i+f+n)` and `(a+p) / (a+p+f)`.
The lower terms increase with `i`, hence their sum is at least the integral over `i` from 0 to `p`,
`p - (f+n) * ln((a+f+n+p) / (a+f+n))`. The estimate uses a positive in the middle of the bin,
`(a + (p+1)/2) / (a + (p+1)/2 + f + n/2)`, and the bound is its distance to the farther end.

**Normalised entropy** is the mean log loss over that of a constant prediction of the click rate
(He et al., "Practical Lessons from Predicting Clicks on Ads at Facebook", 2014): below 1 is better
than knowing the click rate only. **Calibration** is the sum of predictions over that of labels.

For weighted rows, `p[b]` and `n[b]` are sums of weights, and a row of weight `w` counts as `w` rows
in every formula and bound above.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from distrain.metrics.bins import Doubles, Weights
from distrain.metrics.reliability import calibration_error


@dataclass(frozen=True)
class BinaryReport:
    """The metrics of some rows; `None` where undefined.

    Attributes:
        rows: Number of rows, regardless of weights.
        positives: Number of rows with label 1.
        auc: Area under the ROC curve; `None` unless both classes occur.
        auc_bound: Maximum error of `auc`.
        average_precision: Area under the precision-recall curve as a step sum; `None` if `auc` is.
        average_precision_bound: Maximum error of `average_precision`.
        log_loss: Mean logistic loss in nats; `None` without rows.
        normalised_entropy: `log_loss` divided by that of the mean label; `None` if `auc` is.
        calibration: Sum of predictions over sum of labels; `None` without positives.
        targets: Metrics of further targets of the same rows: by target, then by metric.
        calibration_error: The expected calibration error: the mean distance between predicted and
            observed rate in 20 groups of adjacent predictions, weighted by their rows; `None`
            if `auc` is.
    """

    rows: int
    positives: int
    auc: float | None = None
    auc_bound: float | None = None
    average_precision: float | None = None
    average_precision_bound: float | None = None
    log_loss: float | None = None
    normalised_entropy: float | None = None
    calibration: float | None = None
    targets: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)
    calibration_error: float | None = None

    def figures(self) -> dict[str, float | None]:
        """Return, by name, the metrics that are reported for a further target."""
        names = ("auc", "auc_bound", "log_loss", "normalised_entropy", "calibration")
        return {name: getattr(self, name) for name in names}


def report(
    negatives: Weights,
    positives: Weights,
    log_loss_sum: float,
    prediction_sum: float,
    counted: tuple[int, int] | None = None,
) -> BinaryReport:
    """Return the metrics from counts or weights per bin, `[NUM_BINS]` each, and two sums over rows.

    `counted` has the numbers of rows and of positive rows; `None`: those of the bins.
    """
    positive, negative = positives.sum().item(), negatives.sum().item()
    total = positive + negative
    rows, num_positives = counted or (int(total), int(positive))
    log_loss = log_loss_sum / total if total else None
    calibration = prediction_sum / positive if positive else None
    if log_loss is None or not positive or not negative:
        return BinaryReport(rows, num_positives, log_loss=log_loss, calibration=calibration)
    entropy = _entropy(positive / total)
    return BinaryReport(
        rows,
        num_positives,
        *area_under_roc(negatives, positives),
        *average_precision(negatives, positives),
        log_loss,
        log_loss / entropy if entropy else None,
        calibration,
        calibration_error=calibration_error(negatives, positives),
    )


def area_under_roc(negatives: Weights, positives: Weights) -> tuple[float, float]:
    """Return AUC and its certified bound from counts (or weights) per bin; both classes must occur.

    >>> area_under_roc(np.array([2, 1]), np.array([0, 3]))
    (0.8333333333333334, 0.16666666666666666)
    """
    negatives_below = np.cumsum(negatives) - negatives
    # float64: the products overflow int64 at some billions of rows.
    pairs = float(positives.sum()) * float(negatives.sum())
    # Not `np.dot`: BLAS wakes threads for it, which costs a busy machine milliseconds, and its
    # order of summation depends on their number.
    ordered = (positives.astype(np.float64) * (negatives_below + negatives / 2)).sum()
    within = (positives.astype(np.float64) * negatives).sum()
    return float(ordered) / pairs, float(within) / (2 * pairs)


def average_precision(negatives: Weights, positives: Weights) -> tuple[float, float]:
    """Return average precision and the bound of its error, from counts (or weights) per bin.

    The bins are in ascending order of scores. There must be positives.

    >>> average_precision(np.array([5, 0]), np.array([0, 3]))
    (1.0, 0.0)
    """
    held = np.flatnonzero(positives)[::-1]
    p, n = positives[held].astype(np.float64), negatives[held].astype(np.float64)
    above = np.cumsum(p) - p
    negatives_above = float(negatives.sum()) - np.cumsum(negatives)[held].astype(np.float64)
    low = _lower_sum(above, negatives_above + n, p)
    high = p * (above + p) / (above + p + negatives_above)
    middle = above + (p + 1) / 2
    estimate = np.clip(p * middle / (middle + negatives_above + n / 2), low, high)
    total = p.sum()
    value = float(estimate.sum() / total)
    return value, max(float(high.sum() / total) - value, value - float(low.sum() / total), 0.0)


def _lower_sum(above: Doubles, negatives_until: Doubles, p: Doubles) -> Doubles:
    # Without negatives so far every precision is 1; log1p would divide 0 by 0 there.
    before = np.where(negatives_until > 0, above + negatives_until, 1.0)
    return p - negatives_until * np.log1p(p / before)


def _entropy(rate: float) -> float:
    if rate in (0, 1):  # one class outweighs the other beyond float precision
        return 0.0
    return -rate * math.log(rate) - (1 - rate) * math.log1p(-rate)
