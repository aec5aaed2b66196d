"""Metrics within groups of rows, such as users or requests, and the mean AUC of the groups.

The AUC over all rows also compares rows of different users, so it does not measure the order of
the rows within a user. The mean over groups is weighted by their rows, as in Zhu et al.,
"Optimized Cost per Click in Taobao Display Advertising", 2017, where it is called GAUC; or by their
rows' weights. Groups with a single class have no AUC and are left out.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from distrain.metrics.binary import losses_and_predictions
from distrain.metrics.bins import Counts, Doubles, Floats
from distrain.metrics.state import checked_weights


@dataclass(frozen=True)
class GroupedReport:
    """Metrics within groups.

    Attributes:
        groups: Number of groups.
        scored_groups: Number of groups with both classes.
        scored_rows: Number of rows in the scored groups.
        grouped_auc: Mean AUC of the scored groups, weighted by their rows, or by their rows'
            weights; `None` without a scored group.
        mean_auc: Unweighted mean AUC of the scored groups; `None` without a scored group.
        numbers: Per group, its number in the argument `groups` of `grouped_metrics`, ascending,
            `[groups]`.
        rows: Per group, its number of rows, without rows of weight 0, int64 `[groups]`.
        positives: Per group, its number of rows with label 1, likewise, int64 `[groups]`.
        auc: Per group, its AUC, float64 `[groups]`; NaN for a single class.
        log_loss: Per group, its mean logistic loss in nats, float64 `[groups]`.
        calibration: Per group, its sum of predictions over its sum of labels, float64 `[groups]`;
            NaN without positives.
    """

    groups: int
    scored_groups: int
    scored_rows: int
    grouped_auc: float | None
    mean_auc: float | None
    numbers: npt.NDArray[np.integer[Any]]
    rows: Counts
    positives: Counts
    auc: Doubles
    log_loss: Doubles
    calibration: Doubles


def grouped_metrics(
    groups: npt.NDArray[np.integer[Any]],
    scores: Floats,
    labels: np.ndarray[Any, Any],
    weights: Floats | None = None,
) -> GroupedReport:
    """Return the exact AUC within each group, their means, and the groups' other metrics.

    Args:
        groups: Each row's group, `[rows]`, from 0; numbers without rows are not groups.
        scores: Logits, `[rows]`, finite.
        labels: 0 or 1, `[rows]`, in any dtype.
        weights: `[rows]`, 0 or more; rows of weight 0 are ignored. `None`: 1 each.

    >>> found = grouped_metrics(np.array([0, 0, 1, 1, 2]), np.array([0.1, 0.9, 0.8, 0.2, 0.5]),
    ...                         np.array([0, 1, 0, 1, 1]))
    >>> found.groups, found.scored_groups, found.auc.tolist(), found.grouped_auc
    (3, 2, [1.0, 0.0, nan], 0.5)
    """
    mass = checked_weights(weights, len(groups))
    order = np.lexsort((scores, groups))
    order = order[mass[order] > 0]
    group, score, positive = groups[order], scores[order], labels[order] != 0
    of_positives, of_negatives = np.where([positive, ~positive], mass[order], 0.0)
    # Wider than float64: a group's sums are differences of running sums over all groups, in which
    # larger weights of earlier groups would round off its own.
    of_negatives = of_negatives.astype(np.longdouble)
    firsts = _firsts(group)
    rows = np.diff(np.append(firsts, len(group)))
    p, n = _sums(of_positives, firsts), _sums(of_negatives, firsts)
    # A positive row beats the negative ones below it, and half of those that tie with it.
    ties = _firsts(group, score)
    tied_positives, tied_negatives = _sums(of_positives, ties), _sums(of_negatives, ties)
    tie_firsts = np.searchsorted(ties, firsts)
    steps = tied_negatives.copy()
    steps[tie_firsts[1:]] -= n[:-1]  # each group's sum begins at 0
    beaten = tied_positives * (np.cumsum(steps) - tied_negatives / 2)
    won, n = _sums(beaten, tie_firsts).astype(np.float64), n.astype(np.float64)
    auc = np.full(len(rows), np.nan)
    scored = (p > 0) & (n > 0)
    np.divide(won, p * n, out=auc, where=scored)
    known, of_group = auc[scored], (p + n)[scored]
    losses, predictions = losses_and_predictions(score.astype(np.float64), positive)
    loss, predicted = (_sums(one * mass[order], firsts) for one in (losses, predictions))
    return GroupedReport(
        groups=len(rows),
        scored_groups=len(known),
        scored_rows=int(rows[scored].sum()),
        grouped_auc=float((known * of_group).sum() / of_group.sum()) if len(known) else None,
        mean_auc=float(known.mean()) if len(known) else None,
        numbers=group[firsts],
        rows=rows,
        positives=_sums(positive.astype(np.int64), firsts),
        auc=auc,
        log_loss=loss / (p + n),
        calibration=np.divide(predicted, p, out=np.full(len(rows), np.nan), where=p > 0),
    )


def _firsts(*sorted_keys: np.ndarray[Any, Any]) -> Counts:
    """Return the index of the first row of each run of rows with equal keys.

    Each of `sorted_keys` is `[rows]`.
    """
    if not len(sorted_keys[0]):
        return np.zeros(0, np.int64)
    differs = np.logical_or.reduce([keys[1:] != keys[:-1] for keys in sorted_keys])
    return np.flatnonzero(np.concatenate([[True], differs]))


def _sums(values: np.ndarray[Any, Any], firsts: Counts) -> np.ndarray[Any, Any]:
    return np.add.reduceat(values, firsts) if len(firsts) else values[:0]
