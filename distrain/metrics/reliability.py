"""Reliability curves: predicted and observed rates, from counts per bin."""

import numpy as np

from distrain.metrics.bins import BINS_PER_LOGIT, LOGIT_LIMIT, Weights

GROUPS = 20
"""Maximum number of groups of a reliability curve."""


def reliability(
    negatives: Weights, positives: Weights, most: int = GROUPS
) -> dict[str, list[float]] | None:
    """Return mean prediction and observed rate of groups with about equally many rows.

    A group is a run of adjacent bins of the logit, so groups are in ascending order of prediction.
    Bins are not divided: with large bins, some groups have more rows, and there are fewer groups.
    Each row's prediction is taken as the middle of its bin: within 0.05 % of its probability,
    except for logits beyond +-16.

    Args:
        negatives: Rows with label 0 per bin, or their weights, `[NUM_BINS]`.
        positives: Rows with label 1 per bin, or their weights, `[NUM_BINS]`.
        most: Maximum number of groups.

    Returns:
        `predicted` and `observed`, from 0 to 1, and `rows` (or their weights), each a list with one
        entry per group; `None` without rows.

    >>> from distrain.metrics.bins import NUM_BINS
    >>> counts = np.zeros(NUM_BINS, np.int64)
    >>> counts[NUM_BINS // 2] = 30
    >>> found = reliability(counts, 2 * counts)
    >>> [round(found[name][0], 2) for name in ("predicted", "observed", "rows")]
    [0.5, 0.67, 90]
    """
    rows = negatives + positives
    held = np.flatnonzero(rows)
    if not len(held):
        return None
    before = np.cumsum(rows[held]) - rows[held]
    group = before * most // rows.sum()
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    probabilities = 1 / (1 + np.exp(LOGIT_LIMIT - (held + 0.5) / BINS_PER_LOGIT))
    counts = np.add.reduceat(rows[held], starts)
    predicted = np.add.reduceat(rows[held] * probabilities, starts) / counts
    observed = np.add.reduceat(positives[held], starts) / counts
    return {
        "predicted": predicted.tolist(),
        "observed": observed.tolist(),
        "rows": counts.tolist(),
    }


def calibration_error(negatives: Weights, positives: Weights) -> float | None:
    """Return the mean distance between predicted and observed rate over groups of `reliability`.

    The mean is weighted by rows; `None` without rows. It is the expected calibration error of
    Naeini et al. 2015, "Obtaining Well Calibrated Probabilities Using Bayesian Binning", with
    groups of about equally many rows.
    """
    bins = reliability(negatives, positives)
    if bins is None:
        return None
    apart = np.abs(np.subtract(bins["predicted"], bins["observed"]))
    return float(np.average(apart, weights=bins["rows"]))
